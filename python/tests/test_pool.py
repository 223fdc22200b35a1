"""Workers that are kept."""

import concurrent.futures
import contextlib
import gc
import os
import random
import signal
import threading
import time

import functions
import pytest

import plimsoll


@pytest.fixture(scope="module")
def pool():
    with plimsoll.Pool(2) as pool:
        yield pool


def test_map_keeps_the_order(pool):
    assert list(pool.map(functions.identity, range(50))) == list(range(50))
    assert list(pool.map(pow, [2, 3], [5, 2])) == [32, 9]


def test_workers_are_kept(pool):
    assert len(set(pool.map(functions.pid, range(20)))) <= 2


def test_as_completed(pool):
    futures = [pool.submit(functions.identity, i) for i in range(5)]
    assert sorted(future.result() for future in pool.as_completed(futures)) == list(range(5))
    assert sorted(future.result() for future in pool.as_completed(functions.identity, range(5))) == list(range(5))
    assert sorted(future.result() for future in concurrent.futures.as_completed(futures)) == list(range(5))
    assert plimsoll.wait(futures).not_done == set()


def test_exceptions_stay_with_their_futures(pool):
    future = pool.submit(functions.raise_, KeyError, "k")
    assert isinstance(future.exception(), KeyError) and "in raise_" in future.exception().__cause__.remote_traceback
    assert isinstance(pool.submit(functions.exit_, 3).exception(), plimsoll.WorkerExit)
    assert isinstance(pool.submit(functions.identity, functions.Unpicklable()).exception(), plimsoll.NotPicklable)
    assert isinstance(pool.submit(functions.Unpicklable).exception(), plimsoll.NotPicklable)
    assert pool.submit(functions.identity, 1).result() == 1


def test_isolated_functions_run_in_the_workers(pool):
    known = set()
    end = time.monotonic() + 30
    while len(known) < 2 and time.monotonic() < end:  # one alone may do all the jobs of a busy machine
        known |= set(pool.map(functions.pid, range(20)))
    value, process = pool.submit(functions.double, 4).result()
    assert value == 8 and process in known


def test_queued_jobs_can_be_cancelled():
    with plimsoll.Pool(1) as pool:
        first = pool.submit(functions.sleep, 0.3)
        second, third = pool.submit(functions.identity, 2), pool.submit(functions.identity, 3)
        assert second.cancel()
        assert (first.result(), third.result(), second.cancelled()) == (0.3, 3, True)


def test_no_job_is_lost_and_none_is_run_twice(tmp_path):
    """Workers are killed while they work and while they do not; every job ran once at most, and each that was not killed has a result."""
    log = tmp_path / "log"
    done = threading.Event()
    with plimsoll.Pool(3) as pool:

        def kill_at_random():
            chance = random.Random(6)
            while not done.wait(chance.random() * 0.05):
                workers = [worker for worker in list(pool._crew._workers) if worker.is_there]
                if workers:
                    chance.choice(workers).end()

        killer = threading.Thread(target=kill_at_random)
        killer.start()
        futures = [pool.submit(functions.log_line, log, i) for i in range(400)]
        outcomes = [future.exception(120) for future in futures]
        done.set()
        killer.join()
    ran = [int(line) for line in log.read_text().split()]
    assert len(ran) == len(set(ran))
    assert {type(outcome) for outcome in outcomes} <= {type(None), plimsoll.WorkerKilled}
    assert set(ran) >= {i for i, outcome in enumerate(outcomes) if outcome is None}


def test_a_worker_that_died_idle_costs_no_job():
    with plimsoll.Pool(1) as pool:
        for _ in range(3):
            process = pool.submit(functions.pid).result()
            os.kill(process, signal.SIGKILL)
            assert pool.submit(functions.pid).result() != process


def test_late_jobs():
    with plimsoll.Pool(1, timeout=2) as pool:
        late, fine = pool.submit(functions.sleep, 60), pool.submit(functions.identity, 1)
        assert isinstance(late.exception(), plimsoll.WorkerTimeout) and fine.result() == 1


def test_arguments_and_results_for_which_there_is_no_room():
    with plimsoll.Pool(1) as pool:
        pool.submit(functions.limit_memory).result()
        process = pool.submit(functions.pid).result()
        for function, arg in ((len, bytes(100 << 20)), (len, bytearray(100 << 20)), (bytes, 40 << 20), (bytes, 100 << 20)):
            error = pool.submit(function, arg).exception()
            assert isinstance(error, plimsoll.WorkerOutOfMemory) or (arg == 40 << 20 and error is None), (arg, error)
        assert pool.submit(functions.pid).result() == process


