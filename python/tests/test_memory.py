"""Out of memory under a limit from outside: a control group whose limit the kernel enforces by killing."""

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import PACKAGE

PROGRAM = """
    import plimsoll

    def fill():
        kept = []
        while len(kept) < 1000:
            kept.append(bytearray(b"1" * (1 << 20)))

    if __name__ == "__main__":
        with plimsoll.Pool(1) as pool:
            error = pool.submit(fill).exception()
            print(type(error).__name__, isinstance(error, MemoryError), pool.submit(abs, -3).result())
"""


@pytest.fixture
def group():
    """A control group with 128 MiB; skipped where this user may not make one."""
    for folder, limit in ((Path("/sys/fs/cgroup"), "memory.max"), (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")):
        path = folder / f"plimsoll-test-{os.getpid()}"
        try:
            path.mkdir()
        except OSError:
            continue
        if not (path / limit).exists():  # where control groups are not mounted it is only a folder
            path.rmdir()
            continue
        try:
            (path / limit).write_text(str(128 << 20))
            if (path / "memory.swap.max").exists():
                (path / "memory.swap.max").write_text("0")
        except OSError:
            path.rmdir()
            continue
        yield path
        path.rmdir()
        return
    pytest.skip("no control group with a memory limit can be made")


def test_killed_for_want_of_memory(tmp_path, group):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    enter = f"echo $$ > {group}/cgroup.procs && exec {shlex.quote(sys.executable)} {shlex.quote(str(path))}"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, env=environment)
    assert done.stdout == "WorkerOutOfMemory True 3\n", done.stderr
