"""The programs in Python of docs/book.md are true: each `py` block runs as a program on a machine of its own and prints the `text` block below
it. PLIMSOLL_BLESS=1 writes what they print anew. (The blocks `python` need no native module: `cli/tests/cli/pages.rs` runs them.)"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

import plimsoll  # noqa: E402

PROJECT = Path(__file__).resolve().parent.parent.parent
BOOK = PROJECT / "docs" / "book.md"
BLOCK = re.compile(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```\n", re.M | re.S)
SECTIONS = re.split(r"^## (.*)\n", BOOK.read_text(), flags=re.M)[1:]
PROGRAMS = [(title, *block.groups()) for title, text in zip(SECTIONS[::2], SECTIONS[1::2]) for block in BLOCK.finditer(text)]
WITHOUT = {"A function in a process of its own", "A function in a process of its own, from Python"}


def test_every_section_shows_python():
    titles = {title for title, _, _ in PROGRAMS}
    assert titles | WITHOUT == set(SECTIONS[::2]) and not titles & WITHOUT


@pytest.mark.parametrize("title, program, wanted", PROGRAMS, ids=[title.replace(" ", "-") for title, _, _ in PROGRAMS])
def test_the_book_is_true(title, program, wanted, tmp_path):
    try:
        found = plimsoll.binary()
    except plimsoll.BinaryNotFound:
        pytest.skip("the program plimsoll is not built")
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PLIMSOLL_", "CUDA_", "TF_"))}
    own = {"PYTHONPATH": str(PACKAGE), "PLIMSOLL_STATE_DIR": str(tmp_path / "state"), "PLIMSOLL_NVML": "", "PLIMSOLL_BINARY": found}
    cases = PROJECT / "crates" / "cli" / "tests" / "cases"
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env={**environment, **own}, cwd=cases, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not [line for line in done.stderr.splitlines() if "Traceback" in line or "Error" in line], done.stderr
    if os.environ.get("PLIMSOLL_BLESS"):
        text = BOOK.read_text()
        BOOK.write_text(text.replace(f"{program}```\n\n```text\n{wanted}```", f"{program}```\n\n```text\n{done.stdout}```"))
        return
    assert done.stdout == wanted
