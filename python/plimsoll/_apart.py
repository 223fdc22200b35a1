"""A job on another machine: what an engine runs there. The job runs in a process of its own, under a lease of that machine."""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Iterator
from typing import IO, Any, Optional

from . import _main
from ._binary import LeaseOptions
from ._process import NotStarted, Worker
from ._wire import Message
from .reports import Report, attach

_FRAME = struct.Struct("<cQ")
"""A kind, `O` (output) or `A` (the answer), and the length of what follows."""


def asked(stream: bytes, buffers: list[bytes], what: str, lease: LeaseOptions, timeout: Optional[float]) -> bytes:
    """A job for `answers`."""
    path = [entry for entry in map(os.path.abspath, sys.path) if os.path.isdir(entry)]
    return pickle.dumps((stream, buffers, what, lease, timeout, path))


def answers(data: bytes) -> Iterator[bytes]:
    """Runs a job that `asked` made. Gives what `taken` makes its outcome of, as soon as it is there; then the process of the job ends, and
    with it the lease."""
    stream, buffers, what, lease, timeout, path = pickle.loads(data)
    sys.path += [entry for entry in path if entry not in sys.path and os.path.isdir(entry)]
    _main.adopt(("none", ""))  # that of the engine is not the program's
    worker: Optional[Worker] = None
    try:
        worker = Worker(lease)
        worker.greet()
        message = worker.run(([stream], [memoryview(buffer) for buffer in buffers]), what, timeout, read=lambda message: message)
        said = message.kind, bytes(message.stream), [bytes(buffer) for buffer in message.buffers]
        yield pickle.dumps(("said", said, worker.report))
    except NotStarted as never:
        yield pickle.dumps(("not started", never.args[0], None))
    except Exception as error:
        yield pickle.dumps(("raised", error, None if worker is None else worker.report))
    finally:
        if worker is not None:
            worker.close()


def taken(data: bytes) -> tuple[Optional[Message], Optional[BaseException], Optional[Report]]:
    """The message or the exception of an answer, and the report of the job."""
    kind, said, report = pickle.loads(data)
    if kind == "said":
        number, stream, buffers = said
        return Message(number, memoryview(stream), [memoryview(bytearray(buffer)) for buffer in buffers]), None, report
    if report is not None:
        attach(said, report)
    return None, NotStarted(said) if kind == "not started" else said, report


class _Output:
    """The standard output of a job: frames between which the answer stands."""

    encoding = "utf-8"

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        write_frame(self._file, b"O", text.encode("utf-8", "replace"))
        return len(text)

    def flush(self) -> None:
        self._file.flush()


def write_frame(file: IO[bytes], kind: bytes, data: bytes) -> None:
    file.write(_FRAME.pack(kind, len(data)))
    file.write(data)
    file.flush()


def read_frame(file: IO[bytes]) -> Optional[tuple[bytes, bytes]]:
    """A kind and what follows; None where it was cut short."""
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        return None
    kind, length = _FRAME.unpack(head)
    data = file.read(length)
    return (kind, data) if len(data) == length else None


def main() -> None:
    """A job on standard input; frames on standard output."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    output: Any = _Output(out)
    sys.stdout = output
    data: Any = sys.stdin.buffer.read()
    for each in answers(data):
        write_frame(out, b"A", each)


if __name__ == "__main__":
    main()
