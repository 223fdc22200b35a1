"""Summaries: nodes as TensorFlow makes them, whose values are made here of the tensors that they summarise."""

from __future__ import annotations

import struct
from typing import Any, Callable, List, Tuple

import numpy

from ._graph import Operation, Tensor

OPERATIONS = ("ScalarSummary", "HistogramSummary", "MergeSummary")


def varint(number: int) -> bytes:
    """A number in protobuf's variable length."""
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def field(number: int, value: Any) -> bytes:
    """A field of a message: bytes and texts with their length, ints as varints, floats as doubles."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 1) + struct.pack("<d", value)


def _scalar(tag: str, value: Any) -> bytes:
    number = float(numpy.asarray(value, dtype=numpy.float64))
    return field(1, field(1, tag) + varint(2 << 3 | 5) + struct.pack("<f", number))


def _limits() -> Any:
    """TensorFlow's limits of buckets: a tenth apart, around 0."""
    above = []
    limit = 1e-12
    while limit < 1e20:
        above.append(limit)
        limit *= 1.1
    top = numpy.finfo(numpy.float64).max
    return numpy.array([-top, *(-each for each in reversed(above)), 0.0, *above, top])


def _histogram(tag: str, value: Any) -> bytes:
    numbers = numpy.asarray(value, dtype=numpy.float64).ravel()
    if not numpy.isfinite(numbers).all():
        from ... import errors

        raise errors.InvalidArgumentError(f"Nan in summary histogram for: {tag}")
    limits = _limits()
    counts = numpy.bincount(numpy.searchsorted(limits, numbers, side="right").clip(0, len(limits) - 1), minlength=len(limits))
    # Of neighbouring empty buckets the last is kept.
    kept = [i for i in range(len(limits)) if counts[i] > 0 or (i + 1 < len(limits) and counts[i + 1] > 0)] or [len(limits) - 1]
    parts = [float(numbers.min(initial=0.0) if not numbers.size else numbers.min()), float(numbers.max() if numbers.size else 0.0)]
    parts += [float(numbers.size), float(numbers.sum()), float((numbers * numbers).sum())]
    message = b"".join(field(index + 1, part) for index, part in enumerate(parts))
    message += field(6, limits[kept].astype("<f8").tobytes()) + field(7, counts[kept].astype("<f8").tobytes())
    return field(1, field(1, tag) + field(5, message))


def computed(op: Operation) -> Tuple[Callable[..., bytes], List[Tensor]]:
    """How the value of a summary is made, and of which tensors."""
    if op.type == "MergeSummary":
        parts = [computed(tensor.op) for tensor in op.inputs]
        counts = [len(tensors) for _, tensors in parts]

        def merged(*values: Any) -> bytes:
            made, at = b"", 0
            for (work, _), count in zip(parts, counts):
                made += work(*values[at : at + count])
                at += count
            return made

        return merged, [tensor for _, tensors in parts for tensor in tensors]
    tag = op.graph._builder.value(op.inputs[0]._key)
    text = tag.decode() if isinstance(tag, bytes) else str(tag)
    make = _scalar if op.type == "ScalarSummary" else _histogram
    return lambda value: make(text, value), [op.inputs[1]]
