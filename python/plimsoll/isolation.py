"""One function, one process: `call` and `@isolated`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from typing import Any, Generic, Literal, Optional, TypeVar, Union, overload

from . import _pickling, reports
from ._binary import Gpus, LeaseOptions, Memory
from .errors import NotPicklable
from .reports import Report

R = TypeVar("R")
if sys.version_info >= (3, 10):
    from typing import ParamSpec

    P = ParamSpec("P")
else:  # annotations are text, so that this is enough
    P = TypeVar("P")


@overload
def call(
    function: Callable[..., R],
    /,
    *args: Any,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: Literal[False] = ...,
    **kwargs: Any,
) -> R: ...


@overload
def call(
    function: Callable[..., R],
    /,
    *args: Any,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: Literal[True],
    **kwargs: Any,
) -> tuple[R, Report]: ...


def call(
    function: Callable[..., Any],
    /,
    *args: Any,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: bool = False,
    **kwargs: Any,
) -> Any:
    """Runs `function(*args, **kwargs)` in a process of its own and returns its result, when that process is gone.

    gpus: how many cards (or which) it gets, for as long as it runs; memory: how much of each. Without both it runs without a
    lease, and the `plimsoll` program is not needed. timeout: seconds, from when the function starts. wait: whether, or how many
    seconds, to wait for the lease (priority, name: as others that wait see it). with_report: returns the result and a `Report` of
    what it took; `call.last_report` is that of the last call, and `.report` of an exception that of the call that failed.

    Raises the function's exception, with the traceback in the worker as `__cause__`; `plimsoll.RemoteError` and its subclasses for
    what else can happen to it; `plimsoll.LeaseRefused`. An argument of the function named like one of these options is handed to
    it with `functools.partial`.
    """
    lease = LeaseOptions(gpus, memory, wait, priority, name or _name(function))
    try:
        result, report = _call(function, args, kwargs, lease, timeout)
    except BaseException as error:
        setattr(call, "last_report", getattr(error, "report", None))
        raise
    setattr(call, "last_report", report)
    return (result, report) if with_report else result


setattr(call, "last_report", None)


def _call(
    function: Callable[..., Any], args: Any, kwargs: Any, lease: LeaseOptions, timeout: Optional[float]
) -> tuple[Any, Optional[Report]]:
    """The result and its report; an exception has its report."""
    from ._process import NotStarted, Worker  # not needed in a worker that only has to know its decorated functions

    check_timeout(timeout)
    job = pickled(function, args, kwargs)
    folder = None
    if lease.needs_lease():
        with contextlib.suppress(OSError):  # then what `plimsoll run` saw is not in the report
            folder = tempfile.mkdtemp(prefix="plimsoll-")
    file = None if folder is None else os.path.join(folder, "report")
    try:
        worker = Worker(lease, waits_alone=True, report_file=file)
        try:
            worker.greet()
            result = worker.run(job, _name(function), timeout)
        except NotStarted as never:
            raise never.args[0] from never.args[0].__cause__
        finally:
            worker.close()
        return result, _whole(worker.report, file)
    except BaseException as error:
        report = getattr(error, "report", None)
        if isinstance(report, Report):
            reports.attach(error, _whole(report, file) or report)
        raise
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _whole(report: Optional[Report], file: Optional[str]) -> Optional[Report]:
    """With what `plimsoll run` saw, which is written when the worker has ended."""
    if report is None or file is None:
        return report
    try:
        with open(file, encoding="utf-8") as text:
            return reports.completed(report, text.read())
    except (OSError, ValueError):
        return report


def check_timeout(timeout: Optional[float]) -> None:
    """Raises where it is no time: too early beats a function that is ended at once."""
    if timeout is not None and not timeout >= 0:  # NaN is not either
        raise ValueError(f"timeout={timeout!r}: seconds, or None")


def pickled(function: Callable[..., Any], args: Any, kwargs: Any) -> _pickling.Pickled:
    """A job for a worker. Raises `NotPicklable`."""
    try:
        return _pickling.dumps((function, args, kwargs))
    except MemoryError:
        raise
    except Exception as error:
        raise NotPicklable(f"{_name(function)} or its arguments cannot be pickled: {type(error).__name__}: {error}") from error


def _name(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__)).replace("<locals>.", "")


class Isolated(Generic[P, R]):
    """A function that runs in a process of its own each time it is called; made by `@isolated`.

    `f.__wrapped__` is the function itself; `f.options(timeout=5)` is it with other options; `f.last_report` is what its last call
    took, from whichever thread.
    """

    __wrapped__: Callable[P, Any]
    __qualname__: str

    def __init__(
        self, function: Callable[P, Any], lease: LeaseOptions, timeout: Optional[float], with_report: bool = False
    ) -> None:
        functools.update_wrapper(self, function)
        self._lease = lease
        check_timeout(timeout)
        self._timeout = timeout
        self._with_report = with_report
        self.last_report: Optional[Report] = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        lease = self._lease
        if lease.name is None:
            lease = _replaced(lease, name=_name(self.__wrapped__))
        try:
            result, self.last_report = _call(self, args, kwargs, lease, self._timeout)
        except BaseException as error:
            self.last_report = getattr(error, "report", None)
            raise
        return (result, self.last_report) if self._with_report else result  # type: ignore[return-value]

    def options(
        self,
        *,
        gpus: Any = ...,
        memory: Any = ...,
        timeout: Any = ...,
        wait: Any = ...,
        priority: Any = ...,
        name: Any = ...,
        with_report: Any = ...,
    ) -> Isolated[P, Any]:
        """The same function with other options; those that are not given stay as they are."""
        given = {"gpus": gpus, "memory": memory, "wait": wait, "priority": priority, "name": name}
        lease = _replaced(self._lease, **{option: value for option, value in given.items() if value is not ...})
        timeout = self._timeout if timeout is ... else timeout
        return Isolated(self.__wrapped__, lease, timeout, self._with_report if with_report is ... else with_report)

    def __get__(self, instance: object, owner: Optional[type] = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<isolated {self.__wrapped__!r}>"

    @property
    def __plimsoll_function__(self) -> Callable[P, Any]:
        """The function that a worker runs when it is sent this."""
        return self.__wrapped__

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self and self.__module__ != "__main__":
            return self.__qualname__
        return Isolated, (self.__wrapped__, self._lease, self._timeout, self._with_report)


def _replaced(lease: LeaseOptions, **changes: Any) -> LeaseOptions:
    return dataclasses.replace(lease, **changes)


@overload
def isolated(function: Callable[P, R], /) -> Isolated[P, R]: ...


@overload
def isolated(
    *,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: Literal[False] = ...,
) -> Callable[[Callable[P, R]], Isolated[P, R]]: ...


@overload
def isolated(
    *,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: Literal[True],
) -> Callable[[Callable[P, R]], Isolated[P, tuple[R, Report]]]: ...


def isolated(
    function: Optional[Callable[..., Any]] = None,
    /,
    *,
    gpus: Optional[Gpus] = None,
    memory: Optional[Memory] = None,
    timeout: Optional[float] = None,
    wait: Union[bool, float] = True,
    priority: Optional[int] = None,
    name: Optional[str] = None,
    with_report: bool = False,
) -> Any:
    """Decorates a function so that each call of it is a `call`, with these options: `@isolated` or `@isolated(gpus=1)`."""
    lease = LeaseOptions(gpus, memory, wait, priority, name)
    if function is not None:
        return Isolated(function, lease, timeout, with_report)
    return lambda function: Isolated(function, lease, timeout, with_report)
