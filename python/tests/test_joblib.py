"""joblib's loops in workers of a pool."""

import gc
import os
import time

import functions
import pytest

joblib = pytest.importorskip("joblib")
import plimsoll.joblib  # noqa: E402


def test_loops_run_in_workers():
    with joblib.parallel_backend("plimsoll", n_jobs=2):
        assert joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(50)) == [i * i for i in range(50)]
        processes = set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(8)))
        assert os.getpid() not in processes and 1 <= len(processes) <= 2
        again = set(joblib.Parallel()(joblib.delayed(os.getpid)() for _ in range(8)))
        assert again <= processes or len(again | processes) <= 2


def test_an_exception_ends_the_loop():
    with joblib.parallel_backend("plimsoll", n_jobs=2):
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, i) for i in (1, 0, 2))
        assert joblib.Parallel()(joblib.delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]


def test_a_worker_that_is_killed_is_an_exception():
    with joblib.parallel_backend("plimsoll", n_jobs=2):
        with pytest.raises(plimsoll.WorkerKilled):
            joblib.Parallel()([joblib.delayed(functions.die)(9)])


def test_options_are_the_pools(machine):
    with joblib.parallel_backend("plimsoll", n_jobs=2, gpus=1, timeout=60):
        cards = joblib.Parallel()(joblib.delayed(os.getenv)("CUDA_VISIBLE_DEVICES") for _ in range(4))
        assert all(cards)
    with pytest.raises(TypeError):
        with joblib.parallel_backend("plimsoll", n_jobs=2, no_such_option=1):
            joblib.Parallel()(joblib.delayed(abs)(i) for i in range(2))
    wait_for_no_worker(machine)


def wait_for_no_worker(machine):
    end = time.monotonic() + 20
    while any(process.name == "pool" for process in machine().processes) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [process for process in machine().processes if process.name == "pool"]


def test_leases_end_with_the_block(machine):
    """Also where nothing looks for cycles of references."""
    gc.disable()
    try:
        with joblib.parallel_backend("plimsoll", n_jobs=2, gpus=1, timeout=60):
            for _ in range(2):
                assert all(joblib.Parallel()(joblib.delayed(os.getenv)("CUDA_VISIBLE_DEVICES") for _ in range(4)))
        wait_for_no_worker(machine)
    finally:
        gc.enable()
