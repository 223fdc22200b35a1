"""Nodes from the table of operations: values become constants, types follow, attributes have their defaults."""

from __future__ import annotations

import inspect
import math
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy

from ... import _native
from ._graph import Graph, Operation, Tensor, get_default_graph, graph_of
from ._missing import Missing
from ._types import DType, TensorShape, as_dtype


class Arg(NamedTuple):
    """An input or output of an operation: see `_native.Builder.op_def`."""

    name: str
    type: int
    type_attr: str
    number_attr: str
    type_list_attr: str
    is_ref: bool

    @property
    def is_list(self) -> bool:
        return bool(self.number_attr or self.type_list_attr)


class Attr(NamedTuple):
    """An attribute of an operation."""

    name: str
    kind: str
    has_default: bool
    default: Any


class OpDef(NamedTuple):
    """An operation of the table."""

    name: str
    inputs: List[Arg]
    outputs: List[Arg]
    attrs: Dict[str, Attr]

    @property
    def inferred(self) -> List[str]:
        """The attributes that follow from inputs."""
        return [name for arg in self.inputs for name in (arg.type_attr, arg.number_attr, arg.type_list_attr) if name]


_defs: Dict[str, OpDef] = {}
_table: List[_native.Builder] = []


def table() -> _native.Builder:
    """The table of operations."""
    if not _table:
        _table.append(_native.Builder())
    return _table[0]


def op_def(op: str) -> OpDef:
    """An operation of the table. Missing (NotImplementedError) for one that TensorFlow does not have."""
    if op not in _defs:
        found = table().op_def(op)
        if found is None:
            raise Missing(f"plimsoll.compat.v1.raw_ops.{op}")
        inputs, outputs, attrs = found
        _defs[op] = OpDef(op, [Arg(*arg) for arg in inputs], [Arg(*arg) for arg in outputs], {attr[0]: Attr(*attr) for attr in attrs})
    return _defs[op]


def array_of(value: Any, dtype: Any = None) -> Any:
    """A value as an array of this type, or of the type that TensorFlow gives it: floats are float32, integers int32 where they fit."""
    wanted = None if dtype is None else as_dtype(dtype).base_dtype
    if isinstance(value, TensorShape):
        value = [-1 if size is None else size for size in value.as_list()]
    elif isinstance(value, (list, tuple)):
        value = [-1 if type(each).__name__ == "Dimension" and each.value is None else each for each in value]
    if wanted is not None and wanted.name == "string":
        return numpy.array(value, dtype=object)
    found = value if isinstance(value, (numpy.ndarray, numpy.generic)) else numpy.array(value)
    if found.dtype.kind == "O":
        found = numpy.array(value, dtype=int if _all_ints(value) else object)
    if wanted is None:
        if not isinstance(value, (numpy.ndarray, numpy.generic)):
            if found.dtype == numpy.float64:
                found = found.astype(numpy.float32)
            elif found.dtype == numpy.int64 and (found.size == 0 or (numpy.abs(found) < 2**31).all()):
                found = found.astype(numpy.float32 if found.size == 0 and not _has_ints(value) else numpy.int32)
        return numpy.array(found, dtype=object if found.dtype.kind in "SU" else None)
    if found.dtype.kind in "SU" or (found.dtype.kind == "f" and wanted.is_integer and not isinstance(value, numpy.ndarray)):
        raise TypeError(f"Expected {wanted.name}, but got {value!r} of type '{type(value).__name__}'.")
    if found.dtype.kind == "b" and not wanted.is_bool and not isinstance(value, numpy.ndarray):
        raise TypeError(f"Expected {wanted.name}, but got {value!r} of type 'bool'.")
    return numpy.array(found, dtype=wanted.as_numpy_dtype)


def _all_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(hasattr(each, "__index__") for each in value)


def _has_ints(value: Any) -> bool:
    return not isinstance(value, (list, tuple))


