"""Logs of placement, where TensorFlow writes them: nodes on standard output, remarks on standard error."""

from __future__ import annotations

import sys
from typing import List, Optional


def placement(notes: List[str], lines: List[str]) -> None:
    """Called for each session that is opened, and later with notes on nodes that the host computes in place of their device."""
    for stream, texts in ((sys.stderr, notes), (sys.stdout, lines)):
        if texts and stream is not None:
            stream.write("\n".join(texts) + "\n")


def device_mapping(mapping: Optional[str]) -> None:
    """The cards of the logical devices, where placements are logged."""
    if mapping is not None and sys.stderr is not None:
        sys.stderr.write(mapping + "\n")
