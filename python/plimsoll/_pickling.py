"""Objects to messages and back.

What can be imported goes by reference. What cannot, and what `__main__` defines, goes by value where cloudpickle is installed, so that
notebooks work and scripts need no `if __name__ == "__main__"`. What cloudpickle cannot take either, and everything where it is missing,
goes as pickle has it: by reference, `__main__` as `_main` says; functions that cannot be imported go by value in a plain way
(`_functions`).
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union, cast

from . import _functions, _main
from ._wire import Chunk, Message, want_huge_pages

Pickled = tuple[list[Chunk], list[memoryview]]


class _Chunks:
    """A file that keeps written objects as they are: large ones are not copied."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def write(self, data: Chunk) -> int:
        self.chunks.append(data)
        return len(data)


class _ByValue(Exception):
    """Something has to go by value."""


class _ByReference(pickle.Pickler):
    """A pickle that is the same with cloudpickle and without it, made without the time of its import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (types.FunctionType, type)) and (obj.__module__ in ("__main__", "__mp_main__") or not _is_found(obj)):
            raise _ByValue
        if isinstance(obj, types.ModuleType):
            return _module, (obj.__name__,)
        return NotImplemented


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


def _is_found(obj: Union[types.FunctionType, type]) -> bool:
    """Whether the other side comes to a function or a class by its module and its name."""
    if obj.__module__ == "__main__" and _main.describe()[0] == "none":
        return False
    found: Any = sys.modules.get(obj.__module__)
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


def dumps(obj: Any) -> Pickled:
    """The object as a stream in chunks and the buffers beside it. Raises what pickle raises."""
    buffers: list[pickle.PickleBuffer] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        """Whether the buffer goes in the stream."""
        try:
            buffer.raw()
        except BufferError:  # not contiguous
            return True
        buffers.append(buffer)
        return False

    chunks = _dumped(obj, beside, buffers.clear)
    return chunks, [buffer.raw() for buffer in buffers]


def to_bytes(obj: Any) -> bytes:
    """The object in one piece."""
    return b"".join(_dumped(obj, None, lambda: None))


def _dumped(obj: Any, beside: Optional[Callable[[pickle.PickleBuffer], bool]], begin: Callable[[], None]) -> list[Chunk]:
    failed: Optional[Exception] = None
    for pickler in _picklers():
        begin()
        file = _Chunks()
        try:
            pickler(file, protocol=5, buffer_callback=beside).dump(obj)
        except MemoryError:
            raise
        except _ByValue:
            continue
        except Exception as error:
            # Of the picklers by value the first has the best error.
            if pickler is not _ByReference and failed is None:
                failed = error
        else:
            return file.chunks
    assert failed is not None, "the last of them has the error"
    raise failed


def _picklers() -> Iterator[Any]:
    """Who is asked, one after the other."""
    if not _are_modules_by_value():
        yield _ByReference
    try:
        import cloudpickle
    except ImportError:
        pass
    else:
        yield cloudpickle.CloudPickler
    yield _Plain


def _are_modules_by_value() -> bool:
    """Whether the program told cloudpickle of modules whose contents go by value."""
    if "cloudpickle" not in sys.modules:
        return False
    try:
        import cloudpickle  # another thread may be about it: this waits until it is whole
    except ImportError:
        return False
    return bool(getattr(cloudpickle, "list_registry_pickle_by_value", tuple)())  # since 2.0


def loads(message: Message) -> Any:
    """The object of a message. Raises what unpickling raises."""
    stream = cast(Any, _Stream(message.stream))
    return _Unpickler(stream, buffers=message.buffers).load()


def from_bytes(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


class _Stream:
    """A file for pickle to read, from memory. `readinto` copies a large object to its final place, which is the only copy."""

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
