"""Functions by value, for where cloudpickle is not installed: lambdas, closures, and functions of a notebook.

What goes is the code, the defaults, the values of the closure, and those globals that the code names. Classes that cannot be
imported do not go; that takes cloudpickle.
"""

from __future__ import annotations

import marshal
import types
from collections.abc import Iterator
from typing import Any

Reduced = tuple[Any, ...]


def reduce_function(function: types.FunctionType, shared: dict[str, Any]) -> Reduced:
    """For `reducer_override`. `shared` is an empty dictionary, the same for all functions of one pickle that share globals."""
    code = function.__code__
    named = {name: function.__globals__[name] for name in _names(code) if name in function.__globals__}
    for name in ("__name__", "__package__"):
        if name in function.__globals__:
            named.setdefault(name, function.__globals__[name])
    state = {
        "globals": named,
        "closure": [_content(cell) for cell in function.__closure__ or ()],
        "defaults": function.__defaults__,
        "kwdefaults": function.__kwdefaults__,
        "dict": function.__dict__,
        "module": function.__module__,
        "qualname": function.__qualname__,
        "doc": function.__doc__,
    }
    made = (marshal.dumps(code), shared, len(code.co_freevars))
    return _make, made, state, None, None, _fill


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # not set yet
        return ()


def _make(code: bytes, shared: dict[str, Any], cells: int) -> types.FunctionType:
    shared.setdefault("__builtins__", __builtins__)
    return types.FunctionType(marshal.loads(code), shared, closure=tuple(types.CellType() for _ in range(cells)))


def _fill(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__globals__.update(state["globals"])
    for cell, content in zip(function.__closure__ or (), state["closure"]):
        if content:
            cell.cell_contents = content[0]
    function.__defaults__ = state["defaults"]
    function.__kwdefaults__ = state["kwdefaults"]
    function.__dict__.update(state["dict"])
    function.__module__ = state["module"]
    function.__qualname__ = state["qualname"]
    function.__doc__ = state["doc"]
