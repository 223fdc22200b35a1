"""Threads of the devices that `plimsoll.config` sets up."""

from __future__ import annotations

from . import _context
from ._context import checked as _checked

__all__ = [
    "get_inter_op_parallelism_threads",
    "get_intra_op_parallelism_threads",
    "set_inter_op_parallelism_threads",
    "set_intra_op_parallelism_threads",
]


def get_inter_op_parallelism_threads() -> int:
    """Queues of a run that advance at the same time; 0: as many as there are threads."""
    return _context.settings().inter_op()


@_checked
def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """Sets how many queues of a run advance at the same time; 0: as many as there are threads. RuntimeError when devices are open."""
    _context.settings(is_set=True).set_inter_op(num_threads)


def get_intra_op_parallelism_threads() -> int:
    """Threads of one operation; 0: one for each core that this process may use."""
    return _context.settings().intra_op()


@_checked
def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Sets the threads of one operation; 0: one for each core that this process may use. RuntimeError when devices are open."""
    _context.settings(is_set=True).set_intra_op(num_threads)
