"""TensorFlow 1's `tf.math`."""

from __future__ import annotations

from typing import Any, List

from . import _math
from ._missing import missing

_absent = missing("plimsoll.compat.v1.math")


def __getattr__(name: str) -> Any:
    found = _math.function(name)
    return _absent(name) if found is None else found


def __dir__() -> List[str]:
    return sorted(_math.names())
