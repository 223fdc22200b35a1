"""Messages between a program and its workers, over a socket pair of their own.

A message is a head (`_HEAD`) and a payload: the lengths of the buffers, a pickle stream, and the buffers that the stream left out
(protocol 5). A large payload does not go through the socket but through a file in memory, which the reader maps: buffers stay where
they are for as long as they are used. The file is then free for another message, of which its writer is told with the next
head, since what costs time is not copying, but fresh pages.
"""

from __future__ import annotations

import array
import collections
import enum
import errno
import mmap
import os
import socket
import struct
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import Callable, Optional, Union

Chunk = Union[bytes, bytearray, memoryview]

_HEAD = struct.Struct("<BBxxIQQQ")  # kind, file (or _NO_FILE), buffers, bytes of the stream, of the payload, files that are free
_NO_FILE = 255
_FILES = 64
_ALIGNMENT = 64
_INLINE = 128 * 1024
"""Payloads up to this many bytes go through the socket: one that is not read yet is not to block its sender."""
_PIECE = 64 * 1024
_WORTH_HUGE_PAGES = 8 << 20
_LENT = 4
"""Files whose buffers are in use, for each direction; buffers of more are copied, since each takes a descriptor."""
_KEPT = 256 << 20, 2
"""Free files that are kept: of at most so many bytes, at most so many."""


class Kind(enum.IntEnum):
    # To the worker.
    SETUP = 1
    JOB = 2
    REST = 3
    # From the worker.
    HELLO = 10
    RESULT = 12
    ERROR = 13
    NOT_PICKLABLE = 14
    OUT_OF_MEMORY = 15
    EXIT = 16
    LOG = 18
    OUTPUT = 19


class Closed(Exception):
    """The other side is gone."""


class NoRoom(MemoryError):
    """There is no room to send a message, or for one that came. The channel is as before, and can be used."""


_LIMITS = {
    errno.EMFILE: ("open files", "RLIMIT_NOFILE", "ulimit -n"),
    errno.EFBIG: ("file sizes", "RLIMIT_FSIZE", "ulimit -f"),
    errno.EAGAIN: ("processes", "RLIMIT_NPROC", "ulimit -u"),
}
_EXHAUSTED = (errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.ENFILE, errno.ENOBUFS, errno.ETOOMANYREFS)


def no_room(what: str, error: OSError) -> Optional[str]:
    """The text for an error that came of a lack of memory or of a limit of this process. None for another one."""
    if error.errno in _LIMITS:
        import resource

        limited, name, option = _LIMITS[error.errno]
        return f"no room for {what}: the limit of {limited} is reached ({name}, {option}, now {resource.getrlimit(getattr(resource, name))[0]})"
    if error.errno in _EXHAUSTED:
        return f"no room for {what}: {error.strerror}"
    return None


class Message:
    """A message as it arrived: a stream to unpickle, before the next message is received, and the buffers that belong to it."""

    def __init__(self, kind: int, stream: memoryview, buffers: list[memoryview]) -> None:
        self.kind = kind
        self.stream = stream
        self.buffers = buffers


