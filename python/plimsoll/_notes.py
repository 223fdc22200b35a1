"""Notes: a file in memory that a worker, its supervisor and the program share. Its contents stay, whatever the worker dies of.

Numbers at the beginning, then a text about cards, then the tracebacks of the dying.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, Optional

SIZE = 8192
"""Where tracebacks begin."""
_BEGUN = struct.Struct("<QQ")  # jobs that were begun; processor time before the last, in microseconds
_DONE = struct.Struct("<QQqI")  # jobs that were done; of the last: processor time, peak resident bytes (-1: not known), bytes of the text
_ENDED = struct.Struct("<QQ")  # processor time and peak resident bytes of the process as a whole; 0 where it lives
_AT_DONE = 64
_AT_ENDED = 128
_AT_TEXT = 256


class Took(NamedTuple):
    """The resources of a job."""

    processor_seconds: Optional[float] = None
    peak_resident_bytes: Optional[int] = None
    cards: tuple[dict[str, Any], ...] = ()


def begin(notes: Any, jobs: int, processor: float) -> None:
    """In the worker: so many jobs were begun."""
    _BEGUN.pack_into(notes, 0, jobs, int(processor * 1e6))


def done(notes: Any, jobs: int, processor: float, peak: Optional[int], cards: list[dict[str, Any]]) -> None:
    """In the worker: so many were done, and the last one took that."""
    text = b""
    if cards:
        import json  # for this alone: a worker starts for every `call`

        text = json.dumps(cards).encode()
    if len(text) > SIZE - _AT_TEXT:
        text = b""
    notes[_AT_TEXT : _AT_TEXT + len(text)] = text
    _DONE.pack_into(notes, _AT_DONE, jobs, int(processor * 1e6), -1 if peak is None else peak, len(text))


def ended(notes: int, processor: float, peak: int) -> None:
    """In the supervisor: the worker has ended. `notes` is the file."""
    try:
        os.pwrite(notes, _ENDED.pack(int(processor * 1e6), peak), _AT_ENDED)
    except OSError:
        pass


def begun(notes: int) -> int:
    """In the program: how many jobs were begun."""
    return int(_BEGUN.unpack_from(_read(notes))[0])


def took(notes: int, jobs: int) -> Took:
    """In the program: the resources of the last of so many jobs, as far as they are known."""
    text = _read(notes)
    number, before = _BEGUN.unpack_from(text)
    finished, processor, peak, length = _DONE.unpack_from(text, _AT_DONE)
    if finished == jobs:
        said: list[dict[str, Any]] = []
        if length:
            import json

            said = json.loads(text[_AT_TEXT : _AT_TEXT + length])
        return Took(processor / 1e6, None if peak < 0 else peak, tuple(said))
    whole, most = _ENDED.unpack_from(text, _AT_ENDED)
    if number != jobs or not most:
        return Took()
    return Took(max(whole - before, 0) / 1e6, most)


def _read(notes: int) -> bytes:
    text = os.pread(notes, SIZE, 0)
    return text + bytes(SIZE - len(text))


class Meter:
    """In a worker: what each job takes."""

    def __init__(self, notes: Any, describe: Callable[[], list[dict[str, Any]]], begin_cards: Callable[[], None]) -> None:
        self._notes = notes
        self._describe = describe
        self._begin_cards = begin_cards
        self._jobs = 0
        self._before = 0.0
        self._peak: Optional[int] = None
        # Writing 5 has the kernel count the peak anew.
        try:
            self._refs = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._refs = -1

    def begin(self) -> None:
        """Before a job."""
        self._jobs += 1
        self._before, peak = usage()
        self._peak = peak
        if self._jobs > 1:
            self._begin_cards()
            try:
                os.write(self._refs, b"5")
                self._peak = 0
            except OSError:
                pass
        else:
            self._peak = 0  # the process's memory until here is part of it
        begin(self._notes, self._jobs, self._before)

    def done(self) -> None:
        """After it."""
        now, peak = usage()
        # Where it was not counted anew, a peak that has not grown is that of an earlier job.
        known = peak if self._peak is None or peak > self._peak else None
        done(self._notes, self._jobs, now - self._before, known, self._describe())


def usage() -> tuple[float, int]:
    """Of this process: processor seconds, those of children that were waited for included, and its peak resident bytes."""
    import resource

    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, own.ru_maxrss << 10
