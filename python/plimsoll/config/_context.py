"""The settings of this process, which every session without a `config` of its own goes by."""

from __future__ import annotations

import functools
import os
import threading
from typing import Any, Callable, Optional, TypeVar

from .. import _native, errors

_F = TypeVar("_F", bound=Callable[..., Any])


class Context:
    """Settings, and the devices that they make, opened when they are first needed."""

    def __init__(self) -> None:
        self.variables = _variables()
        self.settings = _native.Config()
        self.is_set = False
        """Whether the program has set anything: until then the settings follow the process's environment."""


_lock = threading.RLock()
_context: Optional[Context] = None


def _variables() -> dict[str, Optional[str]]:
    """The variables that decide about devices, as under a lease."""
    return {name: os.environ.get(name) for name in _native.ENVIRONMENT}


def context() -> Context:
    """The settings of this process. A lease that is taken or returned begins new ones, where the program has set nothing."""
    global _context
    with _lock:
        if _context is None or (not _context.is_set and _context.variables != _variables()):
            _context = Context()
        return _context


def settings(is_set: bool = False) -> _native.Config:
    """The settings; `is_set` for calls that change them."""
    now = context()
    now.is_set = now.is_set or is_set
    return now.settings


def reset() -> None:
    """Begins new settings, in which nothing is set. Sessions that are open keep their devices."""
    global _context, _lock
    _lock = threading.RLock()
    _context = None


# A forked child has its parent's memory, and not its threads: it opens devices of its own.
os.register_at_fork(after_in_child=reset)


def checked(function: _F) -> _F:
    """TensorFlow's exceptions: ValueError for arguments, RuntimeError for a call that comes too late."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except errors.FailedPreconditionError as error:
            raise RuntimeError(str(error)) from None
        except errors.InvalidArgumentError as error:
            raise ValueError(str(error)) from None

    return call  # type: ignore[return-value]
