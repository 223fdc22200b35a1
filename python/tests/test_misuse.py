"""Random misuse ends in exceptions, and never takes the process with it. PLIMSOLL_MISUSE=100 tries as many seeds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PLIMSOLL_MISUSE", "3"))))
def test_misuse(seed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PLIMSOLL_STATE_DIR": str(tmp_path / "state"), "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, str(Path(__file__).with_name("misuse.py")), str(seed), "800"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-3000:]}"
    assert "panicked" not in done.stderr, done.stderr[-3000:]
