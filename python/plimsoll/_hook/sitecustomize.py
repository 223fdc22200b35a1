"""Puts the hook for PyTorch, TensorFlow and JAX to work, and then runs the `sitecustomize` that this one hides.

Python imports this when it starts, whatever its version is: the text is Python 2 and 3.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))

if sys.version_info >= (3, 7) and os.environ.get("PLIMSOLL_HOOK") != "0":
    try:
        import plimsoll_hook  # type: ignore[import-not-found,unused-ignore]

        plimsoll_hook.install()
    except Exception:  # a program starts, also where the hook fails
        pass

# The next one, as if this one were not there. Where there is none, Python is told so by the exception, as it would be without us; what
# it raises is its own. Afterwards the folder is where it was: a program may hand on its path.
_AT = [_number for _number, _entry in enumerate(sys.path) if _entry and os.path.abspath(_entry) == _HERE]
_BEFORE = [sys.path[_number] for _number in _AT]
for _number in reversed(_AT):
    del sys.path[_number]
_THIS = sys.modules.pop("sitecustomize", None)  # kept: Python 2 empties a module that nothing refers to
try:
    import sitecustomize  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
finally:
    for _number, _entry in zip(_AT, _BEFORE):
        sys.path.insert(_number, _entry)
