"""Answers of a worker, turned into results and exceptions here."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import traceback
from typing import Any, Optional

from . import _pickling
from ._wire import Kind, Message
from .errors import NotPicklable, RemoteError, RemoteTraceback, WorkerExit, WorkerOutOfMemory


def outcome(message: Message) -> Any:
    """The result. Raises the function's exception, or the reason why there is no result."""
    if message.kind == Kind.RESULT:
        try:
            return _pickling.loads(message)
        except MemoryError:
            raise
        except Exception as error:
            text = "".join(traceback.format_exception_only(type(error), error)).strip()
            raise NotPicklable(f"the result cannot be read here: {text}") from error
    said = pickle.loads(message.stream)
    if message.kind == Kind.ERROR:
        pickled, text, trace = said
        raise _original(pickled, text, trace)
    text, trace = said
    if message.kind == Kind.EXIT:
        raise WorkerExit(text, trace)
    if message.kind == Kind.OUT_OF_MEMORY:
        raise WorkerOutOfMemory(text, trace)
    raise NotPicklable(text, trace)


def _original(pickled: Optional[bytes], text: str, trace: str) -> BaseException:
    """The exception of the function, where it can be had here."""
    try:
        error = None if pickled is None else _pickling.from_bytes(pickled)
    except Exception:
        error = None
    if not isinstance(error, BaseException):
        return RemoteError(text, trace)
    error.__cause__ = RemoteTraceback(trace)
    return error


def hand_on(message: Message) -> None:
    """A record of a worker's log, to the handlers that there are here."""
    try:
        record = logging.makeLogRecord(_pickling.loads(message))
    except Exception:
        return
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def show(message: Message) -> None:
    """The output of a worker, where standard output or error is not a file."""
    name, text = pickle.loads(message.stream)
    with contextlib.suppress(Exception):  # there is none, or it is closed
        getattr(sys, name).write(text.decode("utf-8", "replace"))
