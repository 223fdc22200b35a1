"""Cards for this process: `lease`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from types import TracebackType
from typing import IO, Optional, Union

from . import _hook
from ._binary import Gpus, LeaseOptions, Memory
from ._process import kill_when_closed
from .errors import LeaseRefused

# Sends what `plimsoll run` has set, and the descriptors that it has handed on, and stays for as long as its standard input is open.
_HOLDER = """
import json, os, socket, stat, sys
ours = socket.socket(fileno=int(sys.argv[1]))
handed_on = []
for number in range(3, 1024):
    try:
        if number != ours.fileno() and stat.S_ISREG(os.fstat(number).st_mode):
            handed_on.append(number)
    except OSError:
        pass
with open(os.memfd_create("environment"), "w+") as file:
    json.dump(dict(os.environ), file)
    file.flush()
    socket.send_fds(ours, [b"!"], [file.fileno(), *handed_on[:8]])
ours.close()
os.read(0, 1)
"""
_FOR_ITS_EXIT = 5.0


class Lease:
    """The result of `lease`: in its `with` block, cards belong to this process.

    A small program under `plimsoll run` takes them, and hands on the descriptor by which they are held, so that this process counts as
    one that has them. It ends with the block, and when this process ends, however that comes about.
    """

    environment: dict[str, str]
    """The variables that are set in the block: CUDA_VISIBLE_DEVICES, and those by which frameworks take their share."""

    def __init__(self, options: LeaseOptions) -> None:
        self.environment = {}
        self._options = options
        self._holder: Optional[subprocess.Popen[bytes]] = None
        self._lifeline = -1
        self._held: list[int] = []
        self._before: dict[str, Optional[str]] = {}

    def __enter__(self) -> Lease:
        if self._holder is not None:
            raise RuntimeError("this lease is held already")
        command = [*self._options.command(), sys.executable, "-I", "-S", "-c", _HOLDER]
        stdin, self._lifeline = os.pipe()
        ours, theirs = socket.socketpair()
        try:
            self._holder = subprocess.Popen(
                [*command, str(theirs.fileno())],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            kill_when_closed(stdin, self._holder.pid)
        except BaseException:
            ours.close()
            os.close(self._lifeline)
            raise
        finally:
            theirs.close()
            os.close(stdin)
        said: list[bytes] = []
        assert self._holder.stderr is not None
        reader = threading.Thread(target=_read, args=(self._holder.stderr, said), daemon=True)
        reader.start()
        try:
            with ours:
                said_so, files, _, _ = socket.recv_fds(ours, 1, 16, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        except BaseException:
            self._end()
            raise
        if not said_so:
            status = self._end()
            reader.join()
            message = b"".join(said).decode("utf-8", "replace").strip()
            raise LeaseRefused(message.partition("error: ")[2] or message or f"{command[0]} run ended with status {status}")
        environment, *self._held = files
        with open(environment) as file:
            file.seek(0)
            self._apply(json.load(file))
        return self

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        self._end()

    def _apply(self, theirs: dict[str, str]) -> None:
        ours = dict(os.environ)
        self.environment = {name: value for name, value in theirs.items() if ours.get(name) != value}
        for name in [*self.environment, *(name for name in ours if name not in theirs)]:
            self._before[name] = ours.get(name)
            if name in theirs:
                os.environ[name] = theirs[name]
            else:
                del os.environ[name]
        _hook.install()

    def _end(self) -> int:
        """Lets the holder end, and waits until it has: the cards are free then. Its status."""
        holder, self._holder = self._holder, None
        assert holder is not None
        while self._held:
            os.close(self._held.pop())
        os.close(self._lifeline)
        try:
            return holder.wait(_FOR_ITS_EXIT)
        except BaseException:
            os.killpg(holder.pid, signal.SIGKILL)
            holder.wait()
            raise


def _read(stream: IO[bytes], said: list[bytes]) -> None:
    """The output of `plimsoll run`: its beginning is kept, and all of it is read, so that it can go on."""
    with stream:
        for line in stream:
            if len(said) < 100:
                said.append(line)


def lease(
    gpus: Optional[Gpus] = 1,
    *,
    memory: Optional[Memory] = None,
    wait: Union[bool, float] = False,
    priority: Optional[int] = None,
    name: Optional[str] = None,
) -> Lease:
    """Cards for this process, for a `with` block. Refused at once (`LeaseRefused`) where they are not free, unless `wait` is given.

    Frameworks look at the environment when they are imported or first used: do that in the block. What they take of a card they
    keep until the process ends; a function that is to give everything back belongs in `call` or a `Pool`.
    """
    options = LeaseOptions(gpus, memory, wait, priority, name or os.path.basename(sys.argv[0]) or "python")
    if not options.needs_lease():
        raise ValueError("gpus=None and memory=None: nothing to lease; give gpus=N or memory=SIZE, or leave both out")
    return Lease(options)
