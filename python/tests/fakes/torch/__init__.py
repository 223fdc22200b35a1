"""FAKE_TORCH is "old" for a version whose allocator does not know a share."""

import os

if os.environ.get("FAKE_TORCH_FAILS"):
    raise OSError("libcudart.so is missing")

from . import _C, cuda  # noqa: E402, F401
