"""Pools on other machines: steps of a Slurm allocation (a stand-in for srun), and tasks of a local Ray cluster of two nodes."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time

import functions
import pytest
from conftest import PACKAGE

import plimsoll
from plimsoll import _slurm

SRUN = """#!/bin/sh
echo "$*" >> "$NODES/steps"
while [ $# -gt 0 ]; do
    case "$1" in
        --relative=*) node=${1#--relative=} ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
export SLURMD_NODENAME="node$node" PLIMSOLL_STATE_DIR="$NODES/state$node" SLURM_STEP_ID=0
exec "$@"
"""


@pytest.fixture
def allocation(tmp_path, monkeypatch):
    """A Slurm allocation of two nodes, of two processors and two simulated cards each."""
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(srun.stat().st_mode | stat.S_IXUSR)
    variables = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_ON_NODE": "2(x2)", "NODES": str(tmp_path)}
    for name, value in {**variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_STEP_ID", raising=False)
    return tmp_path


def test_a_pool_in_an_allocation_is_on_all_of_its_nodes(allocation, machine, capfd):
    with plimsoll.Pool(memory="3GiB") as pool:
        places = list(pool.map(functions.place, range(8)))
        assert {node for _, node, _ in places} == {"node0", "node1"} and [number for number, _, _ in places] == list(range(8))
        assert all(cards in ("0", "1") for _, _, cards in places)
        assert isinstance(pool.submit(functions.raise_, KeyError, "k").exception(), KeyError)
        assert isinstance(pool.submit(functions.die, 11).exception(), plimsoll.WorkerKilled)
        assert isinstance(pool.submit(functions.exit_, 3).exception(), plimsoll.WorkerExit)
        assert pool.submit(print, "said there").result() is None
        report = pool.submit(functions.identity, 1)
        assert report.result() == 1 and report.report.ended == "returned"
    assert "said there\n" in capfd.readouterr().out
    steps = (allocation / "steps").read_text().splitlines()
    assert len(steps) == 13 and all(step.startswith("--nodes=1 --ntasks=1 --overlap --quiet --relative=") for step in steps)


def test_a_pool_ends_its_steps(allocation):
    with plimsoll.Pool(2, engine="slurm") as pool:
        slow = pool.submit(time.sleep, 60)
        while not slow.running():
            time.sleep(0.01)
        time.sleep(0.2)
        begin = time.monotonic()
        pool.terminate()
        assert isinstance(slow.exception(), plimsoll.WorkerKilled) and time.monotonic() - begin < 20


def test_a_step_that_is_lost_is_run_again(allocation):
    (allocation / "srun").write_text(SRUN.replace("exec", '[ -e "$NODES/lost" ] || { touch "$NODES/lost"; exit 1; }\nexec'))
    with plimsoll.Pool(1, engine="slurm") as pool:
        assert pool.submit(functions.identity, 5).result() == 5
    assert len((allocation / "steps").read_text().splitlines()) == 2
    (allocation / "srun").write_text("#!/bin/sh\nexit 1\n")
    with plimsoll.Pool(1, engine="slurm") as pool:
        with pytest.raises(plimsoll.WorkerLost):
            pool.submit(functions.identity, 5).result()


def test_what_is_no_engine(allocation, monkeypatch):
    with plimsoll.Pool(1, engine="none") as pool:
        assert pool.submit(os.getenv, "SLURMD_NODENAME").result() is None
    with pytest.raises(ValueError, match="'ray', 'slurm' or 'none'"):
        plimsoll.Pool(engine="cluster")
    # A step of a job has one node, and a job of one node needs no engine.
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert _slurm.engine() is None
    with pytest.raises(ValueError, match="no Slurm allocation of several nodes"):
        plimsoll.Pool(engine="slurm")
    monkeypatch.setenv("SLURM_STEP_ID", "batch")
    assert _slurm.engine() is not None
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert _slurm.processors() == 1
    # What salloc says: the processors of each node.
    for text, workers in [("4(x2)", 8), ("3,1", 4), ("4", 2), ("4(x3)", 2), ("4(x2),", 2), ("0(x2)", 2), ("", 2)]:
        monkeypatch.setenv("SLURM_JOB_CPUS_PER_NODE", text)
        assert _slurm.engine().workers == workers
    monkeypatch.delenv("SLURM_JOB_ID")
    assert _slurm.engine() is None and _slurm.processors() >= 1


CLUSTER = """
import json, os, sys, time
from pathlib import Path
import ray, ray.cluster_utils
import plimsoll
from plimsoll import errors

folder = Path(sys.argv[1])
SIZE = 3 << 29                                   # 1.5 GiB of cards of 4 GiB: two on each, and never three

def node(name):
    os.environ.update(PLIMSOLL_STATE_DIR=str(folder / name), PLIMSOLL_SIM_GPUS="2x4GiB", PLIMSOLL_NVML="", NODE=name)
    return {"num_cpus": 8, "resources": {"card_bytes": 8 << 30, "cards": 2}}

cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=node("one"))
other = cluster.add_node(**node("two"))
cluster.wait_for_nodes()
ray.init(address=cluster.address, log_to_driver=False)

