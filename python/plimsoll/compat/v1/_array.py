"""Placeholders, shapes, and operations that move elements."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import numpy

from ._graph import Tensor, graph_of, name_scope
from ._missing import refuse
from ._op import apply_op, array_of, constant, convert_to_tensor
from ._types import TensorShape, as_dtype


def placeholder(dtype: Any, shape: Any = None, name: Optional[str] = None) -> Tensor:
    """A tensor that is fed."""
    made: Tensor = apply_op("Placeholder", name, dtype=dtype, shape=TensorShape(shape))
    return made


def placeholder_with_default(input: Any, shape: Any, name: Optional[str] = None) -> Tensor:
    """A tensor that may be fed."""
    made: Tensor = apply_op("PlaceholderWithDefault", name, input=input, shape=TensorShape(shape))
    return made


def identity(input: Any, name: Optional[str] = None) -> Any:
    """The tensor itself, under a name of its own."""
    return apply_op("Identity", name, input=input)


def _filled(value: float, what: str, shape: Any, dtype: Any, name: Optional[str]) -> Tensor:
    kind = as_dtype(dtype).base_dtype
    with name_scope(name, what, [shape]) as scope:
        fill: Any = {"string": "", "bool": bool(value)}.get(kind.name, value)
        if not isinstance(shape, Tensor):
            try:
                sizes = TensorShape(shape)
            except TypeError:
                shape = convert_to_tensor(shape, "int32")
            else:
                count = sizes.num_elements()
                if count is not None and count < 1000:
                    return constant(fill, dtype=kind, shape=sizes, name=scope)
                shape = constant(array_of(sizes.as_list(), "int32"), name="shape_as_tensor")
        made: Tensor = apply_op("Fill", scope, dims=shape, value=constant(fill, dtype=kind))
        return made


def zeros(shape: Any, dtype: Any = "float32", name: Optional[str] = None) -> Tensor:
    """A tensor of zeros."""
    return _filled(0, "zeros", shape, dtype, name)


def ones(shape: Any, dtype: Any = "float32", name: Optional[str] = None) -> Tensor:
    """A tensor of ones."""
    return _filled(1, "ones", shape, dtype, name)


def _like(value: int, what: str, tensor: Any, dtype: Any, name: Optional[str]) -> Tensor:
    with name_scope(name, what, [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        kind = tensor.dtype.base_dtype if dtype is None else as_dtype(dtype)
        if value:
            sizes = tensor.shape
            if sizes.is_fully_defined():
                with name_scope("Shape"):
                    dims = constant(array_of(sizes.as_list(), "int32"), "int32", name="shape_as_tensor")
            else:
                dims = shape(tensor)
            return ones(dims, kind, name=scope)
        if tensor.shape.is_fully_defined():
            return zeros(tensor.shape, kind, name=scope)
        if kind == tensor.dtype.base_dtype:
            made: Tensor = apply_op("ZerosLike", scope, x=tensor)
            return made
        return zeros(shape(tensor), kind, name=scope)


def zeros_like(tensor: Any, dtype: Any = None, name: Optional[str] = None, optimize: bool = True) -> Tensor:
    """Zeros in the shape of a tensor."""
    return _like(0, "zeros_like", tensor, dtype, name)


def ones_like(tensor: Any, dtype: Any = None, name: Optional[str] = None, optimize: bool = True) -> Tensor:
    """Ones in the shape of a tensor."""
    return _like(1, "ones_like", tensor, dtype, name)


def fill(dims: Any, value: Any, name: Optional[str] = None) -> Tensor:
    """A tensor whose elements are all this value."""
    made: Tensor = apply_op("Fill", name, dims=dims, value=value)
    return made


def shape(input: Any, name: Optional[str] = None, out_type: Any = "int32") -> Tensor:
    """The shape of a tensor: a constant where it is known."""
    with name_scope(name, "Shape", [input]) as scope:
        tensor = convert_to_tensor(input, name="input")
        if tensor.shape.is_fully_defined():
            return constant(array_of(tensor.shape.as_list(), out_type), as_dtype(out_type), name=scope)
        made: Tensor = apply_op("Shape", scope, input=tensor, out_type=out_type)
        return made


def size(input: Any, name: Optional[str] = None, out_type: Any = "int32") -> Tensor:
    """How many elements a tensor has: a constant where that is known."""
    with name_scope(name, "Size", [input]) as scope:
        tensor = convert_to_tensor(input, name="input")
        count = tensor.shape.num_elements()
        if count is not None:
            return constant(count, out_type, name=scope)
        made: Tensor = apply_op("Size", scope, input=tensor, out_type=out_type)
        return made


def rank(input: Any, name: Optional[str] = None) -> Tensor:
    """How many dimensions a tensor has: a constant where that is known."""
    with name_scope(name, "Rank", [input]) as scope:
        tensor = convert_to_tensor(input, name="input")
        if tensor.shape.ndims is not None:
            return constant(tensor.shape.ndims, "int32", name=scope)
        made: Tensor = apply_op("Rank", scope, input=tensor)
        return made


def reshape(tensor: Any, shape: Any, name: Optional[str] = None) -> Tensor:
    """The elements in another shape, where one size may be -1."""
    made: Tensor = apply_op("Reshape", name, tensor=tensor, shape=shape)
    return made


def expand_dims(input: Any, axis: Any = None, name: Optional[str] = None, dim: Any = None) -> Tensor:
    """A new axis of length 1."""
    made: Tensor = apply_op("ExpandDims", name, input=input, dim=axis if dim is None else dim)
    return made


def squeeze(input: Any, axis: Any = None, name: Optional[str] = None, squeeze_dims: Any = None) -> Tensor:
    """The tensor without its axes of length 1, or without these."""
    axes = axis if squeeze_dims is None else squeeze_dims
    axes = [] if axes is None else [axes] if isinstance(axes, int) else list(axes)
    made: Tensor = apply_op("Squeeze", name, input=input, squeeze_dims=axes)
    return made


def concat(values: Any, axis: Any, name: str = "concat") -> Tensor:
    """Tensors one behind another along an axis."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    if len(values) == 1:
        with name_scope(name):
            convert_to_tensor(axis, name="concat_dim", dtype="int32")
            made: Tensor = identity(values[0], name=name)
            return made
    made = apply_op("ConcatV2", name, values=list(values), axis=axis)
    return made


