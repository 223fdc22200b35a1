"""The failures of a function in a process of its own, as exceptions."""

from __future__ import annotations

import pickle
import signal as _signal
from typing import TYPE_CHECKING, Optional, Union

if TYPE_CHECKING:
    from .reports import Report


class Error(Exception):
    """Every error of this package."""

    report: Optional[Report] = None
    """The resources of the failed call, where it had begun. Exceptions of the function itself have it, too."""


class BinaryNotFound(Error):
    """The program `plimsoll`, which keeps the ledger of the machine's cards, is nowhere to be found."""


class LeaseRefused(Error):
    """The cards or the memory asked for were not granted; the message is that of `plimsoll run`."""


class RemoteTraceback(Exception):
    """The `__cause__` of an exception that came from a worker: where it was raised there."""

    def __init__(self, remote_traceback: str) -> None:
        super().__init__(remote_traceback)
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        return f'\n"""\n{self.remote_traceback}"""'


class RemoteError(Error):
    """A function in a worker came to no result. Its subclasses say how.

    As it stands it is an exception of the function whose own type cannot be brought here: the message names type and text.
    """

    remote_traceback: str
    """Where the worker was when it happened; empty where it is unknown (SIGKILL)."""

    def __init__(self, message: str, remote_traceback: str = "") -> None:
        super().__init__(message)
        self.remote_traceback = remote_traceback
        if remote_traceback:
            self.__cause__ = RemoteTraceback(remote_traceback)

    def __str__(self) -> str:
        return str(self.args[0])

    def _made_of(self) -> tuple[object, ...]:
        """The parts from which another process makes it anew."""
        return self.args[0], self.remote_traceback

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._made_of()


class WorkerKilled(RemoteError):
    """The worker was ended by a signal."""

    signal: Union[_signal.Signals, int]
    """Which: `error.signal.name` is "SIGSEGV" (a plain number for real-time signals)."""

    @property
    def signal_name(self) -> str:
        return getattr(self.signal, "name", f"signal {int(self.signal)}")

    def __init__(self, number: int, remote_traceback: str = "", what: str = "the worker") -> None:
        try:
            self.signal = _signal.Signals(number)
        except ValueError:  # one of the real-time signals
            self.signal = number
        self._what = what
        super().__init__(f"{what} was killed by {self.signal_name}", remote_traceback)

    def _made_of(self) -> tuple[object, ...]:
        return int(self.signal), self.remote_traceback, self._what


class WorkerOutOfMemory(RemoteError, MemoryError):
    """The worker ran out of host memory: a MemoryError there, or the kernel killed it for want of memory.

    Out-of-memory errors of frameworks about a card (`torch.cuda.OutOfMemoryError`) are exceptions like others and come as they are.
    """


class WorkerTimeout(RemoteError, TimeoutError):
    """The function took longer than `timeout`; its process was ended."""

    def __init__(self, seconds: float, remote_traceback: str = "", what: str = "the function") -> None:
        self.seconds = seconds
        self._what = what
        super().__init__(f"{what} took longer than {seconds:g} s, and its worker was ended", remote_traceback)

    def _made_of(self) -> tuple[object, ...]:
        return self.seconds, self.remote_traceback, self._what


class WorkerLost(RemoteError):
    """The worker ended, without a signal and without a word: `os._exit` in the function or in a library."""

    def __init__(self, status: Optional[int], remote_traceback: str = "", what: str = "the worker") -> None:
        self.status = status
        self._what = what
        super().__init__(f"{what} ended with status {status} before it had a result", remote_traceback)

    def _made_of(self) -> tuple[object, ...]:
        return self.status, self.remote_traceback, self._what


class WorkerExit(RemoteError, SystemExit):
    """The function called `sys.exit`. Not caught, it ends the caller with the same code, as it would have without isolation."""

    def __init__(self, code: Union[int, str, None], remote_traceback: str = "") -> None:
        super().__init__(f"the function called sys.exit({'' if code is None else repr(code)})", remote_traceback)
        self.code = code

    def _made_of(self) -> tuple[object, ...]:
        return self.code, self.remote_traceback


class NotPicklable(RemoteError, pickle.PicklingError):
    """The function, its arguments or its result cannot go from process to process."""
