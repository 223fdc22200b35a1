"""Functions in processes of their own, under leases on the machine's cards. The README has examples.

`call` and `isolated`: one function, one process. `Pool`: workers that are kept. `lease`: cards for this process. `devices`: what the
machine has, who holds it and who waits.
"""

from concurrent.futures import as_completed, wait

from ._binary import binary
from .errors import (
    BinaryNotFound,
    Error,
    LeaseRefused,
    NotPicklable,
    RemoteError,
    RemoteTraceback,
    WorkerExit,
    WorkerKilled,
    WorkerLost,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from .isolation import Isolated, call, isolated
from .leases import Lease, lease
from .machine import Card, Device, Machine, Process, Waiter, devices
from .pool import Pool

__version__ = "0.1.0"

__all__ = [
    "BinaryNotFound",
    "Card",
    "Device",
    "Error",
    "Isolated",
    "Lease",
    "LeaseRefused",
    "Machine",
    "NotPicklable",
    "Pool",
    "Process",
    "RemoteError",
    "RemoteTraceback",
    "Waiter",
    "WorkerExit",
    "WorkerKilled",
    "WorkerLost",
    "WorkerOutOfMemory",
    "WorkerTimeout",
    "as_completed",
    "binary",
    "call",
    "devices",
    "isolated",
    "lease",
    "wait",
]
