"""A worker, seen from the program that started it: how it starts, its messages, and its end."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Callable, Optional

from . import _main, _notes, _pickling, _start, _worker, reports
from ._answers import hand_on, outcome, show
from ._binary import LeaseOptions
from ._oom import kills
from ._wire import Channel, Closed, Kind, Message, NoRoom, memory_file, no_room
from .errors import LeaseRefused, NotPicklable, RemoteError, WorkerExit, WorkerKilled, WorkerLost, WorkerOutOfMemory, WorkerTimeout

_log = logging.getLogger("plimsoll")

_FOR_ITS_EXIT = 5.0
"""Seconds that a worker has for its end (atexit, destructors of libraries), before it is killed."""
_FOR_ITS_TRACE = 2.0
_FOR_ITS_TREE = 10.0
"""Seconds that its supervisor has to end it and all that it started, before the supervisor is killed."""


class NotStarted(Exception):
    """The worker died before it began with a job: another can take it. The argument is the cause of its death."""


class _Ended(Exception):
    """The process is no more, or will not say more."""


class _Late(Exception):
    """The time is over."""


class Worker:
    """A process that runs functions, in a session and process group of its own, perhaps under a lease.

    A supervisor (`_supervisor`) stands between it and this process: it ends the worker, and all that descends from it, when the write
    end of a pipe closes that is here, so when this process ends, however it ends. The kernel does a part of it by itself: a process
    group (`plimsoll run`'s while it waits for the lease, then the worker's) is the owner of the read end, and SIGKILL the signal that
    is sent to the owner when the write end closes.
    """

    def __init__(
        self,
        lease: LeaseOptions,
        recycle_above: Optional[int] = None,
        waits_alone: bool = False,
        report_file: Optional[str] = None,
    ) -> None:
        """Starts it; `greet` waits until it is there. `waits_alone`: a caller waits for this very worker, and is told why.
        `report_file`: where `plimsoll run` writes its report, when it has ended."""
        if _main.running:
            raise RuntimeError(
                "the program's __main__ is being run in a worker, and asks for a worker itself. In a script, what starts work "
                'belongs under `if __name__ == "__main__":`'
            )
        self._leased = lease.needs_lease()
        self._deadline: Optional[float] = None
        self._said = self._line = b""
        self._trace = ""
        self._jobs = self._begun = 0
        self._took = _notes.Took()
        self.report: Optional[reports.Report] = None
        self._waits_alone = waits_alone
        self._kills = kills()
        self.pid = 0
        self._lifeline: Optional[int]
        self._report: Optional[int] = None
        with contextlib.ExitStack() as passing, contextlib.ExitStack() as kept:
            try:
                ours, theirs = socket.socketpair()
                kept.callback(ours.close)
                passing.callback(theirs.close)
                read_end, self._lifeline = _pipe(passing, kept)
                self._notes = memory_file()
                kept.callback(os.close, self._notes)
                os.ftruncate(self._notes, _notes.SIZE)
                os.lseek(self._notes, _notes.SIZE, os.SEEK_SET)
                passed = [theirs.fileno(), self._notes, read_end]
                real_stderr, stderr = -1, None
                if self._leased:
                    # The messages of `plimsoll run` come here; the worker speaks to the standard error that is ours.
                    stderr, self._report = _pipe(passing, kept, read=True)
                    os.set_blocking(self._report, False)
                    with contextlib.suppress(OSError):  # there is none
                        real_stderr = os.dup(2)
                        passing.callback(os.close, real_stderr)
                        passed.append(real_stderr)
                arguments = [str(number) for number in (read_end, theirs.fileno(), self._notes, real_stderr)]
                command = [*lease.command(report_file), sys.executable, *_flags(), _start.__file__, *arguments]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stderr=stderr, pass_fds=passed, start_new_session=True
                )
            except OSError as error:
                limit = no_room("a worker", error)
                if limit is None:
                    raise
                raise WorkerOutOfMemory(limit) from error
            kill_when_closed(read_end, self._process.pid)
            kept.pop_all()
        self._pidfd = _pidfd(self._process.pid)
        self._worker: Optional[int] = None
        self._supervisor: Optional[int] = None
        self._channel = Channel(ours, self._wait)
        self._poll = select.poll()
        for number in (ours.fileno(), self._report, self._pidfd):
            if number is not None:
                self._poll.register(number, select.POLLIN)
        self._setup = _setup(recycle_above=recycle_above)
        self._ending = threading.Lock()
        self.is_there = False
        _all.add(self)

    def greet(self) -> None:
        """Waits until it is there; with a lease, until that is granted. Raises `LeaseRefused`."""
        try:
            self._channel.send(Kind.SETUP, [pickle.dumps(self._setup)])
            self.pid, supervisor = pickle.loads(self._answer().stream)
            # Both live, so that the numbers are theirs.
            self._worker, self._supervisor = _pidfd(self.pid), _pidfd(supervisor)
        except (Closed, _Ended):
            refusal = self._refusal()
        except BaseException:
            self.kill()
            raise
        else:
            self.is_there = True
            return
        raise refusal

    def run(
        self, job: _pickling.Pickled, what: str, timeout: Optional[float], read: Callable[[Message], Any] = outcome
    ) -> Any:
        """Runs a job. What `read` makes of the worker's answer: by default its result, or the function's exception. Raises the end of
        the worker. `report` gets the resources of the job."""
        self.report = None
        begin = time.perf_counter()
        try:
            result = read(self._last_word(job, what, timeout))
        except BaseException as error:
            failure = error.args[0] if isinstance(error, NotStarted) else error
            self.report = self._reported(time.perf_counter() - begin, _ending(failure))
            reports.attach(failure, self.report)
            raise
        self.report = self._reported(time.perf_counter() - begin, "returned")
        return result

    def _reported(self, seconds: float, ended: str) -> reports.Report:
        if self._notes >= 0:
            self._took = _notes.took(self._notes, self._jobs)
        took = self._took
        return reports.Report(
            wall_seconds=seconds,
            ended=ended,
            processor_seconds=took.processor_seconds,
            peak_resident_bytes=took.peak_resident_bytes,
            cards=reports.observed(list(took.cards)),
        )

    def can_go_on(self) -> bool:
        """Whether the last job left it alive, as far as is known. One that has grown too big ends when it is asked the next time."""
        return self._process.returncode is None

    @property
    def keeps_memory(self) -> bool:
        """Whether shared memory is kept for the next job."""
        return self._channel.keeps_files

    def rest(self) -> None:
        """Gives back memory that is kept for the next job, as far as it is unused."""
        self._channel.rest()
        with contextlib.suppress(Closed):
            self._channel.send(Kind.REST)

    def close(self) -> None:
        """Lets the worker end, and waits until it has."""
        if self._process.returncode is None:
            self._channel.close()
            self._await_end(_FOR_ITS_EXIT)
        self.kill()

    def end(self) -> None:
        """Kills the worker and all that it started. From any thread; the one that runs it sees that it died."""
        with self._ending:
            lifeline, self._lifeline = self._lifeline, None
            if lifeline is not None:
                os.close(lifeline)
            _send(self._supervisor, signal.SIGCONT)  # one that is stopped would not see it

    def kill(self) -> int:
        """Ends the worker, if it has not ended, and all that it started. Its status."""
        if self._process.returncode is None:
            self.end()
            # `plimsoll run` ends after the supervisor, unless it was killed.
            if not (self._await_end(_FOR_ITS_TREE) and _await(self._supervisor, _FOR_ITS_TREE)):
                # Something keeps the supervisor from it. The worker ends with that.
                _send(self._supervisor, signal.SIGKILL)
                _send(self._worker, signal.SIGKILL)
                # The group bears the number of its first process, which is not given away before that is waited for.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._await_end(float("inf"))
            with self._ending:
                self._process.wait()
            self._hear()
        self._drop()
        return self._process.returncode

    def _last_word(self, job: _pickling.Pickled, what: str, timeout: Optional[float]) -> Message:
        self._jobs += 1
        try:
            _flush()
            try:
                self._channel.send(Kind.JOB, *job)
            except NoRoom:
                self._jobs -= 1
                raise
            if timeout is not None:
                self._deadline = time.monotonic() + timeout
            return self._answer()
        except (Closed, _Ended):
            death: Exception = self._death(what)
            if self._begun < self._jobs:
                death = NotStarted(death)
        except NoRoom as error:
            # The worker is as before, and can go on.
            raise WorkerOutOfMemory(f"{what}: {error}") from error
        except _Late:
            death = WorkerTimeout(timeout or 0.0, self._end_with_trace(), what)
        except BaseException:
            self.kill()
            raise
        finally:
            self._deadline = None
        raise death

    def _answer(self) -> Message:
        """The worker's next message, but for notes by the way."""
        while True:
            message = self._channel.receive()
            if message.kind == Kind.LOG:
                hand_on(message)
            elif message.kind == Kind.OUTPUT:
                show(message)
            else:
                return message

    def _wait(self) -> None:
        """Comes back when the worker has said something, or has closed its end of the socket."""
        while True:
            patience = None if self._pidfd is not None else 0.1
            if self._deadline is not None:
                left = self._deadline - time.monotonic()
                if left <= 0:
                    raise _Late
                patience = left if patience is None else min(left, patience)
            ready = [number for number, _ in self._poll.poll(None if patience is None else patience * 1000 + 1)]
            if self._channel.fileno() in ready:
                return
            if self._report is not None and self._report in ready and not self._hear():
                self._poll.unregister(self._report)
            if self._pidfd in ready or (self._pidfd is None and self._has_ended()):
                # Not even the socket says so where the function left a process behind that has it too.
                raise _Ended

    def _has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True  # another thread has waited for it

    def _await_end(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        pause = 0.0005
        while not self._has_ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if self._pidfd is not None:
                poll = select.poll()
                poll.register(self._pidfd, select.POLLIN)
                poll.poll(min(left * 1000 + 1, 1e6))
            else:
                time.sleep(min(pause, left))
                pause = min(2 * pause, 0.05)
        return True

    def _death(self, what: str) -> RemoteError:
        """The cause of the worker's death, when it has died."""
        ended = self._await_end(_FOR_ITS_EXIT)
        status = self.kill()
        trace = self._trace
        if not ended:
            return WorkerLost(None, trace, what)
        if status >= 0:
            return WorkerLost(status, trace, what)
        number = -status
        before, now = self._kills, kills()
        if number == signal.SIGKILL and before is not None and now is not None and now > before:
            return WorkerOutOfMemory(f"{what} was killed by the kernel: out of memory", trace)
        return WorkerKilled(number, trace, what)

    def _end_with_trace(self) -> str:
        """Ends the worker, and says where it was."""
        if _send(self._worker, _worker.SHOW_AND_DIE):
            self._await_end(_FOR_ITS_TRACE)
        self.kill()
        return self._trace

    def _hear(self) -> bool:
        """Takes in what `plimsoll run` has said. Whether it may say more."""
        while self._report is not None:
            try:
                more = os.read(self._report, 4096)
            except BlockingIOError:
                return True
            if not more:
                return False
            self._said += more
            *lines, self._line = (self._line + more).split(b"\n")
            for line in lines:
                text = line.decode("utf-8", "replace")
                important = "warning: " in text or (self._waits_alone and "waits: " in text)
                _log.log(logging.WARNING if important else logging.INFO, "%s", text)
        return False

    def _refusal(self) -> Exception:
        status = self._death("the worker")
        said = self._said.decode("utf-8", "replace").strip()
        at = said.find("error: ")
        if at >= 0:
            return LeaseRefused(said[at + len("error: ") :])
        return status

    def _drop(self) -> None:
        """Closes the handles that are open here."""
        _all.discard(self)
        if self._notes < 0:
            return
        self.end()
        with contextlib.suppress(OSError):
            self._begun = _notes.begun(self._notes)
            self._took = _notes.took(self._notes, self._jobs)
            self._trace = os.pread(self._notes, 1 << 20, _notes.SIZE).decode("utf-8", "replace")
        self._channel.close()
        with self._ending:
            for number in (self._notes, self._report, self._pidfd, self._worker, self._supervisor):
                if number is not None:
                    os.close(number)
            self._notes, self._report, self._pidfd, self._worker, self._supervisor = -1, None, None, None, None


def _ending(error: BaseException) -> str:
    """A few words for how a job ended."""
    if isinstance(error, WorkerKilled):
        return f"killed by {error.signal_name}"
    words = {
        WorkerTimeout: "timeout",
        WorkerExit: "exit",
        WorkerLost: "lost",
        WorkerOutOfMemory: "out of memory",
        NotPicklable: "not picklable",
    }
    return words.get(type(error), f"raised {type(error).__name__}")  # type: ignore[call-overload,no-any-return,unused-ignore]


_all: weakref.WeakSet[Worker] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child: the workers are its parent's, and end when that does."""
    for worker in list(_all):
        if worker._lifeline is not None:
            os.close(worker._lifeline)
            worker._lifeline = None
    _all.clear()


os.register_at_fork(after_in_child=_forget_all)


def _setup(recycle_above: Optional[int]) -> dict[str, Any]:
    levels = {}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET:
            levels[name] = logger.level
    return {
        "path": [entry or os.getcwd() for entry in sys.path],
        "argv": list(sys.argv),
        "main": _main.describe(),
        "forward": (_is_not_file(sys.stdout, 1), _is_not_file(sys.stderr, 2)),
        "logging": (logging.root.level, levels),
        "recycle_above": recycle_above,
    }


def _is_not_file(stream: Any, number: int) -> bool:
    """Whether the output of a worker would go elsewhere than the output of this program."""
    if stream is None:
        return False
    try:
        return bool(stream.fileno() != number)
    except Exception:
        return True


def _flush() -> None:
    """So that output from before the call is seen before the function's output."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _flags() -> list[str]:
    """The options of this interpreter, for another one, as multiprocessing hands them on."""
    return list(subprocess._args_from_interpreter_flags())  # type: ignore[attr-defined]


def kill_when_closed(read_end: int, group: int) -> bool:
    """Has the kernel kill a process group when the pipe's other end is closed. Whether it knows how to."""
    if not hasattr(fcntl, "F_SETSIG"):
        return False
    try:
        fcntl.fcntl(read_end, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(read_end, fcntl.F_SETOWN, -group)
        fcntl.fcntl(read_end, fcntl.F_SETFL, fcntl.fcntl(read_end, fcntl.F_GETFL) | os.O_ASYNC)
    except OSError:
        return False
    return True


def _pipe(passing: contextlib.ExitStack, kept: contextlib.ExitStack, read: bool = False) -> tuple[int, int]:
    """A pipe: the end that is passed on, the read end unless `read` is to be kept, and the end that is kept."""
    theirs, ours = os.pipe() if not read else os.pipe()[::-1]
    passing.callback(os.close, theirs)
    kept.callback(os.close, ours)
    return theirs, ours


def _send(handle: Optional[int], number: int) -> bool:
    """Sends a signal to a process by its handle. Whether it was there."""
    try:
        if handle is not None:
            signal.pidfd_send_signal(handle, number)
    except (AttributeError, OSError):
        return False
    return handle is not None


def _await(handle: Optional[int], patience: float) -> bool:
    """Whether a process has ended, in time."""
    if handle is None:
        return True
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(patience * 1000))


def _pidfd(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
