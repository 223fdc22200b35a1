"""What TensorFlow has and this package does not."""

from __future__ import annotations

from typing import Any, Callable


class Missing(NotImplementedError, AttributeError):
    """A function, a class or an option of TensorFlow 1 that is not there: the message is its name."""


def missing(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module: names that are not there raise `Missing`."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        raise Missing(f"{module}.{name}")

    return get


def refuse(what: str, **options: object) -> None:
    """Raises `Missing` for an option that is given and not there."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise Missing(f"plimsoll.compat.v1.{what}: {name}={value!r}")
