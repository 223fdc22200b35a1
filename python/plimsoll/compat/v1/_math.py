"""Arithmetic: `plimsoll.compat.v1.math`, and the operators of tensors."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import numpy

from . import _array
from ._graph import Tensor, graph_of, name_scope
from ._missing import missing
from ._op import apply_op, array_of, constant, convert_to_tensor, generated
from ._types import as_dtype

# TensorFlow's names for functions that are one operation each, with the names of arguments that differ from the table's.
_OPERATIONS: Dict[str, Tuple[str, Dict[str, str]]] = {
    name: (op, {})
    for name, op in {
        "abs": "Abs",
        "acos": "Acos",
        "acosh": "Acosh",
        "add_n": "AddN",
        "asin": "Asin",
        "asinh": "Asinh",
        "atan": "Atan",
        "atan2": "Atan2",
        "atanh": "Atanh",
        "ceil": "Ceil",
        "cos": "Cos",
        "cosh": "Cosh",
        "cumprod": "Cumprod",
        "cumsum": "Cumsum",
        "digamma": "Digamma",
        "equal": "Equal",
        "erf": "Erf",
        "erfc": "Erfc",
        "exp": "Exp",
        "expm1": "Expm1",
        "floor": "Floor",
        "floordiv": "FloorDiv",
        "floormod": "FloorMod",
        "greater": "Greater",
        "greater_equal": "GreaterEqual",
        "invert_permutation": "InvertPermutation",
        "is_finite": "IsFinite",
        "is_inf": "IsInf",
        "is_nan": "IsNan",
        "less": "Less",
        "less_equal": "LessEqual",
        "lgamma": "Lgamma",
        "log": "Log",
        "log1p": "Log1p",
        "logical_and": "LogicalAnd",
        "logical_not": "LogicalNot",
        "logical_or": "LogicalOr",
        "maximum": "Maximum",
        "minimum": "Minimum",
        "negative": "Neg",
        "not_equal": "NotEqual",
        "pow": "Pow",
        "reciprocal": "Reciprocal",
        "rint": "Rint",
        "round": "Round",
        "rsqrt": "Rsqrt",
        "segment_max": "SegmentMax",
        "segment_mean": "SegmentMean",
        "segment_min": "SegmentMin",
        "segment_sum": "SegmentSum",
        "sigmoid": "Sigmoid",
        "sign": "Sign",
        "sin": "Sin",
        "sinh": "Sinh",
        "softplus": "Softplus",
        "sqrt": "Sqrt",
        "square": "Square",
        "squared_difference": "SquaredDifference",
        "tan": "Tan",
        "tanh": "Tanh",
        "unsorted_segment_sum": "UnsortedSegmentSum",
        "xdivy": "Xdivy",
        "xlogy": "Xlogy",
        "zeta": "Zeta",
    }.items()
}
FUNCTIONS: Dict[str, Callable[..., Any]] = {}


def _lookup(name: str) -> Callable[..., Any]:
    if name not in FUNCTIONS:
        op, renamed = _OPERATIONS[name]
        FUNCTIONS[name] = generated(op, renamed)
    return FUNCTIONS[name]


def add(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x + y`."""
    with name_scope(name, "Add", [x]) as scope:
        x, y = _pair(x, y)
        made: Tensor = apply_op("Add" if x.dtype.base_dtype.name == "string" else "AddV2", scope, x=x, y=y)
        return made


