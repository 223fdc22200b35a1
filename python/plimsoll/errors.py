"""The failures of a function in a process of its own, and of sessions, as exceptions."""

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


class OpError(Error):
    """A session or a run has failed. The subclasses have TensorFlow's names; `error_code` is its status code."""

    error_code = 2

    message: str
    """What went wrong, without its place."""
    node: Optional[str]
    """The node that failed, if it was one."""
    device: Optional[str]
    """The device that it was on, or whose line was met."""
    remedy: Optional[str]
    """What helps, where that is known."""
    requested: Optional[int]
    """Bytes that were asked for, where a line was met."""
    missing: Optional[int]
    """Bytes that were missing then."""

    def __init__(
        self,
        message: str,
        text: str = "",
        node: Optional[str] = None,
        device: Optional[str] = None,
        remedy: Optional[str] = None,
        requested: Optional[int] = None,
        missing: Optional[int] = None,
    ) -> None:
        super().__init__(text or message)
        self.message = message
        self.node = node
        self.device = device
        self.remedy = remedy
        self.requested = requested
        self.missing = missing

    @property
    def op(self) -> Optional[str]:
        """The node that failed, as TensorFlow calls it."""
        return self.node

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.message, str(self), self.node, self.device, self.remedy, self.requested, self.missing)


class CancelledError(OpError):
    """The run was ended early."""

    error_code = 1


class UnknownError(OpError):
    """An error of no other kind."""


class InvalidArgumentError(OpError, ValueError):
    """A graph, a name, a type or a shape makes no sense."""

    error_code = 3


class DeadlineExceededError(OpError, TimeoutError):
    """A wait was longer than was allowed."""

    error_code = 4


class NotFoundError(OpError):
    """A file, a tensor or a device is not there."""

    error_code = 5


class AlreadyExistsError(OpError):
    """What was to be made is there already."""

    error_code = 6


class PermissionDeniedError(OpError):
    """A file or a device may not be used."""

    error_code = 7


class ResourceExhaustedError(OpError, MemoryError):
    """A device has no room under its line: see `device`, `requested`, `missing` and `remedy`. Nothing of the run has happened."""

    error_code = 8


class FailedPreconditionError(OpError):
    """A variable is read that has no value yet, or the like."""

    error_code = 9


class AbortedError(OpError):
    """The run was in conflict with another one."""

    error_code = 10


class OutOfRangeError(OpError):
    """A position behind the end."""

    error_code = 11


class UnimplementedError(OpError, NotImplementedError):
    """An operation or an option that is not built yet."""

    error_code = 12


class InternalError(OpError):
    """A fault of this library."""

    error_code = 13


class UnavailableError(OpError):
    """A device that is not there just now."""

    error_code = 14


class DataLossError(OpError):
    """A file is damaged."""

    error_code = 15


_STATUS = {
    "CANCELLED": CancelledError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "ABORTED": AbortedError,
    "OUT_OF_RANGE": OutOfRangeError,
    "UNIMPLEMENTED": UnimplementedError,
    "INTERNAL": InternalError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DataLossError,
}


def of_status(code: str, message: str, text: str, **facts: object) -> OpError:
    """The exception of a status: `code` is its canonical name, `text` the whole message with its place and remedy."""
    return _STATUS.get(code, UnknownError)(message, text, **facts)  # type: ignore[arg-type]
