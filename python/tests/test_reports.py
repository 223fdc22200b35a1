"""What a call took: reports, and what frameworks say of the memory of cards."""

import math
import os
import shutil
import signal
import sys
import textwrap
import threading

import functions
import pytest
from test_hook import FAKES, environment, frameworks, hook, said  # noqa: F401

import plimsoll
from plimsoll._binary import writes_reports

MIB = 1 << 20


def busy(seconds):
    import time

    end = time.process_time() + seconds
    while time.process_time() < end:
        math.sqrt(2)
    return seconds


def test_a_call_has_a_report():
    result, report = plimsoll.call(functions.fill, 100 * MIB, with_report=True)
    assert result == 100 * MIB and report.ended == "returned" and report is plimsoll.call.last_report
    assert 100 * MIB < report.peak_resident_bytes < 400 * MIB
    assert report.processor_seconds > 0 and report.wall_seconds > 0
    assert (report.cards, report.refusals, report.rung) == ((), None, None), "without a lease there is nothing to observe"
    _, report = plimsoll.call(busy, 0.2, with_report=True)
    assert report.processor_seconds >= 0.2
    assert plimsoll.call(functions.identity, 3) == 3 and plimsoll.call.last_report.ended == "returned"


@pytest.mark.parametrize(
    "function, arguments, kind, ended",
    [
        (functions.raise_, (KeyError, "k"), KeyError, "raised KeyError"),
        (functions.exit_, (3,), plimsoll.WorkerExit, "exit"),
        (functions.die, (signal.SIGSEGV,), plimsoll.WorkerKilled, "killed by SIGSEGV"),
        (functions.leave, (7,), plimsoll.WorkerLost, "lost"),
        (functions.sleep, (60,), plimsoll.WorkerTimeout, "timeout"),
        (functions.identity, (functions.FailsWhenRead(),), plimsoll.NotPicklable, "not picklable"),
    ],
)
def test_a_call_that_fails_has_one_too(function, arguments, kind, ended):
    with pytest.raises(kind) as caught:
        plimsoll.call(function, *arguments, timeout=1 if ended == "timeout" else None)
    report = caught.value.report
    assert report.ended == ended and report is plimsoll.call.last_report
    assert report.peak_resident_bytes > MIB and report.processor_seconds >= 0


def fill_and_die(size):
    data = bytearray(size)
    os.kill(os.getpid(), signal.SIGKILL)
    return data


def test_what_was_killed_is_measured():
    with pytest.raises(plimsoll.WorkerKilled) as caught:
        plimsoll.call(fill_and_die, 150 * MIB)
    assert 150 * MIB < caught.value.report.peak_resident_bytes < 400 * MIB


def test_isolated_functions_keep_the_last_one():
    @plimsoll.isolated
    def half(n):
        return 1 / n

    assert half.last_report is None and half(2) == 0.5 and half.last_report.ended == "returned"
    with pytest.raises(ZeroDivisionError) as caught:
        half(0)
    assert half.last_report is caught.value.report and half.last_report.ended == "raised ZeroDivisionError"
    result, report = half.options(with_report=True)(4)
    assert (result, report.ended) == (0.25, "returned")

    @plimsoll.isolated(with_report=True)
    def nothing():
        return None

    assert nothing()[0] is None and isinstance(nothing.last_report, plimsoll.Report)


def test_each_job_of_a_pool_has_its_own():
    with plimsoll.Pool(1) as pool:
        assert pool.last_report is None
        sizes = [1, 200 * MIB, 1]
        futures = [pool.submit(functions.fill, size) for size in sizes]
        assert [future.result() for future in futures] == sizes
        peaks = [future.report.peak_resident_bytes for future in futures]
        assert pool.last_report is futures[-1].report
        assert peaks[1] > 200 * MIB > peaks[0]
        assert peaks[2] is None or peaks[2] < 200 * MIB, "counted anew, or not known"
        failing = pool.submit(functions.raise_, ValueError, "x")
        assert failing.exception().report is failing.report is pool.last_report and failing.report.ended == "raised ValueError"
    with plimsoll.Pool(2, with_report=True) as pool:
        pairs = list(pool.map(functions.identity, range(5)))
        assert [result for result, _ in pairs] == list(range(5)) and all(report.ended == "returned" for _, report in pairs)


