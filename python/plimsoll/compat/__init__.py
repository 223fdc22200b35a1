"""Interfaces of older TensorFlow: `plimsoll.compat.v1`."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name == "v1":
        return importlib.import_module("plimsoll.compat.v1")
    raise AttributeError(f"module 'plimsoll.compat' has no attribute '{name}'")
