"""One function, one process: what comes back, and what does not."""

import contextlib
import io
import logging
import os
import pickle
import signal
import threading
import time

import functions
import pytest

import plimsoll


def test_a_result_comes_from_another_process():
    assert plimsoll.call(functions.identity, {"a": [1, (2, None)]}) == {"a": [1, (2, None)]}
    assert plimsoll.call(functions.pid) != os.getpid()


def test_keyword_arguments_are_the_functions_own():
    assert plimsoll.call(dict, a=1, b=2, timeout=30) == {"a": 1, "b": 2}


def test_a_lambda_with_a_closure():
    factor = 3
    assert plimsoll.call(lambda x: x * factor, 14) == 42


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.parametrize("size", [0, 1, 100_000, 200_000, 30_000_000])
def test_large_and_small_ones_come_whole(kind, size):
    data = kind(os.urandom(min(size, 1000)) * (size // 1000 or 1))[:size]
    assert plimsoll.call(functions.identity, data) == data


def test_buffers_are_not_pickled_and_can_be_written_to():
    numpy = pytest.importorskip("numpy")
    with plimsoll.Pool(1) as pool:
        sent = [numpy.arange(start, start + 500_000, dtype=numpy.float64) for start in range(12)]
        # All are kept: their memory must not be used for the next.
        back = [pool.submit(functions.identity, {"x": array, "small": array[:3]}).result() for array in sent]
    for array, result in zip(sent, back):
        assert (result["x"] == array).all() and (result["small"] == array[:3]).all()
        result["x"] += 1
    assert all((result["x"] == array + 1).all() for array, result in zip(sent, back))


def test_an_exception_is_itself_and_says_where():
    with pytest.raises(KeyError) as caught:
        plimsoll.call(functions.raise_, KeyError, "k")
    assert caught.value.args == ("k",)
    assert isinstance(caught.value.__cause__, plimsoll.RemoteTraceback)
    assert "in raise_" in caught.value.__cause__.remote_traceback and "_worker.py" not in str(caught.value.__cause__)
    with pytest.raises(ValueError) as caught:
        plimsoll.call(functions.raise_with_attribute)
    assert caught.value.code == 42


def test_an_exception_that_cannot_come_is_told():
    with pytest.raises(plimsoll.RemoteError, match="functions.Awkward: 1 and 2") as caught:
        plimsoll.call(functions.raise_, functions.Awkward, 1, 2)
    assert "in raise_" in caught.value.remote_traceback
    with pytest.raises(plimsoll.RemoteError, match="ValueError: with a lock") as caught:
        plimsoll.call(functions.raise_unpicklable)
    assert "in raise_unpicklable" in caught.value.remote_traceback


@pytest.mark.parametrize("code", [0, 3, None, "a message"])
def test_sys_exit(code):
    with pytest.raises(plimsoll.WorkerExit) as caught:
        plimsoll.call(functions.exit_, code)
    assert caught.value.code == code
    assert isinstance(caught.value, SystemExit) and isinstance(caught.value, plimsoll.RemoteError)
    assert "in exit_" in caught.value.remote_traceback


FATAL = [name for name in signal.valid_signals() if name not in (
    signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ,
    signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
) and name <= 31]  # fmt: skip


def test_every_signal_that_kills():
    """By one pool: it survives them all."""
    with plimsoll.Pool(2) as pool:
        futures = {number: pool.submit(functions.die, number) for number in FATAL}
        for number, future in futures.items():
            error = future.exception(30)
            assert isinstance(error, plimsoll.WorkerKilled), (number, error)
            assert error.signal == number and error.signal.name == error.signal_name in str(error)
        assert pool.submit(functions.identity, 1).result(30) == 1


def test_a_stack_comes_with_a_crash():
    with pytest.raises(plimsoll.WorkerKilled) as caught:
        plimsoll.call(functions.die, signal.SIGSEGV)
    assert "in die" in caught.value.remote_traceback


def test_a_signal_of_no_name():
    with pytest.raises(plimsoll.WorkerKilled, match=str(signal.SIGRTMIN + 3)):
        plimsoll.call(functions.die, signal.SIGRTMIN + 3)


def test_a_worker_that_goes_without_a_word():
    with pytest.raises(plimsoll.WorkerLost) as caught:
        plimsoll.call(functions.leave, 5)
    assert caught.value.status == 5


def test_a_worker_that_leaves_its_sockets_to_a_child():
    with pytest.raises(plimsoll.WorkerKilled):
        plimsoll.call(functions.leave_child)


def test_of_a_function_that_forks_only_one_speaks(capfd):
    with plimsoll.Pool(1) as pool:
        assert pool.submit(functions.fork_and_return).result() == "parent"
        assert pool.submit(functions.identity, 1).result() == 1
    assert capfd.readouterr().out == "from the child\n"


def test_what_a_function_starts_ends_with_it():
    child = plimsoll.call(functions.start_sleeper)
    for _ in range(200):
        try:
            with open(f"/proc/{child}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    pytest.fail("it still runs")


def test_out_of_memory_under_a_limit():
    with pytest.raises(plimsoll.WorkerOutOfMemory) as caught:
        plimsoll.call(functions.fill_limited)
    assert isinstance(caught.value, MemoryError)
    with pytest.raises(MemoryError, match="too many"):
        plimsoll.call(functions.raise_, MemoryError, "too many")


@pytest.mark.parametrize("name, limit", [("RLIMIT_FSIZE", (functions.limit_file_size, 64 << 10)), ("RLIMIT_NOFILE", (functions.limit_files,))])
def test_limits_of_the_process_are_no_room(name, limit):
    with pytest.raises(plimsoll.WorkerOutOfMemory, match=f"no room .*{name}"):
        plimsoll.call(functions.limited, *limit)
    with plimsoll.Pool(1) as pool:
        # In the worker it is an argument for which there is no descriptor; a size is a limit of the writer.
        process = pool.submit(functions.pid).result()
        pool.submit(*limit).result()
        error = pool.submit(len, bytes(1 << 20)).exception()
        assert error is None if name == "RLIMIT_FSIZE" else isinstance(error, plimsoll.WorkerOutOfMemory) and name in str(error), error
        error = pool.submit(bytes, 1 << 20).exception()
        assert isinstance(error, plimsoll.WorkerOutOfMemory) and name in str(error), error
        assert pool.submit(functions.pid).result() == process


@pytest.mark.parametrize("name, limit", [("RLIMIT_FSIZE", "functions.limit_file_size(65536)"), ("RLIMIT_NOFILE", "functions.limit_files()")])
def test_limits_of_the_program_are_no_room(run_program, name, limit):
    run_program(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import functions, plimsoll
        if __name__ == "__main__":
            with plimsoll.Pool(1) as pool:
                process = pool.submit(functions.pid).result()
                {limit}
                for function, arg in ((len, bytes(1 << 20)), (bytes, 1 << 20)):
                    error = pool.submit(function, arg).exception()
                    if (function, {name!r}) == (bytes, "RLIMIT_FSIZE"):
                        pass  # the worker has no such limit
                    else:
                        assert isinstance(error, plimsoll.WorkerOutOfMemory) and {name!r} in str(error), repr(error)
                assert pool.submit(functions.pid).result() == process
            if {name!r} == "RLIMIT_NOFILE":
                try:
                    plimsoll.call(functions.pid)
                except plimsoll.WorkerOutOfMemory as error:
                    assert "no room for a worker" in str(error) and {name!r} in str(error), error
                else:
                    raise AssertionError("it started")
    """)


def test_timeout():
    with pytest.raises(plimsoll.WorkerTimeout) as caught:
        plimsoll.call(functions.sleep, 60, timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert "in sleep" in caught.value.remote_traceback
    assert plimsoll.call(functions.sleep, 0.01, timeout=30) == 0.01


def test_a_stopped_worker_is_late_too():
    with pytest.raises(plimsoll.WorkerTimeout):
        plimsoll.call(functions.die, signal.SIGSTOP, timeout=0.2)


def test_what_cannot_be_pickled():
    with pytest.raises(plimsoll.NotPicklable, match="not this one"):
        plimsoll.call(functions.identity, functions.Unpicklable())
    with pytest.raises(plimsoll.NotPicklable, match="the result, of type Unpicklable"):
        plimsoll.call(functions.Unpicklable)
    with pytest.raises(plimsoll.NotPicklable, match="cannot be read in the worker: ValueError") as caught:
        plimsoll.call(functions.identity, functions.FailsWhenRead())
    assert isinstance(caught.value, pickle.PicklingError)
    with pytest.raises(plimsoll.NotPicklable, match="cannot be read here"):
        plimsoll.call(functions.FailsWhenRead)


def test_death_in_the_middle_of_it():
    with pytest.raises(plimsoll.WorkerKilled, match="SIGKILL"):
        plimsoll.call(functions.DiesWhenPickled)
    with pytest.raises(plimsoll.WorkerLost) as caught:
        plimsoll.call(functions.identity, functions.DiesWhenRead())
    assert caught.value.status == 7


def test_outcomes_can_be_pickled():
    for error in [
        plimsoll.RemoteError("m", "t"),
        plimsoll.WorkerKilled(11, "t"),
        plimsoll.WorkerOutOfMemory("m", "t"),
        plimsoll.WorkerTimeout(2.5, "t"),
        plimsoll.WorkerLost(3, "t"),
        plimsoll.WorkerExit(4, "t"),
        plimsoll.NotPicklable("m", "t"),
    ]:
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), back.remote_traceback) == (type(error), str(error), "t")
        assert vars(back) == vars(error) and getattr(back, "code", None) == getattr(error, "code", None)


def test_printing_is_seen_in_order(capfd):
    print("before", flush=True)
    plimsoll.call(print, "from the worker")
    print("after", flush=True)
    assert capfd.readouterr().out == "before\nfrom the worker\nafter\n"


def test_printing_goes_where_ours_is_redirected():
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        plimsoll.call(lambda: [print("größe", "\N{SNOWMAN}"), print("no end", end=""), __import__("sys").stderr.write("e\n")])
    assert (out.getvalue(), err.getvalue()) == ("größe \N{SNOWMAN}\nno end", "e\n")


def test_logging_reaches_our_handlers(caplog):
    def speak():
        logger = logging.getLogger("library.part")
        logger.info("of %s", "interest")
        logger.debug("nobody wants this")
        try:
            raise ValueError("inside")
        except ValueError:
            logger.exception("failed", extra={"shard": 3})

    caplog.set_level(logging.INFO)
    plimsoll.call(speak)
    said = [record for record in caplog.records if record.name == "library.part"]
    assert [record.getMessage() for record in said] == ["of interest", "failed"]
    assert "ValueError: inside" in said[1].exc_text and said[1].shard == 3 and said[0].process != os.getpid()


def test_standard_input_is_empty():
    assert plimsoll.call(lambda: __import__("sys").stdin.read()) == ""


def test_isolated_functions():
    result, process = functions.double(4)
    assert result == 8 and process != os.getpid()
    assert (functions.double.__name__, functions.double.__doc__) == ("double", "Doubles.")
    assert functions.double.__wrapped__(4) == (8, os.getpid())
    assert functions.fibonacci(10) == 55
    assert functions.Account(7).times(6)[0] == 42
    assert plimsoll.call(functions.double, 3)[0] == 6
    with pytest.raises(plimsoll.WorkerTimeout):
        plimsoll.isolated(functions.sleep).options(timeout=0.1)(60)


def test_isolated_in_isolated():
    def outer():
        return plimsoll.call(functions.pid), os.getpid()

    inner, middle = plimsoll.call(outer)
    assert len({inner, middle, os.getpid()}) == 3


def test_from_several_threads():
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: plimsoll.call(functions.identity, i)})) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: i for i in range(6)}


def test_nothing_stays_open():
    plimsoll.call(functions.identity, bytes(1_000_000))
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(5):
        plimsoll.call(functions.identity, bytes(1_000_000))
        with pytest.raises(plimsoll.WorkerLost):
            plimsoll.call(functions.leave, 1)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_options_that_make_no_sense():
    for options in [{"gpus": -1}, {"gpus": True}, {"memory": 0}, {"memory": 1.5}, {"wait": -1}, {"timeout": -1}, {"timeout": float("nan")}]:
        with pytest.raises(ValueError, match=next(iter(options))):
            plimsoll.call(functions.identity, 1, **options)
