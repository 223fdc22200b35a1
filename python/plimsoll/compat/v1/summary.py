"""TensorFlow 1's `tf.summary`: scalars, histograms, and files of events that TensorBoard reads."""

from __future__ import annotations

import os
import struct
import time
from typing import Any, List, Optional

from ._graph import Graph, GraphKeys, Tensor, get_collection, get_default_graph
from ._missing import missing, refuse
from ._op import apply_op, constant
from ._summaries import field

__getattr__ = missing("plimsoll.compat.v1.summary")


def _summary(op: str, name: str, values: Any, collections: Any, family: Any, argument: str) -> Tensor:
    refuse("summary", family=family)
    graph = get_default_graph()
    clean = "".join(each if each.isalnum() or each in "._-/" else "_" for each in name).lstrip("/")
    with graph.name_scope(clean) as scope:
        tag = scope.rstrip("/")
        text = constant(tag, "string", name="tags" if op == "ScalarSummary" else "tag")
        made: Tensor = apply_op(op, scope, **{"tags" if op == "ScalarSummary" else "tag": text, argument: values})
    graph.add_to_collections([GraphKeys.SUMMARIES] if collections is None else collections, made)
    return made


def scalar(name: str, tensor: Any, collections: Any = None, family: Any = None) -> Tensor:
    """A number for each step."""
    return _summary("ScalarSummary", name, tensor, collections, family, "values")


def histogram(name: str, values: Any, collections: Any = None, family: Any = None) -> Tensor:
    """The distribution of a tensor's elements for each step."""
    return _summary("HistogramSummary", name, values, collections, family, "values")


def merge(inputs: Any, collections: Any = None, name: Optional[str] = None) -> Tensor:
    """Several summaries as one."""
    with get_default_graph().name_scope(name or "Merge"):
        made: Tensor = apply_op("MergeSummary", None, inputs=list(inputs))
    get_default_graph().add_to_collections(collections or [], made)
    return made


def merge_all(key: Any = GraphKeys.SUMMARIES, scope: Optional[str] = None, name: Optional[str] = None) -> Optional[Tensor]:
    """All summaries of a collection as one; None where there are none."""
    found = get_collection(key, scope)
    return merge(found, name=name) if found else None


class FileWriter:
    """Writes events into a file in a folder, which is made if it is not there."""

    def __init__(
        self, logdir: str, graph: Optional[Graph] = None, max_queue: int = 10, flush_secs: int = 120, filename_suffix: Optional[str] = None
    ) -> None:
        os.makedirs(logdir, exist_ok=True)
        self._logdir = logdir
        name = f"events.out.tfevents.{int(time.time()):010d}.{os.uname().nodename}{filename_suffix or ''}"
        self._file = open(os.path.join(logdir, name), "ab")
        self._event(field(3, "brain.Event:2"))
        if graph is not None:
            self.add_graph(graph)

    def get_logdir(self) -> str:
        return self._logdir

    def add_summary(self, summary: bytes, global_step: Any = None) -> None:
        """Writes what a summary's run gave."""
        self._event(field(5, bytes(summary)), global_step)

    def add_graph(self, graph: Graph, global_step: Any = None) -> None:
        """Writes a graph."""
        self._event(field(4, graph.as_graph_def().SerializeToString()), global_step)

    def _event(self, what: bytes, step: Any = None) -> None:
        if self._file.closed:
            raise RuntimeError("Attempting to use a closed FileWriter.")
        event = field(1, time.time()) + (b"" if step is None else field(2, int(step))) + what
        length = struct.pack("<Q", len(event))
        self._file.write(length + _masked(length) + event + _masked(event))

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


_table: List[int] = []


def _masked(data: bytes) -> bytes:
    """The CRC-32C of a record's part, masked as in all files of records."""
    if not _table:
        for value in range(256):
            for _ in range(8):
                value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
            _table.append(value)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