def stack(values: Any, axis: int = 0, name: str = "stack") -> Tensor:
    """Tensors of one shape along a new axis."""
    if axis == 0 and not any(hasattr(each, "graph") for each in values):
        return convert_to_tensor(list(values), name=name)
    made: Tensor = apply_op("Pack", name, values=list(values), axis=axis)
    return made


def unstack(value: Any, num: Optional[int] = None, axis: int = 0, name: str = "unstack") -> List[Tensor]:
    """A tensor's parts along an axis."""
    value = convert_to_tensor(value)
    if num is None:
        num = value.shape[axis].value
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {value.shape}")
    made: List[Tensor] = apply_op("Unpack", name, value=value, num=num, axis=axis)
    return made


def split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: Optional[int] = None, name: str = "split") -> List[Tensor]:
    """A tensor cut along an axis: into so many equal parts, or parts of these sizes."""
    if isinstance(num_or_size_splits, int):
        made: List[Tensor] = apply_op("Split", name, split_dim=axis, value=value, num_split=num_or_size_splits)
        return made
    sizes = convert_to_tensor(num_or_size_splits)
    if num is None:
        num = sizes.shape[0].value
        if num is None:
            raise ValueError(f"Cannot infer argument `num` from shape {num_or_size_splits}")
    made = apply_op("SplitV", name, value=value, size_splits=sizes, split_dim=axis, num_split=num)
    return made


def transpose(a: Any, perm: Any = None, name: str = "transpose", conjugate: bool = False) -> Tensor:
    """The axes in another order, reversed where none is given."""
    with name_scope(name, "transpose", [a]) as scope:
        a = convert_to_tensor(a, name="a")
        if perm is None:
            if a.shape.ndims is None:
                raise ValueError("the rank of the tensor is not known: say `perm`")
            perm = array_of(list(range(a.shape.ndims))[::-1], "int32")
        made: Tensor = apply_op("ConjugateTranspose" if conjugate else "Transpose", scope, x=a, perm=perm)
        return made


