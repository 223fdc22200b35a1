"""Functions in processes of their own, under leases on the machine's cards. The README has examples.

`call` and `isolated`: one function, one process, and a `Report` of what it took. `Pool`: workers that are kept. `lease`: cards for this process. `devices`: what the
machine has, the holders and the waiters. `memory_allocated`, `max_memory_allocated`, `empty_cache`: of the framework that is loaded.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import as_completed as as_completed
    from concurrent.futures import wait as wait

    from ._binary import binary as binary
    from .errors import BinaryNotFound as BinaryNotFound
    from .errors import Error as Error
    from .errors import LeaseRefused as LeaseRefused
    from .errors import NotPicklable as NotPicklable
    from .errors import RemoteError as RemoteError
    from .errors import RemoteTraceback as RemoteTraceback
    from .errors import WorkerExit as WorkerExit
    from .errors import WorkerKilled as WorkerKilled
    from .errors import WorkerLost as WorkerLost
    from .errors import WorkerOutOfMemory as WorkerOutOfMemory
    from .errors import WorkerTimeout as WorkerTimeout
    from .isolation import Isolated as Isolated
    from .isolation import call as call
    from .isolation import isolated as isolated
    from .leases import Lease as Lease
    from .leases import lease as lease
    from .machine import Card as Card
    from .machine import Device as Device
    from .machine import Machine as Machine
    from .machine import Process as Process
    from .machine import Waiter as Waiter
    from .machine import devices as devices
    from .memory import empty_cache as empty_cache
    from .memory import max_memory_allocated as max_memory_allocated
    from .memory import memory_allocated as memory_allocated
    from .pool import Pool as Pool
    from .reports import CardReport as CardReport
    from .reports import Report as Report
    from .session import Plan as Plan
    from .session import Session as Session
    from .session import plan as plan

__version__ = "0.1.0"

# Where names are, for when they are first used: a worker, which starts for every `call`, needs few of them.
_NAMES = {
    "concurrent.futures": ["as_completed", "wait"],
    "plimsoll._binary": ["binary"],
    "plimsoll.errors": [
        "BinaryNotFound",
        "Error",
        "LeaseRefused",
        "NotPicklable",
        "RemoteError",
        "RemoteTraceback",
        "WorkerExit",
        "WorkerKilled",
        "WorkerLost",
        "WorkerOutOfMemory",
        "WorkerTimeout",
    ],
    "plimsoll.isolation": ["Isolated", "call", "isolated"],
    "plimsoll.leases": ["Lease", "lease"],
    "plimsoll.machine": ["Card", "Device", "Machine", "Process", "Waiter", "devices"],
    "plimsoll.memory": ["empty_cache", "max_memory_allocated", "memory_allocated"],
    "plimsoll.pool": ["Pool"],
    "plimsoll.reports": ["CardReport", "Report"],
    "plimsoll.session": ["Plan", "Session", "plan"],
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_WHERE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("compat", "config", "debugging", "errors", "keras", "saved_model", "session"):
        return importlib.import_module(f"plimsoll.{name}")
    if name not in _WHERE:
        raise AttributeError(f"module 'plimsoll' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