def test_who_keeps_memory_is_replaced():
    with plimsoll.Pool(1, recycle_above=32 << 20) as pool:
        first = pool.submit(functions.pid).result()
        assert pool.submit(functions.hold, 1 << 20).result() == first
        assert pool.submit(functions.hold, 64 << 20).result() == first
        assert pool.submit(functions.pid).result() != first
        # What is only used while the job runs is no reason.
        second = pool.submit(functions.pid).result()
        assert pool.submit(len, bytes(64 << 20)).result() == 64 << 20
        assert pool.submit(functions.pid).result() == second


def test_an_idle_pool_keeps_no_shared_memory():
    def shared(process):
        total = 0
        for number in os.listdir(f"/proc/{process}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                file = f"/proc/{process}/fd/{number}"
                total += os.stat(file).st_size if "memfd:plimsoll" in os.readlink(file) else 0
        return total

    with plimsoll.Pool(1) as pool:
        process = pool.submit(functions.pid).result()
        data = bytes(20 << 20)
        kept = pool.submit(functions.identity, data).result()
        assert kept == data and shared(process) > 20 << 20 and shared(os.getpid()) > 20 << 20
        while shared(process) > 1 << 20 or shared(os.getpid()) > 1 << 20:
            time.sleep(0.01)
        assert pool.submit(functions.identity, data).result() == data and pool.submit(functions.pid).result() == process


def test_a_closed_pool_takes_no_jobs():
    pool = plimsoll.Pool(1)
    future = pool.submit(functions.identity, 1)
    pool.shutdown()
    assert future.result(0) == 1
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(functions.identity, 1)
    with pytest.raises(ValueError, match="workers=0"):
        plimsoll.Pool(0)
    with pytest.raises(ValueError, match="timeout=-1"):
        plimsoll.Pool(1, timeout=-1)


def test_leaving_by_an_exception_cancels_what_has_not_begun():
    with pytest.raises(ZeroDivisionError):
        with plimsoll.Pool(1) as pool:
            running = pool.submit(functions.sleep, 0.2)
            queued = [pool.submit(functions.sleep, 60) for _ in range(3)]
            while not running.running():
                time.sleep(0.001)
            1 / 0
    assert running.result(0) == 0.2 and all(future.cancelled() for future in queued)


def test_leaving_by_ctrl_c_ends_what_runs():
    with pytest.raises(KeyboardInterrupt):
        with plimsoll.Pool(1) as pool:
            running, queued = pool.submit(functions.sleep, 60), pool.submit(functions.sleep, 60)
            while not running.running():
                time.sleep(0.001)
            raise KeyboardInterrupt
    assert isinstance(running.exception(0), plimsoll.WorkerKilled) and queued.cancelled()


def test_in_a_forked_child_it_says_so():
    with plimsoll.Pool(1) as pool:
        assert pool.submit(functions.identity, 1).result() == 1
        pending = pool.submit(functions.sleep, 0.5)
        child = os.fork()
        if child == 0:
            status = 1
            with contextlib.suppress(BaseException):
                for use in (lambda: pool.submit(functions.identity, 1), lambda: list(pool.map(abs, [1])), pending.result):
                    with pytest.raises(RuntimeError, match="fork"):
                        use()
                with pool:
                    pass
                pool.terminate()
                # A pool of its own works.
                with plimsoll.Pool(1) as own:
                    status = own.submit(functions.identity, 0).result()
            os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pending.result() == 0.5


def test_a_forgotten_pool_goes():
    pool = plimsoll.Pool(1)
    process = pool.submit(functions.pid).result()
    threads = pool._crew._threads
    del pool
    gc.collect()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_nothing_stays_open():
    def use():
        with plimsoll.Pool(2) as pool:
            list(pool.map(functions.identity, [bytes(1_000_000)] * 4))
            pool.submit(functions.leave, 1).exception()
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    assert use() == use()


def test_it_is_an_executor_of_asyncio_and_of_the_standard_library():
    import asyncio

    async def both(pool):
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(pool, pow, i, 2) for i in range(4)]
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(pool, divmod, 1, 0)
        return await asyncio.gather(*jobs)

    with plimsoll.Pool(2) as pool:
        assert asyncio.run(both(pool)) == [0, 1, 4, 9]
        futures = [pool.submit(abs, -i) for i in range(5)]
        done, rest = concurrent.futures.wait(futures, timeout=60)
        assert not rest and {future.result() for future in concurrent.futures.as_completed(done)} == set(range(5))
        assert list(pool.map(pow, range(4), [2] * 4, timeout=60, chunksize=2)) == [0, 1, 4, 9]
        slow = pool.submit(functions.sleep, 30)
        with pytest.raises(concurrent.futures.TimeoutError):
            slow.result(timeout=0.1)
        pool.terminate()
    with pytest.raises(RuntimeError):
        pool.submit(abs, 1)
