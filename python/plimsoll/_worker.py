"""A worker: it runs the functions that it is sent, one after the other, until the sender is gone."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import io
import json
import logging
import mmap
import os
import pickle
import signal
import socket
import sys
import traceback
from typing import Any, Optional

from . import _frameworks, _hook, _main, _notes, _pickling
from ._wire import Channel, Chunk, Closed, Kind, Message

SHOW_AND_DIE = signal.SIGUSR1
"""The signal that a parent sends to a worker that took too long: it writes down where it is and ends."""


def main(lifeline: int, sock: int, notes: int, stderr: int) -> int:
    """Descriptors: the lifeline (see `_supervisor`), our end of the socket pair, the notes (see `_notes`), the standard error to use
    (-1: as it is)."""
    for descriptor in (lifeline, sock, notes):
        os.set_inheritable(descriptor, False)
    if stderr >= 0:
        os.dup2(stderr, 2)
        os.close(stderr)
    # Ends it, as every other signal; a KeyboardInterrupt here would be one there.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.enable(notes)
    faulthandler.register(SHOW_AND_DIE, notes, chain=True)
    # Mapped: writing is subject to a limit of file sizes.
    meter = _notes.Meter(mmap.mmap(notes, _notes.SIZE), _cards, _frameworks.begin)
    channel = Channel(socket.socket(fileno=sock))
    # A process that a function forks has no business here: only one speaks, and only once.
    os.register_at_fork(after_in_child=channel.close)
    try:
        setup = pickle.loads(channel.receive().stream)
        # From here on this group is killed by the kernel when the lifeline closes, and no longer the one that started the worker.
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
        _prepare(setup, channel)
        _say(channel, Kind.HELLO, (os.getpid(), os.getppid()))
        memory = _Memory(setup["recycle_above"])
        while not memory.stays():
            try:
                message = _job(channel)
            except MemoryError as error:
                meter.begin()
                meter.done()
                _out_of_memory(channel, error)
                continue
            meter.begin()
            _work(channel, message, meter)
            del message
        # The next job goes to another worker, which is not that big.
        channel.close()
        return 0
    except Closed:
        return 0


def _job(channel: Channel) -> Message:
    while True:
        message = channel.receive()
        if message.kind != Kind.REST:
            return message
        channel.rest()


def _cards() -> list[dict[str, Any]]:
    """The cards of the lease, and the memory on them by the counts of loaded frameworks."""
    text = os.environ.get("PLIMSOLL_FRAMEWORK_LIMITS")
    if not text:
        return []
    try:
        cards = [{"name": card["model"], "uuid": card["uuid"], "bytes": card["bytes"]} for card in json.loads(text)["cards"]]
        for card, observed in zip(cards, _frameworks.observed()):
            card["observed"] = observed
        return cards
    except Exception:
        return []


def _prepare(setup: dict[str, Any], channel: Channel) -> None:
    sys.path[:] = setup["path"]
    sys.argv[:] = setup["argv"]
    _hook.install()
    _main.adopt(setup["main"])
    for name, forwarded in zip(("stdout", "stderr"), setup["forward"]):
        if forwarded:
            setattr(sys, name, _text(_Forwarded(channel, name)))
        else:
            stream = getattr(sys, name)
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)  # output from before a crash is seen
    logging.root.addHandler(_Logs(channel))
    logging.root.setLevel(setup["logging"][0])
    for name, level in setup["logging"][1].items():
        logging.getLogger(name).setLevel(level)


def _work(channel: Channel, message: Message, meter: _notes.Meter) -> None:
    """Runs a job and says what came of it."""
    try:
        try:
            function, args, kwargs = _pickling.loads(message)
        except MemoryError:
            meter.done()
            raise
        except BaseException as error:
            meter.done()
            text = f"the function or its arguments cannot be read in the worker: {_short(error)}"
            return _failed(channel, Kind.NOT_PICKLABLE, text, error)
        finally:
            message.stream.release()
            message.buffers.clear()
        try:
            try:
                result = getattr(function, "__plimsoll_function__", function)(*args, **kwargs)
            finally:
                meter.done()  # before the answer, with which the program reads it
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, (int, str, type(None))) else str(exit.code)
            return _failed(channel, Kind.EXIT, code, exit)
        except MemoryError:
            raise
        except BaseException as error:
            return _raised(channel, error)
        finally:
            function = args = kwargs = None
        try:
            chunks, buffers = _pickling.dumps(result)
        except MemoryError:
            raise
        except BaseException as error:
            text = f"the result, of type {type(result).__qualname__}, cannot be pickled: {_short(error)}"
            return _failed(channel, Kind.NOT_PICKLABLE, text, error)
        _flush()
        channel.send(Kind.RESULT, chunks, buffers)
    except MemoryError as error:
        _out_of_memory(channel, error)


def _out_of_memory(channel: Channel, error: MemoryError) -> None:
    text, trace = str(error) or "out of memory", ""
    # The frames hold the objects that fill the memory.
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    try:
        trace = _trace(error)
    except MemoryError:
        pass
    error.__traceback__ = error.__context__ = error.__cause__ = None
    _flush()
    _say(channel, Kind.OUT_OF_MEMORY, (text, trace))


def _raised(channel: Channel, error: BaseException) -> None:
    """Sends the function's exception: the exception, if it can be pickled, its type and text, and where."""
    trace = _trace(error)
    try:
        pickled: Optional[bytes] = _pickling.to_bytes(error)
    except MemoryError:
        raise
    except BaseException:
        pickled = None
    _flush()
    _say(channel, Kind.ERROR, (pickled, _short(error), trace))