def work(number):
    import os, time
    begin = time.time()
    # What the lost node has when it is lost is in the middle of its work.
    time.sleep(60 if os.environ["NODE"] == "two" and number >= 16 else 0.3)
    with open(folder / "done", "a") as file:
        file.write(f"{number}\\n")
    return number, os.environ["NODE"], os.environ["CUDA_VISIBLE_DEVICES"], begin, time.time()

with plimsoll.Pool(12, engine="ray", gpus=1, memory=SIZE) as pool:
    futures = [pool.submit(work, number) for number in range(int(sys.argv[2]))]
    first = list(pool.as_completed(futures[:16]))
    time.sleep(2)
    cluster.remove_node(other, allow_graceful=False)
    made = [future.result() for future in futures]
    assert isinstance(pool.submit(divmod, 1, 0).exception(), ZeroDivisionError)
for wrong, kind in ((dict(memory="20GiB"), errors.LeaseRefused), (dict(gpus=[0]), ValueError), (dict(memory="much"), ValueError)):
    try:
        plimsoll.Pool(1, engine="ray", **wrong)
        sys.exit(f"{wrong} is taken")
    except kind:
        pass
(folder / "made").write_text(json.dumps(made))
ray.shutdown()
cluster.shutdown()
"""


SWEEP = """
import os, subprocess, sys
from pathlib import Path
import ray.cluster_utils

folder, binary = Path(sys.argv[1]), sys.argv[2]

def node(name):
    os.environ.update(PLIMSOLL_STATE_DIR=str(folder / name), PLIMSOLL_SIM_GPUS="2x4GiB", PLIMSOLL_NVML="", NODE=name)
    return {"num_cpus": 4, "resources": {"card_bytes": 8 << 30, "cards": 2}}

cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args=node("one"))
cluster.add_node(**node("two"))
cluster.wait_for_nodes()
program = "echo noise; sleep 1; echo '{\\"card\\": '$CUDA_VISIBLE_DEVICES', \\"n\\": {n}}'; echo $NODE >&2; [ {n} != 3 ]"
command = [binary, "sweep", "--engine", "ray", "--jobs", "4", "--set", "n=1,2,3,4", "--gpus", "1", "--memory", "3GiB", "--json"]
done = subprocess.run(
    [*command, "--results", str(folder / "results.jsonl"), "--", "sh", "-c", program],
    env={**os.environ, "RAY_ADDRESS": cluster.address, "PATH": os.path.dirname(sys.executable) + ":" + os.environ["PATH"]},
    stdout=open(folder / "out", "w"),
)
cluster.shutdown()
sys.exit(done.returncode)
"""


def test_a_sweep_on_ray(tmp_path, machine):
    pytest.importorskip("ray")
    if b"--engine" not in subprocess.run([plimsoll.binary(), "sweep", "--help"], capture_output=True).stdout:
        pytest.skip(f"{plimsoll.binary()} has no engines")
    source = tmp_path / "sweep.py"
    source.write_text(SWEEP)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PLIMSOLL_BINARY": plimsoll.binary()}
    # Beside another interpreter it would take that one. The package is what the program of a wheel needs.
    (tmp_path / "bin").mkdir()
    program = shutil.copy(plimsoll.binary(), tmp_path / "bin")
    (tmp_path / "plimsoll").symlink_to(PACKAGE / "plimsoll")
    command = [sys.executable, str(source), str(tmp_path), str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1, done.stderr[-4000:]  # one of them fails
    runs = {run["set"]["n"]: run for run in json.loads((tmp_path / "out").read_text())}
    assert {n: run["ok"] for n, run in runs.items()} == {"1": True, "2": True, "3": False, "4": True}
    assert runs["3"]["status"] == "exit status 1" and all(run["result"]["card"] in (0, 1) for run in runs.values())
    # Ray writes there, too.
    lines = [line for n in runs for line in (tmp_path / "results.jsonl.logs" / f"{n}.err").read_text().splitlines()]
    assert {line for line in lines if line in ("one", "two")} == {"one", "two"}


def test_a_ray_cluster_that_loses_a_node(tmp_path, machine):
    pytest.importorskip("ray")
    runs = 50
    source = tmp_path / "cluster.py"
    source.write_text(CLUSTER)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "PLIMSOLL_BINARY": plimsoll.binary()}
    done = subprocess.run([sys.executable, str(source), str(tmp_path), str(runs)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    made = json.loads((tmp_path / "made").read_text())
    assert [run[0] for run in made] == list(range(runs)), "none is lost"
    assert {run[1] for run in made} == {"one", "two"}
    # A run that was under way on the lost node was not done, and is done elsewhere.
    assert sorted(map(int, (tmp_path / "done").read_text().split())) == list(range(runs)), "none is done twice"
    for node, card in {(run[1], run[2]) for run in made}:
        spans = [(run[3], run[4]) for run in made if (run[1], run[2]) == (node, card)]
        assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) <= 2, "above a card"
