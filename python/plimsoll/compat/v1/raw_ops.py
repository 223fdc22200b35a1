"""Every operation of the table as a function of named arguments, as TensorFlow's `tf.raw_ops`.

An operation that has no kernel here can be built, and is refused by name when it is run.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ._op import apply_op, op_def, table

_made: Dict[str, Callable[..., Any]] = {}


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in _made:
        known = op_def(name)
        inputs = {arg.name for arg in known.inputs}

        def function(**arguments: Any) -> Any:
            node = None if "name" in inputs else arguments.pop("name", None)
            for attr in known.attrs.values():
                if not attr.has_default and attr.name not in known.inferred and attr.name not in arguments:
                    raise TypeError(f"{name} is missing the argument '{attr.name}'")
            return apply_op(name, node, **arguments)

        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"TensorFlow's operation {name}: {', '.join([*(arg.name for arg in known.inputs), *known.attrs])}."
        _made[name] = function
    return _made[name]


def __dir__() -> List[str]:
    return sorted(table().operations())