def _failed(channel: Channel, kind: Kind, what: Any, error: BaseException) -> None:
    trace = _trace(error)
    _flush()
    _say(channel, kind, (what, trace))


def _trace(error: BaseException) -> str:
    """The traceback as Python prints it, from the function on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and frames.tb_frame.f_globals is globals():
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def _short(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def _say(channel: Channel, kind: Kind, what: Any) -> None:
    channel.send(kind, [pickle.dumps(what)])


def _flush() -> None:
    """So that the output is there before the result is."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError, OSError):
            pass  # None, closed, or without a reader


class _Memory:
    """Whether the process has kept memory that it did not have after its first job."""

    def __init__(self, above: Optional[int]) -> None:
        self._above = above
        self._baseline: Optional[int] = None
        self._has_worked = False

    def stays(self) -> bool:
        """To be called before each job."""
        if self._above is None or not self._has_worked:
            self._has_worked = True
            return False
        if self._baseline is None:
            # The first job brings the libraries; its other remains are garbage.
            gc.collect()
            self._baseline = _resident()
        if _resident() <= self._baseline + self._above:
            return False
        gc.collect()
        _give_back()
        return _resident() > self._baseline + self._above


def _resident() -> int:
    """Bytes of memory of this process alone."""
    try:
        with open("/proc/self/statm", "rb") as file:
            _, resident, shared = map(int, file.read().split()[:3])
    except OSError:
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def _give_back() -> None:
    """Has the C library give free memory back, where it is one that must be asked."""
    try:
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        pass


class _Forwarded(io.RawIOBase):
    """Standard output or error of a program whose own is not a file: a notebook, or one that has redirected it."""

    _PIECE = 32 * 1024

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self._process = os.getpid()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if self._process != os.getpid():  # forked by the function
            return os.write(1 if self._name == "stdout" else 2, view)
        for at in range(0, len(view), self._PIECE):
            _say(self._channel, Kind.OUTPUT, (self._name, view[at : at + self._PIECE].tobytes()))
        return len(view)


def _text(raw: io.RawIOBase) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True)


class _Logs(logging.Handler):
    """Gives records to the program, whose handlers decide what becomes of them."""

    _MOST = 32 * 1024

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._process = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if self._process != os.getpid():  # forked by the function
            if logging.lastResort is not None:
                logging.lastResort.handle(record)
            return
        fields = dict(record.__dict__)
        fields["msg"], fields["args"] = record.getMessage()[: self._MOST], None
        if record.exc_info:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)[-self._MOST :]
            fields["exc_info"] = None
        try:
            chunk: Chunk = _pickling.to_bytes(fields)
        except Exception:
            known = logging.makeLogRecord({}).__dict__
            chunk = pickle.dumps({name: fields.get(name) for name in known})
        if len(chunk) > 2 * self._MOST + 4096:
            known = logging.makeLogRecord({}).__dict__
            chunk = pickle.dumps({name: fields.get(name) for name in known})
        try:
            self._channel.send(Kind.LOG, [chunk])
        except Closed:
            pass