def test_reports_from_several_threads():
    @plimsoll.isolated(with_report=True)
    def fill(size):
        return len(bytearray(size))

    seen = {}
    threads = [threading.Thread(target=lambda size=size: seen.update({size: fill(size)})) for size in (MIB, 120 * MIB)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[120 * MIB][1].peak_resident_bytes - seen[MIB][1].peak_resident_bytes > 60 * MIB


# Under a lease.


def test_a_lease_is_in_the_report(machine):
    _, report = plimsoll.call(functions.pid, gpus=[1], memory="1GiB", with_report=True)
    (card,) = report.cards
    assert (card.name, card.reserved_bytes, card.uuid) == ("Simulated GPU", 1 << 30, machine().cards[1].uuid)
    if not writes_reports(plimsoll.binary()):
        pytest.skip("this program has no `run --report`: what it observes is not in reports")
    assert report.rung is not None and (card.peak_bytes is None) == (card.observed_by is None)
    with pytest.raises(KeyError) as caught:
        plimsoll.call(functions.raise_, KeyError, "k", gpus=1)
    assert caught.value.report.rung is not None and len(caught.value.report.cards) == 1
    with pytest.raises(plimsoll.LeaseRefused) as refused:
        plimsoll.call(functions.pid, gpus=3)
    assert refused.value.report is None and plimsoll.call.last_report is None
    with plimsoll.Pool(1, gpus=2) as pool:
        future = pool.submit(functions.pid)
        future.result()
        assert [card.reserved_bytes for card in future.report.cards] == [4 << 30] * 2


def test_frameworks_that_were_imported_say_what_they_used(machine, frameworks, monkeypatch):  # noqa: F811
    monkeypatch.syspath_prepend(str(frameworks))

    def use():
        import torch

        torch.cuda.current_device()
        torch._C.allocate(300 * MIB, 0)

    with plimsoll.Pool(1, gpus=1, memory="2GiB", with_report=True) as pool:
        _, report = pool.submit(use).result()
    (card,) = report.cards
    assert card.observed == {"torch.cuda.max_memory_allocated": 300 * MIB, "torch.cuda.max_memory_reserved": 300 * MIB}
    assert card.peak_bytes == 300 * MIB and card.observed_by.startswith("torch.cuda.")
    _, report = plimsoll.call(use, gpus=1, memory="2GiB", with_report=True)
    assert report.cards[0].observed["torch.cuda.max_memory_allocated"] == 300 * MIB


def test_none_is_not_observed_and_what_is_damaged_is_passed_over():
    from plimsoll import reports

    report = plimsoll.Report(1.0, "returned", cards=reports.observed([{"name": "T4", "uuid": "u", "bytes": 9, "observed": {"x": 3}}]))
    assert (report.cards[0].peak_bytes, report.cards[0].observed_by) == (3, "x")
    for text in ("", "[]", "{}", '{"cards": 3}', '{"cards": [{}]}'):
        assert reports.completed(report, text) is report
    said = '{"cards": [{"name": "T4", "uuid": "u", "reserved_bytes": 9, "peaks": {"driver": 5, "ledger": null}}], "refusals": 2, "rung": "shim"}'
    whole = reports.completed(report, said)
    assert (whole.cards[0].peak_bytes, whole.cards[0].observed_by, whole.cards[0].observed) == (5, "driver", {"driver": 5, "x": 3})
    assert (whole.refusals, whole.rung, whole.ended) == (2, "shim", "returned")
    unseen = reports.completed(report, said.replace("5", "null").replace("9", "8"))
    assert whole.cards[0].reserved_bytes == 9 and unseen.cards[0].observed == {"x": 3}


# What a process asks itself.


def python(source, known):
    return said([sys.executable, "-c", textwrap.dedent(source)], known)


@pytest.fixture
def known(tmp_path):
    shutil.copytree(FAKES, tmp_path / "fakes", ignore=shutil.ignore_patterns("__pycache__"))
    return environment(tmp_path / "fakes", FAKES.parent.parent, PLIMSOLL_FRAMEWORK_LIMITS="")


def test_memory_of_the_framework_that_is_loaded(known):
    nothing = """
        import sys
        import plimsoll
        assert (plimsoll.memory_allocated(), plimsoll.max_memory_allocated("GPU:1"), plimsoll.empty_cache()) == (0, 0, None)
        assert not {"torch", "tensorflow", "jax"} & set(sys.modules)
    """
    python(nothing, known)
    torch = """
        import plimsoll, torch
        assert plimsoll.memory_allocated() == 0 and not torch.cuda.is_initialized(), "asking opens no card"
        torch.cuda.current_device()
        torch._C.allocate(5 << 20, 1)
        print(plimsoll.memory_allocated(), plimsoll.memory_allocated("cuda:1") >> 20, plimsoll.max_memory_allocated(1) >> 20)
        torch.cuda.set_device(1)
        plimsoll.empty_cache()
        print(plimsoll.memory_allocated() >> 20, plimsoll.memory_allocated(7), torch._C.calls[-1])
    """
    assert python(torch, {**known, "FAKE_CARDS": "1000000000,1000000000"})[0] == "0 5 5\n5 0 empty_cache"
    tensorflow = """
        import plimsoll, tensorflow
        assert plimsoll.memory_allocated() == 0
        tensorflow.context.context().ensure_initialized()
        print(plimsoll.memory_allocated("/device:GPU:0") >> 20, plimsoll.max_memory_allocated() >> 20)
    """
    assert python(tensorflow, known)[0] == "7 11"
    jax = """
        import plimsoll, jax
        assert plimsoll.memory_allocated() == 0
        card = jax.local_devices()[0]
        print(plimsoll.memory_allocated(card) >> 20, plimsoll.max_memory_allocated() >> 20)
    """
    assert python(jax, known)[0] == "3 5"
    both = """
        import plimsoll, jax, tensorflow
        jax.local_devices(), tensorflow.context.context().ensure_initialized()
        print(plimsoll.memory_allocated() >> 20)
    """
    assert python(both, known)[0] == "10"


def test_tensorflows_logical_devices_count_for_their_card(known):
    source = """
        import plimsoll, tensorflow
        from plimsoll import _frameworks
        context, make = tensorflow.context.context(), tensorflow.context.LogicalDeviceConfiguration
        card = context.list_physical_devices()[-2]
        context.set_logical_device_configuration(card, [make(memory_limit=1), make(memory_limit=1)])
        context.ensure_initialized()
        asked = []
        tensorflow.config.experimental.reset_memory_stats = asked.append
        _frameworks.begin()
        print([plimsoll.memory_allocated(number) >> 20 for number in range(4)], plimsoll.memory_allocated("gpu") >> 20, plimsoll.memory_allocated(card) >> 20)
        print([list(said.values()) and list(said.values())[0] >> 20 for said in _frameworks.observed()], asked)
    """
    two = python(source, {**known, "FAKE_CARDS": "1000000000,1000000000"})[0]
    assert two == "[14, 7, 0, 0] 14 14\n[22, 11] ['GPU:0', 'GPU:1', 'GPU:2']"
    hidden = python(source, {**known, "FAKE_CARDS": "1000000000,1000000000,1000000000", "FAKE_FIRST": "1"})[0]
    assert hidden == "[0, 14, 7, 0] 14 14\n[[], 22, 11] ['GPU:0', 'GPU:1', 'GPU:2']"


class Object:
    """A device of a framework's."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def test_cards_by_objects_of_frameworks_and_names_without_a_number(known):
    from plimsoll.memory import _number

    assert [_number(device) for device in (None, "cuda", "GPU", Object(type="cuda", index=None))] == [None] * 4
    ones = ["cuda:1", "gpu:1", "/device:GPU:1", "/job:localhost/replica:0/task:0/device:GPU:1", Object(type="cuda", index=1)]
    ones += [Object(platform="gpu", id=1), Object(name="/physical_device:GPU:1", device_type="GPU")]
    assert [_number(device) for device in ones] == [1] * len(ones)
    source = """
        import plimsoll, torch
        torch.cuda.set_device(1)
        torch.cuda.current_device()
        torch._C.allocate(5 << 20, 1)
        print(plimsoll.memory_allocated("cuda") >> 20)
    """
    assert python(source, {**known, "FAKE_CARDS": "1000000000,1000000000"})[0] == "5"


def test_a_call_needs_no_folder_for_its_report(machine, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    result, report = plimsoll.call(abs, -3, gpus=1, memory="1GiB", with_report=True)
    assert result == 3 and report.ended == "returned"


@pytest.mark.parametrize("device", [Object(type="cpu", index=0), Object(platform="cpu", id=0), Object(name="/device:CPU:0"), "cpu", "CPU:0", "cuda:x", "", "-1", -1, True, 1.5])
def test_what_is_no_card_is_refused(device):
    with pytest.raises(ValueError, match="is no card"):
        plimsoll.memory_allocated(device)
