"""JAX: a share of the card, by its variables, and by the options that it makes of them."""

from __future__ import annotations

import functools
import os
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import limits

_OLD, _NEW = "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"
_ALLOCATORS = ("", "default", "bfc")
"""Those that have a limit."""


def before(spec: ModuleSpec) -> None:
    """Before JAX is imported."""
    _hold_variables()


def after(module: ModuleType) -> None:
    """Of `jaxlib.xla_client`: makes the options from the variables when the first device is opened, which is later."""
    original: Any = getattr(module, "generate_pjrt_gpu_plugin_options", None)
    if original is None or hasattr(original, "__plimsoll__"):
        return

    @functools.wraps(original)
    def generate_pjrt_gpu_plugin_options(*args: Any, **kwargs: Any) -> Any:
        _hold_variables()
        options = original(*args, **kwargs)
        return _held(options)

    generate_pjrt_gpu_plugin_options.__plimsoll__ = True  # type: ignore[attr-defined]
    setattr(module, original.__name__, generate_pjrt_gpu_plugin_options)


def _held(options: Any) -> Any:
    """The options that a device is opened with."""
    share = limits.of("jax")
    if share is None or not isinstance(options, dict):
        return options
    fraction = options.get("memory_fraction")
    if not isinstance(fraction, (int, float)) or not 0 < fraction <= share.fraction:
        options["memory_fraction"] = share.fraction
    options.setdefault("preallocate", False)
    if options.get("allocator", "default") not in _ALLOCATORS:
        options["allocator"] = "default"
    return options


def _hold_variables() -> None:
    share = limits.of("jax")
    if share is None:
        return
    ours = "%.4f" % share.fraction
    if limits.is_true("TF_FORCE_UNIFIED_MEMORY"):
        limits.drop("TF_FORCE_UNIFIED_MEMORY", "JAX keeps to no limit with it")
    if os.environ.get("XLA_PYTHON_CLIENT_ALLOCATOR", "").lower() not in _ALLOCATORS:
        limits.drop("XLA_PYTHON_CLIENT_ALLOCATOR", "JAX keeps to no limit with it")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # JAX ends where both are set, and the program cannot know that one was.
    if os.environ.get(_NEW) and _is_ours(os.environ.get(_OLD)):
        del os.environ[_OLD]
    for name in (_OLD, _NEW):
        value = os.environ.get(name)
        if value:
            given = limits.number(value)
            if given is None or not 0 < given <= share.fraction:
                os.environ[name] = ours
                limits.warn("%s=%s is more than the lease: JAX gets %s" % (name, value, ours))
            return
    os.environ[_OLD] = ours


def _is_ours(value: Any) -> bool:
    share = limits.of("jax")
    return share is not None and value == "%.4f" % share.fraction