def constant(value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False) -> Tensor:
    """A constant tensor; `shape` repeats a value. TypeError for elements of another type."""
    array = array_of(value, dtype)
    if shape is not None:
        sizes: Any = TensorShape(shape).as_list()
        count = math.prod(sizes)
        if verify_shape and list(array.shape) != sizes:
            raise TypeError(f"Expected Tensor's shape: {tuple(sizes)}, got {array.shape}.")
        if array.size > count:
            raise ValueError(f"Too many elements provided. Needed at most {count}, but received {array.size}")
        if array.size == count:
            array = array.reshape(sizes)
        else:
            flat = numpy.empty(count, array.dtype)
            flat[: array.size] = array.ravel()
            flat[array.size :] = array.ravel()[-1]
            array = flat.reshape(sizes)
    kind = as_dtype(array.dtype) if dtype is None else as_dtype(dtype).base_dtype
    attrs = {"dtype": kind.as_datatype_enum, "value": array}
    return get_default_graph().add("Const", name, [], attrs).outputs[0]


def convert_to_tensor(
    value: Any, dtype: Any = None, name: Optional[str] = None, preferred_dtype: Any = None, as_ref: bool = False
) -> Tensor:
    """A tensor for a tensor, a variable, or what NumPy makes an array of. TypeError or ValueError for another type."""
    convert = getattr(value, "_to_tensor", None)
    if convert is not None:
        value = convert(as_ref)
    if isinstance(value, Tensor):
        if dtype is not None and not as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {as_dtype(dtype).name} for Tensor with dtype {value.dtype.name}: {value!r}"
            )
        return value
    if isinstance(value, Operation):
        raise TypeError(f"Can't convert Operation '{value.name}' to Tensor")
    if value is None:
        raise ValueError("None values not supported.")
    if isinstance(value, (list, tuple)) and any(isinstance(each, Tensor) or hasattr(each, "_to_tensor") for each in value):
        from ._array import stack

        kinds = [each.dtype.base_dtype for each in value if hasattr(each, "dtype")]
        return stack([convert_to_tensor(each, dtype or kinds[0]) for each in value], name=name or "packed")
    if dtype is None and preferred_dtype is not None:
        try:
            return constant(value, preferred_dtype, name=name or "Const")
        except (TypeError, ValueError):
            pass
    return constant(value, dtype, name=name or "Const")


def attr_value(attr: Attr, value: Any) -> Any:
    """An attribute as the builder takes it."""
    if attr.kind == "type":
        return as_dtype(value).base_dtype.as_datatype_enum
    if attr.kind == "list(type)":
        return [as_dtype(each).base_dtype.as_datatype_enum for each in value]
    if attr.kind == "shape":
        return _dims(value)
    if attr.kind == "list(shape)":
        return [_dims(each) for each in value]
    if attr.kind == "tensor":
        return array_of(value)
    if attr.kind == "float":
        return float(value)
    if attr.kind == "int":
        return int(value)
    if attr.kind == "list(int)":
        return [int(each) for each in value]
    return value


def _dims(shape: Any) -> Optional[List[Optional[int]]]:
    found = TensorShape(shape)
    return found.as_list() if found else None


Made = Union[Operation, Tensor, List[Tensor], Tuple[Any, ...]]


def apply_op(op: str, name: Optional[str] = None, /, **given: Any) -> Any:
    """Adds a node: inputs and attributes by the names of the table. Its outputs: a tensor, a list, or a named tuple; the node itself where
    it has none.

    TypeError for types that do not fit each other, ValueError for shapes.
    """
    known = op_def(op)
    flat = [each for value in given.values() for each in (value if isinstance(value, (list, tuple)) else [value])]
    graph = graph_of([getattr(each, "_snapshot", each) for each in flat])
    attrs = {key: given.pop(key) for key in list(given) if key in known.attrs and not any(arg.name == key for arg in known.inputs)}
    types = {key: as_dtype(value).base_dtype for key, value in attrs.items() if known.attrs[key].kind == "type" and value is not None}
    attrs = {key: attr_value(known.attrs[key], value) for key, value in attrs.items() if value is not None}
    with graph.as_default(), graph.name_scope(name or op) as scope:
        inputs: List[Tensor] = []
        for arg in known.inputs:
            if arg.name not in given:
                raise TypeError(f"No argument for input {arg.name} found in {op}")
            inputs.extend(_input(known, arg, given.pop(arg.name), types, attrs))
        if given:
            raise TypeError(f"{op} got unexpected keyword arguments: {', '.join(given)}")
        made = graph.add(op, scope, inputs, attrs)
    return outputs_of(known, made)


