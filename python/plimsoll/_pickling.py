"""Objects to messages and back.

cloudpickle is used where it is installed: what `__main__` defines then goes by value, so that notebooks work and scripts need no
`if __name__ == "__main__"`. What it cannot take, and everything where it is missing, goes as pickle has it: by reference, `__main__`
as `_main` says; functions that cannot be imported go by value in a plain way (`_functions`).
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from typing import Any, Union, cast

from . import _functions, _main
from ._wire import Chunk, Message, want_huge_pages

try:
    import cloudpickle
except ImportError:
    cloudpickle = None

Pickled = tuple[list[Chunk], list[memoryview]]


class _Chunks:
    """A file that keeps what is written, as it is: large objects are not copied."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def write(self, data: Chunk) -> int:
        self.chunks.append(data)
        return len(data)


class _Plain(pickle.Pickler):
    def __init__(self, file: Any, **options: Any) -> None:
        super().__init__(file, **options)
        self._globals: dict[int, dict[str, Any]] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.FunctionType) and not _is_found(obj):
            return _functions.reduce_function(obj, self._globals.setdefault(id(obj.__globals__), {}))
        if isinstance(obj, types.ModuleType):
            return _module, (obj.__name__,)
        return NotImplemented


def _module(name: str) -> types.ModuleType:
    __import__(name)
    return sys.modules[name]


def _is_found(function: types.FunctionType) -> bool:
    """Whether the worker comes to this function by its module and its name."""
    if function.__module__ == "__main__" and _main.describe()[0] == "none":
        return False
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def dumps(obj: Any) -> Pickled:
    """The object as a stream in chunks and the buffers beside it. Raises what pickle raises."""
    if cloudpickle is not None:
        try:
            return _dump(cloudpickle.CloudPickler, obj)
        except MemoryError:
            raise
        except Exception as error:
            # By reference it may yet go: a function of a script that uses a lock.
            try:
                return _dump(_Plain, obj)
            except Exception:
                raise error from None
    return _dump(_Plain, obj)


def _dump(pickler: Any, obj: Any) -> Pickled:
    file = _Chunks()
    buffers: list[pickle.PickleBuffer] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        """Whether the buffer goes in the stream."""
        try:
            buffer.raw()
        except BufferError:  # not contiguous
            return True
        buffers.append(buffer)
        return False

    pickler(file, protocol=5, buffer_callback=beside).dump(obj)
    return file.chunks, [buffer.raw() for buffer in buffers]


def loads(message: Message) -> Any:
    """The object of a message. Raises what unpickling raises."""
    stream = cast(Any, _Stream(message.stream))
    return _Unpickler(stream, buffers=message.buffers).load()


def to_bytes(obj: Any) -> bytes:
    """The object in one piece."""
    file = io.BytesIO()
    pickler: Any = _Plain if cloudpickle is None else cloudpickle.CloudPickler
    pickler(file, protocol=5).dump(obj)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


class _Stream:
    """What pickle reads, from memory. `readinto` copies a large object to where it stays, and that is all the copying there is."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._data) if size < 0 else self._at + size
        piece = self._data[self._at : end].tobytes()
        self._at += len(piece)
        return piece

    def readinto(self, target: Union[bytearray, memoryview]) -> int:
        piece = self._data[self._at : self._at + len(target)]
        want_huge_pages(memoryview(target))
        target[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def readline(self) -> bytes:
        rest = self._data[self._at :].tobytes()
        return self.read(rest.find(b"\n") + 1 or len(rest))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("__main__", "__mp_main__"):
            return _main.find(name)
        return super().find_class(module, name)


