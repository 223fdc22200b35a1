"""Engines of others that take the jobs of a pool to machines: Ray, and Slurm in an allocation of several nodes."""

from __future__ import annotations

import dataclasses
import signal
import threading
from typing import TYPE_CHECKING, Any, Optional, Protocol

from . import _apart
from ._answers import outcome
from ._binary import LeaseOptions
from ._process import NotStarted, _ending
from .errors import WorkerKilled, WorkerLost
from .reports import Report

if TYPE_CHECKING:
    from ._pickling import Pickled


class Gone(Exception):
    """The machine that had a job is no more, or lost it: another can have it. The argument says how."""


class Call(Protocol):
    """A job that an engine has."""

    def result(self) -> bytes:
        """The answer, when it is there. Raises `Gone`."""

    def cancel(self) -> None:
        """Ends it, from any thread."""


class Engine(Protocol):
    """What takes jobs to machines."""

    workers: int
    """How many jobs it is given at once where nobody says it."""

    def check(self, lease: LeaseOptions) -> None:
        """Raises where no machine can ever grant a lease."""

    def start(self, job: bytes, lease: LeaseOptions) -> Call:
        """Takes a job that `_apart.asked` made to a machine, where `_apart.answers` runs it."""


def of(name: Optional[str]) -> Optional[Engine]:
    """The engine of that name: "ray", "slurm", or "none". Where none is named, Slurm in an allocation of several nodes."""
    from . import _slurm

    if name is None:
        return _slurm.engine()
    if name == "none":
        return None
    if name == "slurm":
        found = _slurm.engine()
        if found is None:
            raise ValueError("engine='slurm': this is no Slurm allocation of several nodes (SLURM_JOB_NUM_NODES)")
        return found
    if name == "ray":
        from . import ray

        return ray.engine()
    raise ValueError(f"engine={name!r}: 'ray', 'slurm' or 'none'")


class Apart:
    """A place for one job after the other, as a pool has it (`_process.Worker`): each is in a process of its own on the engine's machine.

    A job whose machine is lost has not been done: it is said to have never begun, so that the pool gives it to another.
    """

    is_there = True
    keeps_memory = False

    def __init__(self, engine: Engine, lease: LeaseOptions) -> None:
        self._engine = engine
        self._lease = lease
        self._call: Optional[Call] = None
        self._ended = False
        self._lock = threading.Lock()
        self.report: Optional[Report] = None

    def greet(self) -> None:
        """Raises `LeaseRefused` where no machine can ever grant the lease."""
        self._engine.check(self._lease)

    def run(self, job: Pickled, what: str, timeout: Optional[float]) -> Any:
        """Runs a job: as `_process.Worker.run`."""
        self.report = None
        chunks, buffers = job
        data = _apart.asked(b"".join(chunks), [bytes(buffer) for buffer in buffers], what, self._lease, timeout)
        with self._lock:
            if self._ended:
                raise NotStarted(WorkerKilled(signal.SIGKILL, what=what))
            call = self._call = self._engine.start(data, self._lease)
        try:
            message, error, report = _apart.taken(call.result())
        except Gone as gone:
            cause = WorkerKilled(signal.SIGKILL, what=what) if self._ended else WorkerLost(None, str(gone), what)
            raise (cause if self._ended else NotStarted(cause)) from gone
        except BaseException:
            call.cancel()
            raise
        finally:
            self._call = None
        self.report = report
        if error is not None:
            raise error
        assert message is not None
        try:
            return outcome(message)
        except BaseException as failure:
            if report is not None:
                self.report = dataclasses.replace(report, ended=_ending(failure))
            raise

    def can_go_on(self) -> bool:
        """Always: a job leaves nothing behind."""
        return not self._ended

    def rest(self) -> None:
        """Nothing is kept."""

    def end(self) -> None:
        """Ends the job that runs. From any thread."""
        with self._lock:
            self._ended = True
            if self._call is not None:
                self._call.cancel()

    def close(self) -> None:
        """Nothing is left."""
