"""Conditions and loops, in TensorFlow 1's nodes: Switch and Merge, and the frames of Enter, NextIteration and Exit."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from . import _array
from ._graph import Graph, Operation, Tensor, get_default_graph, name_scope
from ._math import function
from ._missing import refuse
from ._op import apply_op, constant, convert_to_tensor
from ._types import TensorShape


class Context:
    """The nodes of a side of a condition, or of a loop. A tensor from outside is brought in by a node of its own, once."""

    def __init__(self, graph: Graph, pivot: Operation) -> None:
        self.pivot = pivot
        self._graph = graph
        self._around: Optional[Context] = graph._context
        self._inside: set[int] = set()
        self._brought: Dict[Tuple[int, int], Tensor] = {}

    def bring(self, tensor: Tensor) -> Tensor:
        """The tensor in here, by a node that is made around here."""
        raise NotImplementedError

    def take(self, tensor: Tensor) -> Tensor:
        """The tensor, as nodes in here may read it."""
        if tensor.op._number in self._inside:
            return tensor
        if tensor._key not in self._brought:
            outer = tensor if self._around is None else self._around.take(tensor)
            with _outside(self._graph, self._around):
                made = self._brought[tensor._key] = self.bring(outer)
            self._inside.add(made.op._number)
        return self._brought[tensor._key]

    def note(self, op: Operation) -> None:
        """A node that was made in here."""
        self._inside.add(op._number)
        if self._around is not None:
            self._around.note(op)

    def entered(self) -> Any:
        """Nodes are made in here."""
        raise NotImplementedError


@contextlib.contextmanager
def _outside(graph: Graph, context: Optional[Context]) -> Iterator[None]:
    before, graph._context = graph._context, context
    graph._builder.enter_control_dependencies(None)
    try:
        yield
    finally:
        graph._builder.leave()
        graph._context = before


class _Side(Context):
    """A side of a condition."""

    def __init__(self, graph: Graph, pivot: Operation, predicate: Tensor, branch: int) -> None:
        super().__init__(graph, pivot)
        self._predicate, self._branch = predicate, branch

    def bring(self, tensor: Tensor) -> Tensor:
        op = "RefSwitch" if tensor.dtype._is_ref_dtype else "Switch"
        with self._graph.colocate_with(tensor.op, ignore_existing=True):
            made: Tensor = apply_op(op, "Switch", data=tensor, pred=self._predicate)[self._branch]
        return made

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        before, self._graph._context = self._graph._context, self
        try:
            yield
        finally:
            self._graph._context = before

    def build(self, work: Callable[[], Any]) -> Tuple[Any, List[Tensor]]:
        """What the function returns, and its tensors on this side."""
        with self.entered():
            made = work()
            return made, [self._result(each) for each in _flat(made)]

    def _result(self, value: Any) -> Tensor:
        if isinstance(value, Operation):
            with self._graph.control_dependencies([value]):
                return _array.identity(self.pivot.outputs[0], name="control_dependency")
        return self.take(convert_to_tensor(value))


class _Loop(Context):
    """A loop: its frame."""

    def __init__(self, graph: Graph, pivot: Operation, frame: str, parallel_iterations: int) -> None:
        super().__init__(graph, pivot)
        self.frame, self.parallel_iterations = frame, parallel_iterations

    def bring(self, tensor: Tensor) -> Tensor:
        return self.enter(tensor, True)

    def entered(self) -> Any:
        # What nodes would run after out there has run before its variables come in.
        return _outside(self._graph, self)

    def enter(self, tensor: Tensor, is_constant: bool) -> Tensor:
        """A tensor that every iteration reads, or the first value of one that goes from one to the next."""
        made: Tensor = apply_op(
            "Enter", None, data=tensor, frame_name=self.frame, is_constant=is_constant, parallel_iterations=self.parallel_iterations
        )
        return made


def cond(
    pred: Any, true_fn: Optional[Callable[[], Any]] = None, false_fn: Optional[Callable[[], Any]] = None, strict: bool = False,
    name: Optional[str] = None, fn1: Optional[Callable[[], Any]] = None, fn2: Optional[Callable[[], Any]] = None,
) -> Any:  # fmt: skip
    """What `true_fn` returns where the predicate is true, else what `false_fn` does: only that side runs. Both return the same structure
    and types. TypeError and ValueError where they do not."""
    true_fn, false_fn = true_fn or fn1, false_fn or fn2
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError("cond(): true_fn and false_fn must be callable.")
    if isinstance(pred, bool):
        raise TypeError("pred must not be a Python bool")
    with name_scope(name, "cond", [pred]):
        graph = get_default_graph()
        pred = convert_to_tensor(pred, "bool")
        no, yes = apply_op("Switch", None, data=pred, pred=pred)
        yes, no = _array.identity(yes, name="switch_t"), _array.identity(no, name="switch_f")
        pred = _array.identity(pred, name="pred_id")
        shown, on_true = _Side(graph, yes.op, pred, 1).build(true_fn)
        other, on_false = _Side(graph, no.op, pred, 0).build(false_fn)
        if _shape_of(shown) != _shape_of(other):
            raise TypeError(f"Incompatible return types of true_fn and false_fn: {shown!r} and {other!r}")
        if not on_true:
            raise ValueError("true_fn and false_fn must return at least one result.")
        merged = []
        for true, false in zip(on_true, on_false):
            if true.dtype.base_dtype != false.dtype.base_dtype:
                kinds = f"{true.dtype.base_dtype.name}, {false.dtype.base_dtype.name}"
                raise ValueError(f"Outputs of true_fn and false_fn must have the same type(s). Received {kinds} for {true!r} and {false!r}.")
            op = "RefMerge" if true.dtype._is_ref_dtype and false.dtype._is_ref_dtype else "Merge"
            merged.append(apply_op(op, "Merge", inputs=[false, true])[0])
        made = _packed(shown, iter(merged))
        is_single = not strict and isinstance(made, (list, tuple)) and len(made) == 1
        return made[0] if is_single else made


def case(pred_fn_pairs: Any, default: Optional[Callable[[], Any]] = None, exclusive: bool = False, strict: bool = False, name: str = "case") -> Any:
    """What the function behind the first predicate that is true returns, else what `default` does."""
    refuse("case", exclusive=exclusive)
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, dict) else pred_fn_pairs)
    if default is None:
        if not pairs:
            raise ValueError("case needs a pair or a default")
        default = pairs.pop()[1]
    with name_scope(name, None):
        for predicate, work in reversed(pairs):
            default = _choice(predicate, work, default, strict)
        return default()


def _choice(predicate: Any, work: Callable[[], Any], rest: Callable[[], Any], strict: bool) -> Callable[[], Any]:
    return lambda: cond(predicate, work, rest, strict=strict)


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: Optional[str] = None,
    maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:
    """Calls `body` for the loop's variables, and takes what it returns for the next iteration, while `cond` of them is true.

    Sizes stay as they are from one iteration to the next. There are no gradients through it, whatever `back_prop` says
    (UnimplementedError). `swap_memory` is decided by the plan.
    """
    if not callable(cond) or not callable(body):
        raise TypeError("'cond' and 'body' must be callable.")
    if not isinstance(loop_vars, (list, tuple)):
        raise TypeError("'loop_vars' must be a list or tuple")
    if not loop_vars:
        raise ValueError("'loop_vars' must be provided.")
    if parallel_iterations < 1:
        raise TypeError("'parallel_iterations' must be a positive integer.")
    for invariant, each in zip(_flat(shape_invariants or []), _flat(loop_vars)):
        if TensorShape(invariant).as_list() != convert_to_tensor(each).shape.as_list():
            refuse("while_loop", shape_invariants=shape_invariants)
    if maximum_iterations is not None:
        most, inner, step = maximum_iterations, cond, body
        made = while_loop(
            lambda count, values: function("logical_and")(function("less")(count, most), inner(*values)),
            lambda count, values: (count + 1, _as_list(step(*values), values)),
            [constant(0), list(loop_vars)],
            None,
            parallel_iterations,
            name=name,
        )[1]
        return made[0] if len(made) == 1 and not return_same_structure else _like(loop_vars, made)
    with name_scope(name, "while", _flat(loop_vars)):
        graph = get_default_graph()
        firsts = [convert_to_tensor(each) for each in _flat(loop_vars)]
        frame = graph.unique_name("while_context")
        # Its pivot is there when the first variable is.
        loop = _Loop(graph, firsts[0].op, frame, parallel_iterations)
        entered = [loop.enter(first, False) for first in firsts]
        merged: List[Tensor] = []
        for enter in entered:
            with _outside(graph, None):
                merged.append(apply_op("Merge", None, inputs=[enter, enter])[0])
        for tensor in merged:
            loop.note(tensor.op)
        loop.pivot = merged[0].op
        with loop.entered():
            goes_on = apply_op("LoopCond", None, input=convert_to_tensor(cond(*_packed(loop_vars, iter(merged))), "bool"))
            sides = []
            for tensor in merged:
                with graph.colocate_with(tensor.op, ignore_existing=True):
                    sides.append(apply_op("Switch", None, data=tensor, pred=goes_on))
            values = [_array.identity(side[1]) for side in sides]
            loop.pivot = values[0].op
            made = _as_list(body(*_packed(loop_vars, iter(values))), loop_vars)
            if _shape_of(made) != _shape_of(list(loop_vars)):
                raise ValueError(f"The two structures don't have the same nested structure: {loop_vars!r} and {made!r}")
            for merge, each in zip(merged, _flat(made)):
                value = convert_to_tensor(each, merge.dtype.base_dtype)
                following: Tensor = apply_op("NextIteration", None, data=value)
                graph._close_loop(merge.op, following.op)
            left = [apply_op("Exit", None, data=side[0]) for side in sides]
        out = _packed(list(loop_vars), iter(left))
        return out[0] if len(out) == 1 and not return_same_structure else _like(loop_vars, out)


def _as_list(value: Any, like: Sequence[Any]) -> List[Any]:
    return list(value) if isinstance(value, (list, tuple)) and not (len(like) == 1 and isinstance(like[0], (list, tuple))) else [value]


def _like(given: Any, values: List[Any]) -> Any:
    return type(given)(*values) if hasattr(given, "_fields") else type(given)(values)


def _flat(structure: Any) -> List[Any]:
    if structure is None:
        return []
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in _flat(structure[key])]
    if isinstance(structure, (list, tuple)):
        return [leaf for each in structure for leaf in _flat(each)]
    return [structure]


def _shape_of(structure: Any) -> Any:
    """The structure without its leaves."""
    if isinstance(structure, dict):
        return {key: _shape_of(value) for key, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        return [_shape_of(each) for each in structure]
    return structure is None


def _packed(structure: Any, leaves: Iterator[Any]) -> Any:
    """The structure with other leaves."""
    if isinstance(structure, dict):
        made = {key: _packed(structure[key], leaves) for key in sorted(structure)}
        return {key: made[key] for key in structure}
    if isinstance(structure, (list, tuple)):
        return _like(structure, [_packed(each, leaves) for each in structure])
    return None if structure is None else next(leaves)
