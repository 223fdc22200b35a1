"""Graphs of `plimsoll.compat.v1` beside those that TensorFlow builds of the same programs.

PLIMSOLL_TENSORFLOW names a Python with TensorFlow; without it, it is this one, if TensorFlow is installed there.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

from plimsoll.compat.v1 import DeviceSpec  # noqa: E402

TESTS = Path(__file__).resolve().parent
PROGRAMS = [*sorted((TESTS / "graphs").glob("[!d]*.py")), TESTS / "programs" / "cifar10_towers.py"]
# The nodes of gradients are those of our rules. A mean of zeros and first values of averages need no conditions here, and a loss of two
# dimensions no reshapes.
OTHERS = re.compile(
    r"(^|/)gradients(_\d+)?/|zero_fraction|(^|/)cond(_\d+)?/|IsVariableInitialized|softmax_cross_entropy_with_logits(_sg)?(_\d)?(/|$)"
)


def tensorflow():
    named = os.environ.get("PLIMSOLL_TENSORFLOW")
    if not named and importlib.util.find_spec("tensorflow") is not None:
        named = sys.executable
    if not named:
        pytest.skip("TensorFlow is not installed: PLIMSOLL_TENSORFLOW names a Python that has it")
    return named


def nodes(python, module, program):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)} if python == sys.executable else dict(os.environ)
    command = [python, str(TESTS / "graphs" / "dump.py"), module, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout)
    for node in made:
        # A device function's text stays as it is written in TensorFlow.
        node["device"] = DeviceSpec.from_string(node["device"]).to_string()
    return {node["name"]: node for node in made if not OTHERS.search(node["name"])}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_same_program_builds_the_same_graph(program):
    theirs = nodes(tensorflow(), "tensorflow.compat.v1", program)
    ours = nodes(sys.executable, "plimsoll.compat.v1", program)
    wrong = [f"{name}: only TensorFlow's" for name in theirs if name not in ours]
    wrong += [f"{name}: only ours" for name in ours if name not in theirs]
    for name in theirs.keys() & ours.keys():
        for part in ("op", "inputs", "device", "attrs", "class"):
            is_first_average = part == "inputs" and name.endswith("ExponentialMovingAverage/Assign")
            if ours[name][part] != theirs[name][part] and not is_first_average:
                wrong.append(f"{name}: {part} is {ours[name][part]}, TensorFlow's {theirs[name][part]}")
    assert not wrong, f"{len(wrong)} differences\n" + "\n".join(sorted(wrong)[:40])