def _input(op: OpDef, arg: Arg, value: Any, types: Dict[str, DType], attrs: Dict[str, Any]) -> List[Tensor]:
    if arg.is_list:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"Expected list for '{arg.name}' argument to '{op.name}' Op, not {value!r}.")
        if arg.number_attr:
            attrs.setdefault(arg.number_attr, len(value))
        values = list(value)
    else:
        values = [value]
    dtype: Optional[DType] = as_dtype(arg.type) if arg.type else types.get(arg.type_attr)
    default = op.attrs[arg.type_attr].default if arg.type_attr and op.attrs[arg.type_attr].has_default else None
    if dtype is None and arg.is_list and not arg.type_list_attr:
        dtype = next((each.dtype.base_dtype for each in values if isinstance(getattr(each, "dtype", None), DType)), None)
    made: List[Tensor] = []
    for index, each in enumerate(values):
        name = f"{arg.name}_{index}" if arg.is_list else arg.name
        kind = getattr(each, "dtype", None)
        if dtype is not None and isinstance(kind, DType) and kind.base_dtype != dtype.base_dtype:
            other = next((a.name for a in op.inputs if a.type_attr == arg.type_attr and a is not arg), None) if arg.type_attr else None
            like = (
                f" that does not match type {dtype.name} of argument '{other}'"
                if other
                else f" that does not match expected type of {dtype.name}"
            )
            raise TypeError(f"Input '{arg.name}' of '{op.name}' Op has type {kind.base_dtype.name}{like}.")
        tensor = convert_to_tensor(each, dtype, name, default, as_ref=arg.is_ref)
        if arg.is_ref and not tensor.dtype._is_ref_dtype:
            raise TypeError(f"'{op.name}' Op requires that input '{arg.name}' be a mutable tensor (e.g.: a tf.Variable)")
        if not arg.type_list_attr:
            dtype = dtype or tensor.dtype.base_dtype
        made.append(tensor)
    if arg.type_attr and dtype is not None:
        types.setdefault(arg.type_attr, dtype)
        attrs.setdefault(arg.type_attr, dtype.base_dtype.as_datatype_enum)
    return made


def outputs_of(op: OpDef, made: Operation) -> Any:
    """A node's outputs as its operation has them."""
    if not op.outputs:
        return made
    parts: List[Any] = []
    rest = list(made.outputs)
    for arg in op.outputs:
        if not arg.is_list:
            parts.append(rest.pop(0))
            continue
        attr = made.graph._builder.attrs(made._number)[arg.number_attr or arg.type_list_attr]
        count = attr if arg.number_attr else len(attr)
        parts.append(rest[:count])
        rest = rest[count:]
    if len(parts) == 1:
        return parts[0]
    return tuple(parts)


def generated(op: str, renamed: Optional[Dict[str, str]] = None, default_name: Optional[str] = None) -> Callable[..., Any]:
    """The function of an operation: its inputs, then its attributes that do not follow, then `name`. `renamed` are the names that
    TensorFlow's Python function has for them."""
    renamed = renamed or {}
    known = op_def(op)
    inferred = known.inferred
    parameters = [inspect.Parameter(renamed.get(arg.name, arg.name), inspect.Parameter.POSITIONAL_OR_KEYWORD) for arg in known.inputs]
    free = [attr for attr in known.attrs.values() if attr.name not in inferred]
    for attr in sorted(free, key=lambda attr: attr.has_default):
        default = attr.default if attr.has_default else inspect.Parameter.empty
        parameters.append(inspect.Parameter(renamed.get(attr.name, attr.name), inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    parameters.append(inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None))
    signature = inspect.Signature(parameters)
    back = {shown: name for name, shown in renamed.items()}

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs).arguments
        name = bound.pop("name", None)
        return apply_op(op, name or default_name, **{back.get(key, key): value for key, value in bound.items()})

    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"TensorFlow's operation {op}."
    return function


__all__: Sequence[str] = ["Graph", "apply_op", "constant", "convert_to_tensor", "generated"]
