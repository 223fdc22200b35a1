"""Whole programs: scripts, modules, notebooks; Ctrl-C and kill -9."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from conftest import PACKAGE

DEFINED_IN_MAIN = """
    import plimsoll

    class Point:
        def __init__(self, x):
            self.x = x

    class Wrong(Exception):
        pass

    SCALE = 10

    def helper(x):
        return SCALE * x

    def work(x):
        return helper(x) + 1

    @plimsoll.isolated
    def moved(point):
        return Point(point.x + 1)

    def fail():
        raise Wrong("here")

    def check():
        assert plimsoll.call(work, 4) == 41
        back = moved(Point(1))
        assert type(back) is Point and back.x == 2, back
        try:
            plimsoll.call(fail)
        except Wrong as error:
            assert "in fail" in str(error.__cause__), error.__cause__
        with plimsoll.Pool(2) as pool:
            assert list(pool.map(work, range(3))) == [1, 11, 21]
            assert pool.submit(lambda: helper(5)).result() == 50
        print("checked")
"""
GUARDED = (
    DEFINED_IN_MAIN
    + """
    if __name__ == "__main__":
        check()
"""
)
NOT_GUARDED = (
    DEFINED_IN_MAIN
    + """
    check()
"""
)


@pytest.mark.parametrize("how", ["script", "module", "text"])
def test_with_cloudpickle_main_goes_by_value(run_program, how):
    assert run_program(NOT_GUARDED, how).stdout == "checked\n"


@pytest.mark.parametrize("how", ["script", "module"])
def test_without_cloudpickle_main_is_run_again(run_program, how):
    assert run_program(GUARDED, how, cloudpickle=False).stdout == "checked\n"


def test_without_cloudpickle_and_without_the_line(run_program):
    done = run_program(NOT_GUARDED, cloudpickle=False, check=False)
    assert done.returncode == 1 and 'under `if __name__ == "__main__":`' in done.stderr


def test_a_notebook_without_cloudpickle(run_program):
    source = """
        import math
        import plimsoll

        base = 2
        def power(n):
            return 1 if n == 0 else base * power(n - 1)

        def counted(start):
            def count(n):
                return start if n == 0 else 1 + count(n - 1)
            return count

        assert plimsoll.call(power, 5) == 32
        assert plimsoll.call(counted(7), 3) == 10
        assert plimsoll.call(lambda x, *, y=4: math.sqrt(x * y), 9) == 6

        class Local:
            pass

        try:
            plimsoll.call(Local)
        except plimsoll.NotPicklable as error:
            print(error)
    """
    assert "cloudpickle" in run_program(source, "text", cloudpickle=False).stdout


@pytest.mark.parametrize("ends", ["raise ImportError('not here')", "list_registry_pickle_by_value = dict\nCloudPickler = pickle.Pickler"])
def test_a_thread_waits_while_another_imports_cloudpickle(run_program, tmp_path, ends):
    (tmp_path / "cloudpickle.py").write_text(f"import pickle, time\ntime.sleep(0.3)\n{ends}\n")
    source = """
        import sys, threading
        from plimsoll import _pickling

        other = threading.Thread(target=_pickling.to_bytes, args=(lambda: 1,))
        other.start()
        while other.is_alive() and "cloudpickle" not in sys.modules:
            pass
        print(len(_pickling.to_bytes(lambda: 2)) > 0)
        other.join()
    """
    assert run_program(source).stdout == "True\n"


def test_what_cannot_go_by_value_goes_by_reference(run_program):
    source = """
        import plimsoll, threading

        lock = threading.Lock()

        def work():
            with lock:
                return 42

        if __name__ == "__main__":
            print(plimsoll.call(work))
    """
    assert run_program(source).stdout == "42\n"


def test_sys_exit_of_a_function_that_nobody_catches(run_program):
    done = run_program("import plimsoll, sys; plimsoll.call(sys.exit, 7)", check=False)
    assert (done.returncode, done.stderr) == (7, "")


def test_what_was_submitted_is_done_at_the_end(run_program):
    source = """
        import plimsoll

        pool = plimsoll.Pool(1)
        for i in range(3):
            pool.submit(print, i)
    """
    assert run_program(source).stdout == "0\n1\n2\n"


def test_printing_through_a_pipe_is_in_order(run_program):
    source = """
        import plimsoll
        print("before")
        plimsoll.call(print, "inside")
        print("after")
        try:
            plimsoll.call(lambda: (print("last words"), __import__("os")._exit(1)))
        except plimsoll.WorkerLost:
            print("end")
    """
    assert run_program(source).stdout == "before\ninside\nafter\nlast words\nend\n"


FOREVER = """
    import os, subprocess, sys, time
    import plimsoll

    def forever(i):
        child = subprocess.Popen(["sleep", "3600"])
        os.write(1, f"{os.getpid()} {child.pid}\\n".encode())
        while True:
            pass

    if __name__ == "__main__":
        if sys.argv[1] == "call":
            plimsoll.call(forever, 0)
        with plimsoll.Pool(2) as pool:
            list(pool.map(forever, range(2)))
"""


@pytest.fixture(params=["pool", "call"])
def forever(tmp_path, request):
    """A program whose workers, with a child each, never end; and their process ids."""
    path = tmp_path / "forever.py"
    path.write_text(textwrap.dedent(FOREVER))
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
    program = subprocess.Popen(
        [sys.executable, path, request.param],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    processes = [int(number) for _ in range({"pool": 2, "call": 1}[request.param]) for number in program.stdout.readline().split()]
    yield program, processes
    program.kill()
    program.wait()
    program.stdout.close()
    program.stderr.close()


def test_kill_9_of_the_program_ends_its_workers(forever):
    program, processes = forever
    assert all(is_alive(process) for process in processes)
    program.kill()
    program.wait()
    assert all_end(processes)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_so_does_its_end_by_other_signals(forever, number):
    program, processes = forever
    program.send_signal(number)
    assert program.wait() == -number and all_end(processes)


def test_ctrl_c_ends_it_cleanly(forever):
    program, processes = forever
    program.send_signal(signal.SIGINT)
    _, err = program.communicate(timeout=30)
    assert program.returncode == -signal.SIGINT and all_end(processes)
    assert err.rstrip().endswith("KeyboardInterrupt") and err.count("Traceback") == 1, err


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(processes):
    """Whether they end; given much more time than that takes."""
    for _ in range(500):
        if not any(is_alive(process) for process in processes):
            return True
        time.sleep(0.02)
    return False