class Channel:
    """One end of the socket pair. `wait` comes back when there is something to read, and raises where that will not be."""

    def __init__(self, sock: socket.socket, wait: Optional[Callable[[], None]] = None) -> None:
        self._socket = sock
        self._wait = wait
        # A destructor that logs may run in the middle of `send`; its record goes before, since a message is sent by one call.
        self._sending = threading.RLock()
        self._arrived = bytearray()
        self._descriptors: collections.deque[int] = collections.deque()
        # Ours: written here, read there.
        self._files: dict[int, int] = {}
        self._free: list[int] = []
        # Theirs: how many are mapped, and those that no longer are, of which they have not been told.
        self._lent: set[int] = set()
        self._done: collections.deque[int] = collections.deque()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
        while self._files:
            os.close(self._files.popitem()[1])
        while self._descriptors:
            os.close(self._descriptors.popleft())

    @property
    def keeps_files(self) -> bool:
        """Whether there are files on one side or the other that another message could use."""
        return bool(self._files or self._lent or self._done)

    def rest(self) -> None:
        """Gives back the files that are free. The other side is told which of its own are when something is sent."""
        while self._free:
            os.close(self._files.pop(self._free.pop()))

    def send(self, kind: Kind, chunks: Sequence[Chunk] = (), buffers: Sequence[memoryview] = ()) -> None:
        """Sends a stream, in chunks, and its buffers. Raises `Closed` where there is no reader, and `NoRoom`."""
        stream = sum(len(chunk) for chunk in chunks)
        lengths = array.array("Q", [view.nbytes for view in buffers])
        start = _aligned(8 * len(lengths) + stream)
        total = start + sum(_aligned(length) for length in lengths)
        with self._sending:
            number = _NO_FILE
            done: list[int] = []
            try:
                if total > _INLINE:
                    number = self._a_file()
                while self._done:
                    done.append(self._done.popleft())
                head = _HEAD.pack(kind, number, len(buffers), stream, total, sum(1 << number for number in done))
                if number == _NO_FILE:
                    parts: list[Chunk] = [head, lengths.tobytes(), *chunks, bytes(start - 8 * len(lengths) - stream)]
                    for view in buffers:
                        parts += (view, bytes(-view.nbytes % _ALIGNMENT))
                    self._socket.sendall(b"".join(parts))
                    return
                file = self._files[number]
                if os.fstat(file).st_size < total:
                    os.ftruncate(file, total)
                at = _write(file, lengths.tobytes(), 0)
                for chunk in chunks:
                    at = _write(file, chunk, at)
                at = start
                for view in buffers:
                    _write(file, view, at)
                    at += _aligned(view.nbytes)
                socket.send_fds(self._socket, [head], [file])
            except ConnectionError as error:
                raise Closed from error
            except OSError as error:
                # Nothing of it was sent.
                self._done.extendleft(reversed(done))
                if number != _NO_FILE:
                    os.close(self._files.pop(number))
                said = no_room(f"a message of {total} bytes", error)
                if said is None:
                    raise
                raise NoRoom(said) from error

    def receive(self) -> Message:
        """The next message. Raises `Closed` where the other side is gone, even in the middle of it; `NoRoom`."""
        kind, number, count, stream, total, free = _HEAD.unpack(self._read(_HEAD.size))
        self._reclaim(free)
        payload = memoryview(self._read(total)) if number == _NO_FILE else self._map(number, total)
        lengths = array.array("Q", payload[: 8 * count].tobytes())
        body, rest = payload[8 * count : 8 * count + stream], payload[_aligned(8 * count + stream) :]
        if number != _NO_FILE and len(rest) and len(self._lent) > _LENT:
            fresh = _fresh(len(rest))
            fresh[:] = rest
            rest = fresh
        return Message(kind, body, _split(rest, lengths))

    def _a_file(self) -> int:
        """The number of a file to write to."""
        if self._free:
            return self._free.pop()
        number = next(number for number in range(_FILES + 1) if number not in self._files)
        if number == _FILES:
            return _NO_FILE
        self._files[number] = memory_file()
        return number

    def _reclaim(self, free: int) -> None:
        most, count = _KEPT
        for number in [number for number in self._files if free >> number & 1]:
            if len(self._free) < count and os.fstat(self._files[number]).st_size <= most:
                self._free.append(number)
            else:
                os.close(self._files.pop(number))

    def _map(self, number: int, size: int) -> memoryview:
        """The payload in a file, until the last view of it is gone. What is written to it is written to a copy."""
        if not self._descriptors:
            # The kernel drops what there is no number for.
            self._done.append(number)
            raise NoRoom(str(no_room(f"a message of {size} bytes", OSError(errno.EMFILE, ""))))
        file = self._descriptors.popleft()
        try:
            mapping = _map(file, size)
        except NoRoom:
            self._done.append(number)
            raise
        finally:
            os.close(file)
        self._lent.add(number)
        weakref.finalize(mapping, _given_back, number, self._lent, self._done).atexit = False
        return memoryview(mapping)

    def _read(self, size: int) -> bytearray:
        """So many bytes from the socket. Bytes beyond are for later."""
        while len(self._arrived) < size:
            if self._wait is not None:
                self._wait()
            try:
                flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
                more, ancillary, _, _ = self._socket.recvmsg(_PIECE, socket.CMSG_SPACE(4), flags)
            except ConnectionError as error:
                raise Closed from error
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    self._descriptors.append(struct.unpack("i", data[:4])[0])
            if not more:
                raise Closed
            self._arrived += more
        piece = self._arrived[:size]
        del self._arrived[:size]
        return piece


def _given_back(number: int, lent: set[int], done: collections.deque[int]) -> None:
    lent.discard(number)
    done.append(number)


def _split(rest: memoryview, lengths: array.array[int]) -> list[memoryview]:
    at, views = 0, []
    for length in lengths:
        views.append(rest[at : at + length])
        at += _aligned(length)
    return views


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _write(file: int, data: Chunk, at: int) -> int:
    view = memoryview(data)
    while len(view):
        written = os.pwrite(file, view, at)
        at += written
        view = view[written:]
    return at


def _map(file: int, size: int) -> mmap.mmap:
    """The contents of a file, in memory of our own that is copied when it is written to; -1 for nothing."""
    try:
        return mmap.mmap(file, size, access=mmap.ACCESS_COPY)
    except OSError as error:
        said = no_room(f"a message of {size} bytes", error)
        if said is None:
            raise
        raise NoRoom(said) from error


def _fresh(size: int) -> memoryview:
    memory = memoryview(_map(-1, size))
    want_huge_pages(memory)
    return memory


def want_huge_pages(memory: memoryview) -> None:
    """Asks the kernel for huge pages for memory that is about to be filled: most of the time of a large copy is in its page faults."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or len(memory) < _WORTH_HUGE_PAGES:
        return
    try:
        import ctypes

        at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        start, end = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE, (at + len(memory)) // mmap.PAGESIZE * mmap.PAGESIZE
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), ctypes.c_int(advice))
    except (ImportError, OSError, AttributeError, TypeError, ValueError):
        pass  # then they are small


def memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("plimsoll")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
