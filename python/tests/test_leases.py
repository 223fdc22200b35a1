"""Cards: for functions, for pools, for this process; and what the machine says of them. With simulated ones."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import functions
import pytest
from conftest import PACKAGE

import plimsoll


def cards():
    return os.environ["CUDA_VISIBLE_DEVICES"]


def reserved():
    """Of each card."""
    return [card.reserved_bytes for card in plimsoll.devices().cards]


GIB = 1 << 30


def test_the_machine(machine):
    seen = machine()
    assert [card.total_bytes for card in seen.cards] == [4 * GIB] * 2 and all(card.simulated for card in seen.cards)
    assert [device.name for device in seen.devices][-1].endswith("GPU:1") and seen.processes == [] and seen.waiters == []
    assert seen.document["cards"][0]["uuid"] == seen.cards[0].uuid and list(seen) == seen.cards and len(seen) == 2


def test_a_function_has_its_card_and_gives_it_back(machine):
    assert plimsoll.call(cards, gpus=1) in ("0", "1")
    assert plimsoll.call(cards, gpus=2) in ("0,1", "1,0")
    assert plimsoll.call(cards, gpus=[1]) == "1" and plimsoll.call(cards, gpus="1,0") == "1,0"
    assert plimsoll.call(cards, gpus=0) == ""
    assert reserved() == [0, 0]


def test_what_a_function_has_is_seen(machine):
    with plimsoll.Pool(1, gpus=[1], memory="1GiB", name="seen") as pool:
        pool.submit(functions.pid).result()
        assert reserved() == [0, GIB]
        assert [(process.card, process.reserved_bytes) for process in machine().processes] == [(1, GIB)]
    assert reserved() == [0, 0]


@pytest.mark.parametrize("memory, got", [("512MiB", GIB // 2), (0.25, GIB), (GIB, GIB), (None, 4 * GIB)])
def test_memory(machine, memory, got):
    with plimsoll.lease(gpus=[0], memory=memory):
        pass
    with plimsoll.Pool(1, gpus=[0], memory=memory) as pool:
        pool.submit(functions.pid).result()
        assert reserved() == [got, 0]


def test_outcomes_are_those_without_a_lease(machine):
    with pytest.raises(KeyError) as caught:
        plimsoll.call(functions.raise_, KeyError, "k", gpus=1)
    assert "in raise_" in str(caught.value.__cause__)
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT, signal.SIGRTMIN + 1):
        with pytest.raises(plimsoll.WorkerKilled) as killed:
            plimsoll.call(functions.die, number, gpus=1)
        assert killed.value.signal == number
    with pytest.raises(plimsoll.WorkerLost) as lost:
        plimsoll.call(functions.leave, 137, gpus=1)
    assert lost.value.status == 137
    with pytest.raises(plimsoll.WorkerTimeout) as late:
        plimsoll.call(functions.sleep, 60, gpus=1, timeout=0.2)
    assert "in sleep" in late.value.remote_traceback
    with pytest.raises(plimsoll.WorkerOutOfMemory):
        plimsoll.call(functions.fill_limited, gpus=1)
    with pytest.raises(plimsoll.WorkerExit):
        plimsoll.call(functions.exit_, 3, gpus=1)
    assert reserved() == [0, 0]


def test_printing_is_ours_and_the_lease_speaks_to_the_log(machine, capfd, caplog):
    caplog.set_level("INFO", "plimsoll")
    plimsoll.call(lambda: os.write(2, b"from the worker\n"), gpus=1)
    assert capfd.readouterr().err == "from the worker\n"
    said = [record.getMessage() for record in caplog.records if record.name == "plimsoll"]
    assert len(said) == 2 and "GPU" in said[0] and "the lease is free" in said[1]


def test_a_lease_that_cannot_be_had_is_refused(machine):
    with pytest.raises(plimsoll.LeaseRefused, match="3 cards"):
        plimsoll.call(cards, gpus=3)
    with plimsoll.lease(2):
        refused = called_outside(gpus=1, wait=False)
        assert refused.returncode == 1 and "LeaseRefused: RESOURCE_EXHAUSTED" in refused.stderr
        assert "LeaseRefused: DEADLINE_EXCEEDED" in called_outside(gpus=1, wait=0.05).stderr
    with plimsoll.Pool(2, gpus=3) as pool:
        future = pool.submit(cards)
        assert isinstance(future.exception(), plimsoll.LeaseRefused)
        assert isinstance(pool.submit(cards).exception(), plimsoll.LeaseRefused)


def outside():
    """The environment without our lease: of a program beside this one, not inside of what this one has."""
    return {name: value for name, value in os.environ.items() if name not in ("PLIMSOLL_LEASE", "CUDA_VISIBLE_DEVICES")}


def seen_outside():
    listing = subprocess.run([plimsoll.binary(), "devices", "--json"], env=outside(), capture_output=True, check=True)
    return json.loads(listing.stdout)


def called_outside(**options):
    """What a program beside this one is told its card is."""
    source = f"import plimsoll, os; print(plimsoll.call(os.getenv, 'CUDA_VISIBLE_DEVICES', **{options}))"
    environment = {**outside(), "PYTHONPATH": str(PACKAGE)}
    return subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True)


def test_a_lease_that_is_taken_is_waited_for(machine):
    results = []
    thread = threading.Thread(target=lambda: results.append(called_outside(gpus=1)))
    with plimsoll.lease(2):
        thread.start()
        while not seen_outside()["waiters"]:
            time.sleep(0.01)
        assert results == []
    thread.join()
    assert results[0].stdout in ("0\n", "1\n") and "waits: " in results[0].stderr


def test_a_pool_works_with_the_cards_that_there_are(machine):
    with plimsoll.Pool(4, gpus=1) as pool:
        seen = list(pool.map(lambda _: (time.sleep(0.02), cards())[1], range(12)))
        assert set(seen) <= {"0", "1"}
        while reserved() != [4 * GIB] * 2 or len(machine().waiters) < 2:
            time.sleep(0.01)
    assert reserved() == [0, 0] and machine().waiters == []


def test_a_pool_that_nobody_needs_any_more_does_not_wait_for_cards(machine):
    with plimsoll.Pool(1, gpus=2) as holder:
        holder.submit(cards).result()
        with plimsoll.Pool(2, gpus=1):
            while len(machine().waiters) < 2:
                time.sleep(0.01)
        assert machine().waiters == []


def test_a_lease_of_this_process(machine):
    before = dict(os.environ)
    with plimsoll.lease(gpus=[1], memory="1GiB") as lease:
        assert lease.environment["CUDA_VISIBLE_DEVICES"] == os.environ["CUDA_VISIBLE_DEVICES"] == "1"
        assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.1250"
        assert [card["reserved_bytes"] for card in seen_outside()["cards"]] == [0, GIB]
        with pytest.raises(RuntimeError):
            lease.__enter__()
    assert dict(os.environ) == before and reserved() == [0, 0]


def test_who_holds_it_is_this_program(machine):
    with plimsoll.Pool(1, gpus=[0], memory="1MiB") as pool, plimsoll.lease(gpus=[1], memory="1GiB"):
        pool.submit(functions.pid).result()
        programs = [process["program"] for process in seen_outside()["processes"]]
        assert programs and all(" ".join(sys.orig_argv if hasattr(sys, "orig_argv") else sys.argv)[:40] in program for program in programs)
        assert not any("_start.py" in program or "-I -S" in program for program in programs), programs


def test_inside_of_a_lease_calls_share_it(machine):
    with plimsoll.lease(gpus=[0], memory="1GiB"):
        assert plimsoll.call(cards) == "0"
        assert plimsoll.call(cards, gpus=1, memory="512MiB") == "0"


@pytest.mark.parametrize("kind", ["lease", "pool", "waiter"])
def test_kill_9_of_the_program_frees_its_cards(machine, tmp_path, kind):
    source = {
        "lease": "with plimsoll.lease(2): print('ready', flush=True); time.sleep(3600)",
        "pool": "p = plimsoll.Pool(2, gpus=1); list(p.map(abs, range(9))); w = [p.submit(time.sleep, 3600) for _ in range(2)]; "
        "print('ready', flush=True); time.sleep(3600)",
        "waiter": "print('ready', flush=True); plimsoll.call(time.sleep, 3600, gpus=1)",
    }[kind]
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(f"import plimsoll, time\nif __name__ == '__main__':\n    {source}\n"))
    holder = plimsoll.Pool(1, gpus=2) if kind == "waiter" else None
    if holder is not None:
        holder.submit(cards).result()
    program = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PACKAGE)})
    assert program.stdout.readline() == b"ready\n"
    if holder is not None:
        while not machine().waiters:
            time.sleep(0.01)
    elif kind == "lease":
        assert reserved() == [4 * GIB] * 2
    program.kill()
    program.wait()
    program.stdout.close()
    for _ in range(500):
        if machine().waiters == [] and (holder is not None or reserved() == [0, 0]):
            break
        time.sleep(0.02)
    else:
        pytest.fail(f"{reserved()} {machine().waiters}")
    if holder is not None:
        holder.shutdown()


def test_leases_of_workers_that_are_killed_come_back(machine, tmp_path):
    """Of a pool under fire no card is lost, none is granted twice, and no job is run twice."""
    log = tmp_path / "log"
    done = threading.Event()

    def kill_at_random(pool):
        chance = random.Random(6)
        while not done.wait(chance.random()):
            workers = list(pool._crew._workers)
            if workers:
                chance.choice(workers).end()

    with plimsoll.Pool(3, gpus=1, memory="3GiB") as pool:  # two cards of 4 GiB: one of the three waits
        pool.submit(cards).result()
        killer = threading.Thread(target=kill_at_random, args=(pool,))
        killer.start()
        futures = [pool.submit(functions.log_line, log, i) for i in range(300)]
        seen = []
        while not all(future.done() for future in futures):
            seen += reserved()
        done.set()
        killer.join()
        outcomes = [future.exception() for future in futures]
    assert set(seen) <= {0, 3 * GIB}
    ran = [int(line) for line in log.read_text().split()]
    assert len(ran) == len(set(ran)) and set(ran) >= {i for i, outcome in enumerate(outcomes) if outcome is None}
    assert {type(outcome) for outcome in outcomes} <= {type(None), plimsoll.WorkerKilled}
    assert reserved() == [0, 0] and machine().waiters == []
