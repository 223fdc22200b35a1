"""Gradients, by the rules of the operations."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple

from . import _array, _math, nn
from ._array import identity
from ._graph import Tensor, name_scope
from ._missing import refuse
from ._op import constant, convert_to_tensor


def _flat(values: Any) -> List[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = "none",
) -> List[Optional[Tensor]]:
    """The gradients of the sum of `ys` for each of `xs`; None where no y depends on an x.

    Each node goes to the device of the node that it is the gradient of, with `colocate_gradients_with_ops` and without.
    UnimplementedError, which is a NotImplementedError, where an operation in between has no gradient here.
    """
    refuse("gradients", aggregation_method=aggregation_method, stop_gradients=stop_gradients)
    refuse("gradients", name=None if name == "gradients" else name)
    refuse("gradients", unconnected_gradients=None if str(unconnected_gradients) == "none" else unconnected_gradients)
    y_tensors = [convert_to_tensor(y, name="y") for y in _flat(ys)]
    x_tensors = [convert_to_tensor(x, name="x", as_ref=True) for x in _flat(xs)]
    given = (
        [None] * len(y_tensors) if grad_ys is None else [None if g is None else convert_to_tensor(g, name="grad_y") for g in _flat(grad_ys)]
    )
    if not y_tensors:
        return [None] * len(x_tensors)
    graph = y_tensors[0].graph
    made = graph._builder.gradients(
        [y._key for y in y_tensors], [None if g is None else g._key for g in given], [x._key for x in x_tensors], gate_gradients
    )
    return [None if key is None else graph._op(key[0]).outputs[key[1]] for key in made]


def global_norm(t_list: Sequence[Any], name: Optional[str] = None) -> Tensor:
    """The norm of all tensors together."""
    with name_scope(name, "global_norm", list(t_list)):
        halves = [nn.l2_loss(tensor) for tensor in t_list if tensor is not None]
        half = _math.reduce_sum(_array.stack(halves))
        two = constant(2.0, half.dtype)
        made: Tensor = _math.function("sqrt")(half * two, name="global_norm")
        return made


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None, name: Optional[str] = None
) -> Tuple[List[Any], Tensor]:
    """The tensors, made smaller by one factor where their norm together is above `clip_norm`; and that norm."""
    norm = global_norm(t_list) if use_norm is None else use_norm
    minimum = _math.function("minimum")
    with name_scope(name, "clip_by_global_norm", list(t_list)):
        scale = clip_norm * minimum(constant(1.0, norm.dtype) / norm, constant(1.0, norm.dtype) / clip_norm)
        return [None if tensor is None else identity(convert_to_tensor(tensor) * scale) for tensor in t_list], norm


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: Optional[str] = None) -> Tensor:
    """The tensor, made smaller where its norm is above `clip_norm`."""
    with name_scope(name, "clip_by_norm", [t]) as scope:
        values = convert_to_tensor(t, name="t")
        norm = _math.function("sqrt")(_math.reduce_sum(values * values, axes, keepdims=True))
        made: Tensor = identity(values * clip_norm / _math.function("maximum")(norm, clip_norm), name=scope)
        return made
