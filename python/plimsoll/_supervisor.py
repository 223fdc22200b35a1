"""The process between a program and its worker: each process that the worker starts descends from it, and ends with it.

It is a subreaper: a process whose parent has ended becomes its child, in any session or process group. It ends the worker and
all that descends from it when the lifeline's other end closes, so when the program ends, however that comes about; and what is left when
the worker has ended. Then it ends as the worker did.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import NoReturn, Optional

from . import _notes

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_NOT_PASSED_ON = {
    getattr(signal, name, None)
    for name in (
        "SIGKILL SIGSTOP SIGCHLD SIGCONT SIGTSTP SIGTTIN SIGTTOU SIGWINCH SIGURG SIGPIPE SIGXFSZ "
        "SIGSEGV SIGBUS SIGFPE SIGILL SIGABRT SIGTRAP SIGSYS"
    ).split()
}


def supervise(lifeline: int, notes: int) -> None:
    """Returns in a process of its own, which is the worker; this one stays, and ends when that has ended.

    To be called before there is another thread. `lifeline`: the read end of a pipe that says nothing and is closed in the end.
    `notes`: the file for the resources of the worker, when it has ended.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Under `plimsoll run` it is a member of that program's group, and is not to be ended with it.
    with contextlib.suppress(OSError):
        os.setsid()
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    # Before there is a child. Where this was ignored, no child could be waited for.
    before = signal.signal(signal.SIGCHLD, _note)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    own = os.getpid()
    worker = os.fork()
    if worker:
        _supervise(worker, lifeline, notes, wake, waker)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL if before is None else before)
    os.close(wake)
    os.close(waker)
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != own:  # it has ended already
        os._exit(1)


def _supervise(worker: int, lifeline: int, notes: int, wake: int, waker: int) -> NoReturn:
    status = 0
    try:
        for number in signal.valid_signals():
            if number not in _NOT_PASSED_ON and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _note)
        # Who waits for the worker to close something does not wait for this process.
        with contextlib.suppress(OSError):
            for name in os.listdir("/proc/self/fd"):
                if int(name) > 2 and int(name) not in (lifeline, notes, wake, waker):
                    with contextlib.suppress(OSError):
                        os.close(int(name))
        status = _until_its_end(worker, lifeline, notes, wake)
        end_all()
    except BaseException:
        # A failure here keeps no process alive that is to end.
        end_all()
        raise
    finally:
        _end_as(status)


def _until_its_end(worker: int, lifeline: int, notes: int, wake: int) -> int:
    """Its status, as `os.waitpid` says it."""
    poll = select.poll()
    poll.register(lifeline, 0)  # only that the other end is closed
    poll.register(wake, select.POLLIN)
    while True:
        status = _ended(worker, notes)
        if status is not None:
            return status
        for number, _ in poll.poll(1000):
            if number == lifeline:
                poll.unregister(lifeline)
                with contextlib.suppress(OSError):
                    os.killpg(worker, signal.SIGKILL)
                signal_all(signal.SIGKILL)
                continue
            with contextlib.suppress(BlockingIOError):
                for heard in os.read(wake, 4096):
                    if heard != signal.SIGCHLD:
                        with contextlib.suppress(OSError):
                            os.kill(worker, heard)


def _ended(worker: int, notes: int) -> Optional[int]:
    """Waits for all children that have ended: the worker's status, if it is among them."""
    found = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status, took = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == worker:
                found = status
                _notes.ended(notes, took.ru_utime + took.ru_stime, took.ru_maxrss << 10)
    return found


def end_all() -> None:
    """Kills all that descends from this process, and waits until it is gone, but for what may not be signalled."""
    in_vain = 0
    while _has_children() and in_vain < 3:
        # A process that was born during a look may be missed by it, and is seen by the next one.
        in_vain = 0 if signal_all(signal.SIGKILL) else in_vain + 1
        time.sleep(0.002)


def _has_children() -> bool:
    """Those that have ended are waited for and forgotten."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    except ChildProcessError:
        return False


def signal_all(number: int) -> int:
    """Sends a signal to all that descends from this process. How many processes it was sent to."""
    own, group = os.getpid(), os.getpgrp()
    everything = {int(name): entry for name in _processes() if (entry := _entry(name)) is not None}
    targets = set()
    for pid, (state, _, _) in everything.items():
        above, seen = pid, 0
        while above in everything and above != own and seen < len(everything):
            above, seen = everything[above][1], seen + 1
        if above == own and pid != own and state != "Z":
            targets.add(pid)
    # A group gets it at one instant: none of its processes can start another one meanwhile.
    members: dict[int, set[int]] = {}
    for pid, entry in everything.items():
        members.setdefault(entry[2], set()).add(pid)
    for theirs in {everything[pid][2] for pid in targets} - {group, 0}:
        if members[theirs] <= targets:
            with contextlib.suppress(OSError):
                os.killpg(theirs, number)
    return sum(_send(pid, everything[pid][1], number) for pid in targets)


def _processes() -> list[str]:
    try:
        return [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _entry(name: str) -> Optional[tuple[str, int, int]]:
    """State, parent and process group."""
    try:
        with open(f"/proc/{name}/stat", "rb") as file:
            state, parent, group = file.read().rpartition(b") ")[2].split()[:3]
        return state.decode(), int(parent), int(group)
    except (OSError, ValueError):
        return None


def _send(pid: int, parent: int, number: int) -> bool:
    """Sends a signal, if the number still belongs to a process with that parent, or with this process as its parent."""

    def is_same() -> bool:
        entry = _entry(str(pid))
        return entry is not None and entry[1] in (parent, os.getpid())

    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        handle = -1
    try:
        if not is_same():
            return False
        if handle >= 0:
            signal.pidfd_send_signal(handle, number)
        else:
            os.kill(pid, number)
        return True
    except OSError:
        return False
    finally:
        if handle >= 0:
            os.close(handle)


def _end_as(status: int) -> NoReturn:
    """Ends this process as the worker ended, without a second core file."""
    if not os.WIFSIGNALED(status):
        os._exit(os.WEXITSTATUS(status))
    number = os.WTERMSIG(status)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)  # not for SIGKILL
    with contextlib.suppress(OSError, ValueError):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(128 + number)


def _note(number: int, frame: object) -> None:
    """The wakeup descriptor says it."""


def _prctl(option: int, value: int) -> None:
    """Where the system knows it; without it, only what stays the worker's own is found."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(ctypes.c_int(option), *(ctypes.c_ulong(number) for number in (value, 0, 0, 0)))
    except (ImportError, OSError, AttributeError):
        pass