def subtract(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x - y`."""
    made: Tensor = apply_op("Sub", name, x=x, y=y)
    return made


def multiply(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x * y`, element by element."""
    made: Tensor = apply_op("Mul", name, x=x, y=y)
    return made


def scalar_mul(scalar: Any, x: Any, name: Optional[str] = None) -> Tensor:
    """`scalar * x`."""
    return multiply(convert_to_tensor(scalar, convert_to_tensor(x).dtype.base_dtype, name="scalar"), x, name)


def _pair(x: Any, y: Any) -> Tuple[Tensor, Tensor]:
    """Both as tensors of one type: that of the one which is a tensor already."""
    if not isinstance(getattr(x, "dtype", None), type(as_dtype("float32"))) and hasattr(y, "dtype"):
        y = convert_to_tensor(y, name="y")
        return convert_to_tensor(x, y.dtype.base_dtype, name="x"), y
    x = convert_to_tensor(x, name="x")
    return x, convert_to_tensor(y, x.dtype.base_dtype, name="y")


def truediv(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x / y`: integers are divided as floats."""
    with name_scope(name, "truediv", [x, y]) as scope:
        x, y = _pair(x, y)
        if x.dtype.base_dtype != y.dtype.base_dtype:
            raise TypeError(f"`x` and `y` must have the same dtype, got {x.dtype!r} != {y.dtype!r}.")
        kind = x.dtype.base_dtype.name
        wide = "float32" if kind in ("uint8", "int8", "uint16", "int16") else "float64" if x.dtype.is_integer else None
        if wide is not None:
            x, y = cast(x, wide), cast(y, wide)
        made: Tensor = apply_op("RealDiv", scope, x=x, y=y)
        return made


def divide(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x / y`, as Python has it."""
    return truediv(x, y, name)


def div(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x / y` as Python 2 has it: integers stay integers."""
    with name_scope(name, "div", [x, y]) as scope:
        x, y = _pair(x, y)
        made: Tensor = apply_op("RealDiv" if x.dtype.is_floating or x.dtype.is_complex else "FloorDiv", scope, x=x, y=y)
        return made


def div_no_nan(x: Any, y: Any, name: Optional[str] = None) -> Tensor:
    """`x / y`, and 0 where `y` is 0."""
    with name_scope(name, "div_no_nan", [x, y]) as scope:
        x, y = _pair(x, y)
        made: Tensor = apply_op("DivNoNan", scope, x=x, y=y)
        return made


def cast(x: Any, dtype: Any, name: Optional[str] = None) -> Tensor:
    """The elements in another type; the tensor itself where it has that type."""
    kind = as_dtype(dtype).base_dtype
    if isinstance(x, Tensor) and x.dtype == kind:
        return x
    with name_scope(name, "Cast", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if x.dtype.base_dtype == kind:
            return x
        made: Tensor = apply_op("Cast", scope, x=x, DstT=kind)
        return made


def to_float(x: Any, name: str = "ToFloat") -> Tensor:
    return cast(x, "float32", name)


def to_double(x: Any, name: str = "ToDouble") -> Tensor:
    return cast(x, "float64", name)


def to_int32(x: Any, name: str = "ToInt32") -> Tensor:
    return cast(x, "int32", name)


def to_int64(x: Any, name: str = "ToInt64") -> Tensor:
    return cast(x, "int64", name)


def saturate_cast(value: Any, dtype: Any, name: Optional[str] = None) -> Tensor:
    """The elements in another type, those out of its range at its ends."""
    kind = as_dtype(dtype)
    with name_scope(name, "saturate_cast", [value]) as scope:
        value = convert_to_tensor(value, name="value")
        limits = numpy.finfo(kind.as_numpy_dtype) if kind.is_floating else numpy.iinfo(kind.as_numpy_dtype)
        value = _lookup("maximum")(value, constant(limits.min, value.dtype), name="max")
        value = _lookup("minimum")(value, constant(limits.max, value.dtype), name="min")
        return cast(value, kind, name=scope)


def _reduction(op: str) -> Callable[..., Tensor]:
    def reduce(
        input_tensor: Any,
        axis: Any = None,
        keepdims: Any = None,
        name: Optional[str] = None,
        reduction_indices: Any = None,
        keep_dims: Any = None,
    ) -> Tensor:
        axis = reduction_indices if axis is None else axis
        keep = bool(keepdims if keep_dims is None else keep_dims)
        tensor = convert_to_tensor(input_tensor, name="input_tensor" if op != "Sum" else "input")
        if axis is None:
            if tensor.shape.ndims is None:
                axis = range_(0, _array.rank(tensor))
            else:
                with graph_of([tensor]).as_default():
                    axis = constant(numpy.arange(tensor.shape.ndims, dtype=numpy.int32))
        made: Tensor = apply_op(op, name, input=tensor, reduction_indices=axis, keep_dims=keep)
        return made

    reduce.__name__, reduce.__doc__ = f"reduce_{op.lower()}", f"TensorFlow's operation {op} over axes, over all where none is given."
    return reduce


reduce_sum = _reduction("Sum")
reduce_mean = _reduction("Mean")
reduce_max = _reduction("Max")
reduce_min = _reduction("Min")
reduce_prod = _reduction("Prod")
reduce_all = _reduction("All")
reduce_any = _reduction("Any")


def reduce_logsumexp(input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Optional[str] = None) -> Tensor:
    """`log(sum(exp(x)))`, without overflow."""
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        raw = reduce_max(input_tensor, axis, keepdims=True)
        most = _array.stop_gradient(apply_op("SelectV2", condition=_lookup("is_finite")(raw), t=raw, e=0))
        total = _lookup("log")(reduce_sum(_lookup("exp")(subtract(input_tensor, most)), axis, keepdims=keepdims))
        if not keepdims:
            most = _array.reshape(most, _array.shape(total))
        return add(total, most, name=scope)


def range_(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range") -> Tensor:
    """Numbers from `start` (0 where only one is given) up to `limit`."""
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        parts = [(start, "start"), (limit, "limit"), (delta, "delta")]
        kind = dtype or next((each.dtype for each, _ in parts if isinstance(each, Tensor)), None)
        if kind is None:
            kind = as_dtype(array_of([each for each, _ in parts]).dtype)
        tensors = [convert_to_tensor(each, kind, name=what) for each, what in parts]
        made: Tensor = apply_op("Range", scope, start=tensors[0], limit=tensors[1], delta=tensors[2])
        return made


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: Optional[str] = None,
) -> Tensor:
    """The product of matrices, or of batches of them."""
    from ._missing import refuse

    refuse("matmul", a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse)
    with name_scope(name, "MatMul", [a, b]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, a.dtype.base_dtype, name="b")
        ranks = a.shape.ndims, b.shape.ndims
        if all(rank is None or rank > 2 for rank in ranks) and not (transpose_a or transpose_b):
            made: Tensor = apply_op("BatchMatMulV2", scope, x=a, y=b, adj_x=adjoint_a, adj_y=adjoint_b)
        elif any(rank is not None and rank > 2 for rank in ranks):
            made = apply_op("BatchMatMulV2", scope, x=a, y=b, adj_x=adjoint_a or transpose_a, adj_y=adjoint_b or transpose_b)
        else:
            made = apply_op("MatMul", scope, a=a, b=b, transpose_a=transpose_a or adjoint_a, transpose_b=transpose_b or adjoint_b)
        return made


def argmax(input: Any, axis: Any = None, name: Optional[str] = None, dimension: Any = None, output_type: Any = "int64") -> Tensor:
    """The position of the greatest element along an axis."""
    axis = dimension if axis is None else axis
    made: Tensor = apply_op("ArgMax", name, input=input, dimension=0 if axis is None else axis, output_type=output_type)
    return made


def argmin(input: Any, axis: Any = None, name: Optional[str] = None, dimension: Any = None, output_type: Any = "int64") -> Tensor:
    """The position of the least element along an axis."""
    axis = dimension if axis is None else axis
    made: Tensor = apply_op("ArgMin", name, input=input, dimension=0 if axis is None else axis, output_type=output_type)
    return made


def count_nonzero(input_tensor: Any, axis: Any = None, keepdims: bool = False, dtype: Any = "int64", name: Optional[str] = None) -> Tensor:
    """How many elements are not 0."""
    with name_scope(name, "count_nonzero", [input_tensor]):
        tensor = convert_to_tensor(input_tensor, name="input")
        zero = _array.zeros([], tensor.dtype.base_dtype)
        found = cast(_lookup("not_equal")(tensor, zero), "int64")
        return cast(reduce_sum(found, axis, keepdims=keepdims, name="nonzero_count"), dtype)


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: Optional[str] = None) -> Tensor:
    """The elements, those out of the range at its ends."""
    with name_scope(name, "clip_by_value", [t]) as scope:
        t = convert_to_tensor(t, name="t")
        made: Tensor = _lookup("maximum")(_lookup("minimum")(t, clip_value_max), clip_value_min, name=scope)
        return made


def in_top_k(predictions: Any, targets: Any, k: Any, name: Optional[str] = None) -> Tensor:
    """Whether the target is among the `k` greatest predictions of its row."""
    with name_scope(name, "in_top_k"):
        made: Tensor = apply_op("InTopKV2", name, predictions=predictions, targets=targets, k=k)
        return made


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: Optional[str] = None) -> Tuple[Tensor, Tensor]:
    """The greatest elements of each row, and where they are."""
    made: Tuple[Tensor, Tensor] = apply_op("TopKV2", name, input=input, k=k, sorted=sorted)
    return made


def _operator(name: str, work: Callable[..., Any]) -> None:
    def left(x: Any, y: Any) -> Any:
        with name_scope(None, name, [x, y]) as scope:
            return work(x, convert_to_tensor(y, x.dtype.base_dtype, name="y"), scope)

    def right(y: Any, x: Any) -> Any:
        with name_scope(None, name, [x, y]) as scope:
            return work(convert_to_tensor(x, y.dtype.base_dtype, name="x"), y, scope)

    python = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "truediv", "floordiv": "floordiv", "mod": "mod", "pow": "pow"}
    python.update({"matmul": "matmul", "logical_and": "and", "logical_or": "or"})
    setattr(Tensor, f"__{python[name]}__", left)
    setattr(Tensor, f"__r{python[name]}__", right)


def _op(op: str) -> Callable[..., Any]:
    return lambda x, y, scope: apply_op(op, scope, x=x, y=y)


_operator("add", _op("AddV2"))
_operator("sub", _op("Sub"))
_operator("mul", _op("Mul"))
_operator("truediv", truediv)
_operator("floordiv", _op("FloorDiv"))
_operator("mod", _op("FloorMod"))
_operator("pow", _op("Pow"))
_operator("matmul", lambda x, y, scope: matmul(x, y, name=scope))
_operator("logical_and", _op("LogicalAnd"))
_operator("logical_or", _op("LogicalOr"))
for _method, _of in (("lt", "Less"), ("le", "LessEqual"), ("gt", "Greater"), ("ge", "GreaterEqual")):
    setattr(Tensor, f"__{_method}__", lambda x, y, _of=_of: apply_op(_of, x=x, y=y))
setattr(Tensor, "__neg__", lambda x: apply_op("Neg", x=x))
setattr(Tensor, "__abs__", lambda x: apply_op("Abs", x=x))
setattr(Tensor, "__invert__", lambda x: apply_op("LogicalNot", x=x))
setattr(Tensor, "__getitem__", _array.strided_slice)

NAMED = {
    name: globals()[name]
    for name in (
        "add subtract multiply scalar_mul truediv divide div div_no_nan cast to_float to_double to_int32 to_int64 saturate_cast reduce_sum "
        "reduce_mean reduce_max reduce_min reduce_prod reduce_all reduce_any reduce_logsumexp matmul argmax argmin count_nonzero "
        "clip_by_value in_top_k top_k"
    ).split()
}
NAMED["range"] = range_
_absent = missing("plimsoll.compat.v1.math")


def function(name: str) -> Any:
    """The function of that name in `tf.math` or `tf`; None where there is none."""
    return NAMED[name] if name in NAMED else _lookup(name) if name in _OPERATIONS else None


def names() -> Tuple[str, ...]:
    """The functions of `tf.math`."""
    return (*NAMED, *_OPERATIONS)