def gather(
    params: Any, indices: Any, validate_indices: Any = None, name: Optional[str] = None, axis: Any = None, batch_dims: int = 0
) -> Tensor:
    """Slices of a tensor by their positions along an axis."""
    refuse("gather", validate_indices=validate_indices)
    with name_scope(name, "GatherV2", [params, indices]) as scope:
        made: Tensor = apply_op("GatherV2", scope, params=params, indices=indices, axis=0 if axis is None else axis, batch_dims=batch_dims)
        return made


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: Optional[int] = None,
    dtype: Any = None,
    name: Optional[str] = None,
) -> Tensor:
    """Vectors with one element on."""
    with name_scope(name, "one_hot", [indices]) as scope:
        kinds = [each.dtype for each in (on_value, off_value) if isinstance(each, Tensor)]
        kind = dtype or (kinds[0] if kinds else None)
        on = None if on_value is None else convert_to_tensor(on_value, kind)
        off = None if off_value is None else convert_to_tensor(off_value, kind)
        kind = kind or next((each.dtype for each in (on, off) if each is not None), "float32")
        on = convert_to_tensor(1, kind, name="on_value") if on is None else on
        off = convert_to_tensor(0, kind, name="off_value") if off is None else off
        made: Tensor = apply_op(
            "OneHot", scope, indices=indices, depth=depth, on_value=on, off_value=off, axis=-1 if axis is None else axis
        )
        return made


def slice_(input_: Any, begin: Any, size: Any, name: Optional[str] = None) -> Tensor:
    """A part of a tensor: from `begin`, so much of each axis (-1: the rest)."""
    made: Tensor = apply_op("Slice", name, input=input_, begin=begin, size=size)
    return made


def pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", name: Optional[str] = None, constant_values: Any = 0) -> Tensor:
    """A tensor with more around it."""
    mode = mode.upper()
    if mode != "CONSTANT":
        made: Tensor = apply_op("MirrorPad", name, input=tensor, paddings=paddings, mode=mode)
    elif not isinstance(constant_values, Tensor) and constant_values == 0:
        made = apply_op("Pad", name, input=tensor, paddings=paddings)
    else:
        made = apply_op("PadV2", name, input=tensor, paddings=paddings, constant_values=constant_values)
    return made


def where(condition: Any, x: Any = None, y: Any = None, name: Optional[str] = None) -> Tensor:
    """The positions where a condition holds; or elements of `x` there and of `y` elsewhere."""
    if x is None and y is None:
        made: Tensor = apply_op("Where", name, input=condition)
        return made
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    made = apply_op("Select", name, condition=condition, t=x, e=y)
    return made


def strided_slice(tensor: Tensor, key: Any) -> Tensor:
    """NumPy's indexing: numbers, slices, `...` and None."""
    keys = list(key) if isinstance(key, tuple) else [key]
    begin: List[Any] = []
    end: List[Any] = []
    steps: List[int] = []
    masks = dict.fromkeys(("begin_mask", "end_mask", "shrink_axis_mask", "new_axis_mask", "ellipsis_mask"), 0)
    for index, each in enumerate(keys):
        if isinstance(each, slice):
            masks["begin_mask"] |= (each.start is None) << index
            masks["end_mask"] |= (each.stop is None) << index
            begin.append(0 if each.start is None else each.start)
            end.append(0 if each.stop is None else each.stop)
            steps.append(1 if each.step is None else each.step)
        elif each is Ellipsis or each is None:
            masks["ellipsis_mask" if each is Ellipsis else "new_axis_mask"] |= 1 << index
            begin.append(0)
            end.append(0)
            steps.append(1)
        else:
            if not isinstance(each, Tensor) and not hasattr(each, "__index__"):
                raise TypeError(f"Only integers, slices (`:`), ellipsis (`...`) and None are valid indices, got {each!r}")
            masks["shrink_axis_mask"] |= 1 << index
            begin.append(each if isinstance(each, Tensor) else int(each))
            end.append(each + 1 if isinstance(each, Tensor) else int(each) + 1)
            steps.append(1)
    with graph_of([tensor]).as_default(), name_scope(None, "strided_slice") as scope:
        if any(isinstance(each, Tensor) for each in begin + end):
            ends: Sequence[Any] = (stack(begin, name="stack"), stack(end, name="stack_1"), stack(steps, name="stack_2"))
        else:
            named = (("stack", begin), ("stack_1", end), ("stack_2", steps))
            ends = [constant(numpy.array(values, numpy.int32), name=name) for name, values in named]
        made: Tensor = apply_op("StridedSlice", scope, input=tensor, begin=ends[0], end=ends[1], strides=ends[2], **masks)
        return made


def stop_gradient(input: Any, name: Optional[str] = None) -> Tensor:
    """The tensor itself; no gradient goes through."""
    made: Tensor = apply_op("StopGradient", name, input=input)
    return made


def get_static_value(tensor: Any, partial: bool = False) -> Any:
    """The elements of a tensor where they are known before it is run; else None."""
    tensor = convert_to_tensor(tensor)
    return tensor.graph._builder.value(tensor._key)
