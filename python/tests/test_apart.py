"""A process that a function starts ends with it, in any session or process group."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import functions
import pytest
from conftest import PACKAGE, ROOT
from test_programs import all_end, is_alive

import plimsoll

HOWS = ["setsid", "setpgid", "fork"]


@pytest.fixture(params=["bare", "leased"])
def options(request):
    """With and without a lease."""
    if request.param == "leased":
        request.getfixturevalue("machine")
        return {"gpus": 1}
    return {}


def written(path):
    for _ in range(3000):
        if path.exists():
            return [int(word) for word in path.read_text().split()]
        time.sleep(0.01)
    pytest.fail("it does not come so far")


@pytest.mark.parametrize("how", HOWS)
def test_after_its_time(tmp_path, options, how):
    path = tmp_path / "pids"
    with pytest.raises(plimsoll.WorkerTimeout):
        plimsoll.call(functions.go_apart, str(path), how, timeout=3, **options)
    assert not any(map(is_alive, written(path)))
    assert_free(options)


def test_after_its_result_and_its_death(options):
    assert not is_alive(plimsoll.call(functions.leave_apart, **options))
    with plimsoll.Pool(1, **options) as pool:
        left = pool.submit(functions.leave_apart).result()
        assert is_alive(left)
        assert isinstance(pool.submit(functions.die, signal.SIGKILL).exception(), plimsoll.WorkerKilled)
        assert not is_alive(left)
        left = pool.submit(functions.leave_apart).result()
    assert not is_alive(left)
    assert_free(options)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("how", HOWS)
def test_after_the_program(tmp_path, options, how, number):
    path, pids = tmp_path / "program.py", tmp_path / "pids"
    source = f"""
        import sys
        sys.path.insert(0, {str(ROOT / "tests")!r})
        import functions, plimsoll
        if __name__ == "__main__":
            plimsoll.call(functions.go_apart, {str(pids)!r}, {how!r}, **{options})
    """
    path.write_text(textwrap.dedent(source))
    program = subprocess.Popen([sys.executable, path], env={**os.environ, "PYTHONPATH": str(PACKAGE)}, stderr=subprocess.DEVNULL)
    processes = written(pids)
    program.send_signal(number)
    assert program.wait() == -number and all_end(processes)
    assert_free(options)


def test_after_those_between(tmp_path, options):
    """The supervisor, and `plimsoll run` where there is one, are killed, one at a time."""
    for above in range(2 if options else 1):
        pids = tmp_path / f"pids{above}"
        with plimsoll.Pool(1, **options) as pool:
            future = pool.submit(functions.go_apart, str(pids), "setpgid")
            processes = written(pids)
            between = parent(processes[0])
            if above:
                between = parent(between)
                assert between != os.getpid()
            os.kill(between, signal.SIGKILL)
            assert isinstance(future.exception(), plimsoll.WorkerKilled)
            if not options:
                # Nothing is left that knew of it.
                assert all_end(processes[:1])
                os.kill(processes[1], signal.SIGKILL)
            assert all_end(processes)
    assert_free(options)


def test_a_stopped_supervisor(options):
    with pytest.raises(plimsoll.WorkerTimeout):
        plimsoll.call(lambda: [os.kill(os.getppid(), signal.SIGSTOP), time.sleep(3600)], timeout=1, **options)
    assert_free(options)


def parent(process):
    with open(f"/proc/{process}/stat") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def assert_free(options):
    for _ in range(500):
        if not options or [card.reserved_bytes for card in plimsoll.devices().cards] == [0, 0]:
            return
        time.sleep(0.02)
    pytest.fail("the lease is not free")
