#!/usr/bin/env python3
"""Writes crates/train/data/digits.bin: the handwritten digits that scikit-learn ships.

    python scripts/export_digits.py     (needs scikit-learn)

A record for each image: 64 bytes of pixels (0 to 16, row by row), then one byte, the digit. No header.
"""
import pathlib

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
images, labels = digits.data, digits.target
assert images.shape == (1797, 64) and labels.shape == (1797,)
assert (images == images.astype(np.uint8)).all() and images.max() == 16 and set(labels) == set(range(10))
records = np.concatenate([images, labels[:, None]], axis=1).astype(np.uint8)
path = pathlib.Path(__file__).parent.parent / "crates/train/data/digits.bin"
path.write_bytes(records.tobytes())
print(f"{path}: {path.stat().st_size} bytes")
