"""A worker, seen from the program that started it: how it starts, what it says, and what it died of."""

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
from typing import Any, Optional

from . import _main, _pickling, _start, _worker
from ._answers import hand_on, outcome, show
from ._binary import LeaseOptions
from ._oom import kills
from ._wire import Channel, Closed, Kind, Message, memory_file
from .errors import LeaseRefused, RemoteError, WorkerKilled, WorkerLost, WorkerOutOfMemory, WorkerTimeout

_log = logging.getLogger("plimsoll")

_FOR_ITS_EXIT = 5.0
"""Seconds that a worker has for what it does at its end (atexit, destructors of libraries), before it is killed."""
_FOR_ITS_TRACE = 2.0


class NotStarted(Exception):
    """The worker died before it began with a job: another can take it. The argument is what it died of."""


class _Ended(Exception):
    """The process is no more, or will not say more."""


class _Late(Exception):
    """The time is over."""


class Worker:
    """A process that runs functions, in a session and process group of its own, perhaps under a lease.

    The kernel kills the group when this process ends, however it ends: the group is the owner of the read end of a pipe whose write
    end is here, and SIGKILL the signal that is sent to the owner when that end closes.
    """

    def __init__(self, lease: LeaseOptions, recycle_above: Optional[int] = None, waits_alone: bool = False) -> None:
        """Starts it; `greet` waits until it is there. `waits_alone`: somebody waits for this very worker, and is told why."""
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
        self._waits_alone = waits_alone
        self._kills = kills()
        self.pid = 0
        ours, theirs = socket.socketpair()
        self._lifeline: Optional[int]
        read_end, self._lifeline = os.pipe()
        self._notes = memory_file()
        os.lseek(self._notes, _worker.BEGUN, os.SEEK_SET)
        report, stderr = os.pipe() if self._leased else (None, None)
        self._report = report
        passed = [theirs.fileno(), self._notes, read_end]
        real_stderr = -1
        if stderr is not None:
            # What `plimsoll run` says comes here; the worker speaks to the standard error that is ours.
            os.set_blocking(self._report, False)  # type: ignore[arg-type]
            try:
                real_stderr = os.dup(2)
                passed.append(real_stderr)
            except OSError:
                pass  # there is none
        arguments = [str(number) for number in (theirs.fileno(), self._notes, real_stderr)]
        command = [*lease.command(), sys.executable, *_flags(), _start.__file__, *arguments]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, pass_fds=passed, start_new_session=True)
            watched = kill_when_closed(read_end, self._process.pid)
        except BaseException:
            for number in (self._lifeline, self._notes, self._report):
                if number is not None:
                    os.close(number)
            ours.close()
            raise
        finally:
            theirs.close()
            for number in (read_end, stderr, real_stderr):
                if number is not None and number >= 0:
                    os.close(number)
        self._pidfd = _pidfd(self._process.pid)
        self._channel = Channel(ours, self._wait)
        self._poll = select.poll()
        for number in (ours.fileno(), self._report, self._pidfd):
            if number is not None:
                self._poll.register(number, select.POLLIN)
        self._setup = _setup(watch=not watched, recycle_above=recycle_above)
        self._ending = threading.Lock()
        self.is_there = False
        _all.add(self)

    def greet(self) -> None:
        """Waits until it is there; with a lease, until that is granted. Raises `LeaseRefused`."""
        try:
            self._channel.send(Kind.SETUP, [pickle.dumps(self._setup)])
            self.pid = pickle.loads(self._answer().stream)
        except (Closed, _Ended):
            refusal = self._refusal()
        except BaseException:
            self.kill()
            raise
        else:
            self.is_there = True
            return
        raise refusal

    def run(self, job: _pickling.Pickled, what: str, timeout: Optional[float]) -> Any:
        """Runs a job. Its result; raises what the function raised, or what became of the worker."""
        message = self._last_word(job, what, timeout)
        return outcome(message)

    def can_go_on(self) -> bool:
        """Whether the last job left it alive, as far as is known. One that has grown too big ends when it is asked the next time."""
        return self._process.returncode is None

    @property
    def keeps_memory(self) -> bool:
        """Whether shared memory is kept for the next job."""
        return self._channel.keeps_files

    def rest(self) -> None:
        """Gives back what is kept for the next job, as far as nobody uses it."""
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
        """Kills the worker and what it started in its group. From any thread; the one that runs it sees that it died."""
        with self._ending:
            if self._process.returncode is None:
                # The group bears the number of its first process, which is not given away before that is waited for.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self) -> int:
        """Ends the worker, if it has not ended, and what it started in its group. Its status."""
        if self._process.returncode is None:
            self.end()
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
            self._channel.send(Kind.JOB, *job)
            if timeout is not None:
                self._deadline = time.monotonic() + timeout
            return self._answer()
        except (Closed, _Ended):
            death: Exception = self._death(what)
            if self._begun < self._jobs:
                death = NotStarted(death)
        except _Late:
            death = WorkerTimeout(timeout or 0.0, self._end_with_trace(), what)
        except BaseException:
            self.kill()
            raise
        finally:
            self._deadline = None
        raise death

    def _answer(self) -> Message:
        """What the worker says next, but for what it says by the way."""
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
            return True  # somebody else has waited for it

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
        """What the worker died of, when it has."""
        ended = self._await_end(_FOR_ITS_EXIT)
        status = self.kill()
        trace = self._trace
        if not ended:
            return WorkerLost(None, trace, what)
        # `plimsoll run` ends by the signal that its program ended by; where it cannot, as shells do.
        number = -status if status < 0 else status - 128 if self._leased and 128 + 32 <= status < 128 + signal.NSIG else 0
        if not number:
            return WorkerLost(status, trace, what)
        before, now = self._kills, kills()
        if number == signal.SIGKILL and before is not None and now is not None and now > before:
            return WorkerOutOfMemory(f"{what} was killed by the kernel: out of memory", trace)
        return WorkerKilled(number, trace, what)

    def _end_with_trace(self) -> str:
        """Ends the worker, and says where it was."""
        try:
            if self.pid and os.getpgid(self.pid) == self._process.pid:
                os.kill(self.pid, _worker.SHOW_AND_DIE)
                self._await_end(_FOR_ITS_TRACE)
        except (ProcessLookupError, PermissionError):
            pass
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
        """Closes what is open here."""
        _all.discard(self)
        if self._lifeline is None:
            return
        with contextlib.suppress(OSError):
            self._begun = int.from_bytes(os.pread(self._notes, _worker.BEGUN, 0), "little")
            self._trace = os.pread(self._notes, 1 << 20, _worker.BEGUN).decode("utf-8", "replace")
        self._channel.close()
        for number in (self._lifeline, self._notes, self._report, self._pidfd):
            if number is not None:
                os.close(number)
        self._lifeline = self._report = self._pidfd = None


_all: weakref.WeakSet[Worker] = weakref.WeakSet()


def _forget_all() -> None:
    """In a forked child: the workers are its parent's, and end when that does."""
    for worker in list(_all):
        if worker._lifeline is not None:
            os.close(worker._lifeline)
            worker._lifeline = None
    _all.clear()


os.register_at_fork(after_in_child=_forget_all)


def _setup(watch: bool, recycle_above: Optional[int]) -> dict[str, Any]:
    levels = {}
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and logger.level != logging.NOTSET:
            levels[name] = logger.level
    return {
        "path": [entry or os.getcwd() for entry in sys.path],
        "argv": list(sys.argv),
        "main": _main.describe(),
        "watch": watch,
        "forward": (_is_not_file(sys.stdout, 1), _is_not_file(sys.stderr, 2)),
        "logging": (logging.root.level, levels),
        "recycle_above": recycle_above,
    }


def _is_not_file(stream: Any, number: int) -> bool:
    """Whether what is printed in a worker would not go where it goes here."""
    if stream is None:
        return False
    try:
        return bool(stream.fileno() != number)
    except Exception:
        return True


def _flush() -> None:
    """So that what was printed before the call is seen before what the function prints."""
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


def _pidfd(pid: int) -> Optional[int]:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
