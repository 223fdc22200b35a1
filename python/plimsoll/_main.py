"""The `__main__` of the program, in its workers.

As with the spawn method of multiprocessing, a script or a module run with `-m` is run again in the worker under the name
`__mp_main__`, so that what it defines is found there; but only when something is asked of it that did not come by value.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from typing import Any, Optional

Main = tuple[str, str]
"""("module", name), ("file", path), or ("none", "") where it cannot be run again (a notebook, `-c`)."""

running = False
"""Whether this is a worker that runs its program's `__main__` just now."""

_of_program: Optional[Main] = None


def describe() -> Main:
    """The program's `__main__`; in a worker, that of the program at the top."""
    if _of_program is not None:
        return _of_program
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != "__main__":
        return "module", spec.name
    path = getattr(main, "__file__", None)
    if spec is None and path is not None and os.path.isfile(path):
        return "file", os.path.abspath(path)
    return "none", ""


def adopt(main: Main) -> None:
    """In a worker: what `describe` said in its parent."""
    global _of_program
    _of_program = main


def find(name: str) -> Any:
    """In a worker: the object that the program's `__main__` defines under a qualified name. Runs it if that was not done yet."""
    if _of_program is not None and "__mp_main__" not in sys.modules:
        _run(_of_program)
    found: Any = sys.modules["__mp_main__" if _of_program is not None else "__main__"]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _run(main: Main) -> None:
    global running
    kind, where = main
    module = types.ModuleType("__mp_main__")
    if kind == "module":
        spec = importlib.util.find_spec(where)
        if spec is None or spec.loader is None:
            raise ImportError(f"the module {where}, which is the program, is not found in its worker")
        code = spec.loader.get_code(where)  # type: ignore[attr-defined]
        module.__package__ = spec.parent
        module.__file__ = spec.origin
    elif kind == "file":
        with open(where, "rb") as file:
            code = compile(file.read(), where, "exec")
        module.__file__ = where
    else:
        raise AttributeError(
            "functions and classes of a notebook or -c go to a worker by value, for which cloudpickle is needed: pip install cloudpickle"
        )
    before = sys.modules["__main__"]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    running = True
    try:
        exec(code, module.__dict__)
    except BaseException:
        sys.modules["__main__"] = before
        del sys.modules["__mp_main__"]
        raise
    finally:
        running = False
