"""Holds PyTorch, TensorFlow and JAX to a lease, from their import on.

A finder of modules waits for them. Until then it costs a look-up in a dictionary for each import; nothing else is imported. What
happens then is in `pytorch`, `tensorflow` and `jax`; the numbers come from `plimsoll run` by an environment variable (`limits`).
Nothing in here may end a program that would run without it. Types are in quotes: `__future__` would be one more file to read.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Optional

_SELF = sys.modules[__name__]

# Modules, and the actions on them: the module here, and its functions for before the module's code runs and after it has run.
_AWAITED = {
    "torch": ("pytorch", "before", "after"),
    "tensorflow": ("tensorflow", "before", None),
    "tensorflow.python.eager.context": ("tensorflow", None, "after_context"),
    "tensorflow.python.client.session": ("tensorflow", None, "after_session"),
    "jaxlib": ("jax", "before", None),
    "jaxlib.xla_client": ("jax", None, "after"),
}


class Finder:
    """A finder that finds the same as the others, and acts when a module is loaded."""

    is_plimsoll_hook = True

    def find_spec(
        self, name: str, path: "Optional[Sequence[str]]" = None, target: "Optional[ModuleType]" = None
    ) -> "Optional[ModuleSpec]":
        if name not in _AWAITED:
            return None
        for finder in list(sys.meta_path):
            if finder is self or getattr(finder, "is_plimsoll_hook", False) or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                _prepare(name, spec)
                return spec
        return None


def _prepare(name: str, spec: "ModuleSpec") -> None:
    """Has a module's loader do the action, once. The loader stays what it is, and is as it was when the module's code runs:
    programs ask it for resources, compare and pickle it."""
    loader: "Any" = spec.loader
    run: "Any" = getattr(loader, "exec_module", None)
    # A class, and a loader without room, cannot be told: what has a variable is held.
    attributes: "Any" = None if run is None or isinstance(loader, type) else getattr(loader, "__dict__", None)
    if attributes is None:
        _act(name, 1, spec)
        return
    attributes["exec_module"] = _Once(name, spec, run, attributes)


class _Once:
    """A loader's `exec_module`, up to the module's first run."""

    def __init__(self, name: str, spec: "ModuleSpec", run: "Any", attributes: "Any") -> None:
        self.name, self.spec, self.run, self.attributes = name, spec, run, attributes
        self.before = attributes.get("exec_module")

    def __call__(self, module: "ModuleType") -> None:
        # A loader may have other modules, too.
        if getattr(module, "__spec__", None) is not self.spec and getattr(module, "__name__", None) != self.name:
            self.run(module)
            return
        if self.attributes.get("exec_module") is self:
            if self.before is None:
                del self.attributes["exec_module"]
            else:
                self.attributes["exec_module"] = self.before
        _act(self.name, 1, self.spec)
        self.run(module)
        _act(self.name, 2, sys.modules.get(self.name, module))

    def __reduce__(self) -> "Any":
        # A copy of the loader has the function of its class, wherever it is read.
        return getattr, (self.spec.loader, "exec_module")


def _act(name: str, which: int, subject: "Any") -> None:
    here, function = _AWAITED[name][0], _AWAITED[name][which]
    if function is None:
        return
    try:
        # A program may have emptied the table of modules.
        sys.modules.setdefault(__name__, _SELF)
        __import__(__name__ + "." + here)
        getattr(sys.modules[__name__ + "." + here], function)(subject)
    except Exception as error:
        try:
            from . import limits

            limits.warn("%s cannot be held to the lease: %s: %s" % (name, type(error).__name__, error))
        except Exception:
            pass


def install() -> None:
    """Waits for the frameworks from now on, and holds those that are there already."""
    if any(getattr(finder, "is_plimsoll_hook", False) for finder in sys.meta_path):
        return
    finder: "Any" = Finder()
    sys.meta_path.insert(0, finder)
    for name in _AWAITED:
        module = sys.modules.get(name)
        if module is not None:
            spec = getattr(module, "__spec__", None)
            if spec is not None and not getattr(spec, "_initializing", False):
                _act(name, 1, spec)
                _act(name, 2, module)
