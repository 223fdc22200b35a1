#!/usr/bin/env python3
"""Runs `plimsoll.Pool` and `plimsoll sweep` in an allocation of a real Slurm: two nodes on this machine, each with two processors and two
simulated cards. Debian has Slurm in the package slurm-wlm; where it is absent, the check says so and passes.

    PLIMSOLL_BINARY=target/debug/plimsoll python3 scripts/check_slurm.py

The daemons are this script's own, with a configuration and ports of their own, and end with it.
"""

import collections
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

CONF = """\
ClusterName=check
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES State=UP
"""
# A node's ledger is its own.
PROLOG = """#!/bin/sh
echo "export PLIMSOLL_STATE_DIR={folder}/ledger.$SLURMD_NODENAME"
"""
JOBS = 24
TOOLS = ("slurmctld", "slurmd", "salloc", "srun", "sinfo")


def work(number, folder):
    """A job: notes that it runs, on which card, from when to when."""
    begin = time.time()
    time.sleep(0.1)
    place = f"{os.environ['SLURMD_NODENAME']}:{os.environ['CUDA_VISIBLE_DEVICES']}"
    with open(f"{folder}/ran", "a") as file:
        file.write(json.dumps([number, place, begin, time.time()]) + "\n")
    return number


def pool(folder):
    """In the allocation: jobs on all nodes, each once, and never two on a card that has room for one."""
    import plimsoll

    with plimsoll.Pool(memory="3GiB") as workers:
        futures = [workers.submit(work, number, folder) for number in range(JOBS)]
        assert [future.result() for future in futures] == list(range(JOBS))
        assert isinstance(workers.submit(int, "x").exception(), ValueError)
        assert isinstance(workers.submit(sys.exit, 3).exception(), plimsoll.WorkerExit)
        assert workers.submit(os.getenv, "SLURM_JOB_ID").result() == os.environ["SLURM_JOB_ID"]
    ran = [json.loads(line) for line in Path(folder, "ran").read_text().splitlines()]
    assert sorted(number for number, *_ in ran) == list(range(JOBS)), "a job is lost, or ran twice"
    by_place = collections.defaultdict(list)
    for _, place, begin, end in ran:
        by_place[place].append((begin, end))
    for place, spans in by_place.items():
        spans.sort()
        assert all(one[1] <= other[0] for one, other in zip(spans, spans[1:])), f"two jobs on {place} at once"
    assert {place.split(":")[0] for place in by_place} == {"n1", "n2"}, sorted(by_place)
    print(f"Pool: {JOBS} jobs on {len(by_place)} cards of 2 nodes, each once")


def sweep(folder):
    """In the allocation: a sweep over both nodes."""
    script = 'echo "{\\"node\\": \\"$SLURMD_NODENAME\\", \\"loss\\": {i}}"'
    command = [os.environ["PLIMSOLL_BINARY"], "sweep", "--memory", "3GiB", "--set", "i=4,3,2,1,5,6,7,8", "--results", f"{folder}/sweep.jsonl"]
    ended = subprocess.run([*command, "--", "bash", "-c", script], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    runs = [json.loads(line) for line in Path(folder, "sweep.jsonl").read_text().splitlines()]
    results = sorted((run["result"]["loss"], run["result"]["node"]) for run in runs)
    assert [loss for loss, _ in results] == list(range(1, 9)) and {node for _, node in results} == {"n1", "n2"}, runs
    print("sweep: 8 runs")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    if len(sys.argv) > 1:
        {"pool": pool, "sweep": sweep}[sys.argv[1]](sys.argv[2])
        return
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    if missing:
        print(f"skipped: no Slurm here ({', '.join(missing)})")
        return
    program = os.path.realpath(os.environ.get("PLIMSOLL_BINARY") or ROOT / "target/debug/plimsoll")
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:
        environment = {**os.environ, "PATH": path, "SLURM_CONF": f"{folder}/slurm.conf", "PLIMSOLL_BINARY": program}
        environment["PLIMSOLL_SIM_GPUS"] = "2x4GiB"
        environment.pop("SLURM_JOB_ID", None)
        import pwd

        facts = {"host": socket.gethostname(), "ports": free_ports(3), "folder": folder, "user": pwd.getpwuid(os.getuid()).pw_name}
        for name in ("state", "spool.n1", "spool.n2"):
            os.mkdir(f"{folder}/{name}")
        Path(folder, "slurm.conf").write_text(CONF.format(**facts))
        Path(folder, "prolog").write_text(PROLOG.format(**facts))
        Path(folder, "prolog").chmod(0o755)
        start = [["slurmctld", "-D"], ["slurmd", "-D", "-N", "n1"], ["slurmd", "-D", "-N", "n2"]]
        daemons = []
        try:
            for command in start:
                quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                daemons.append(subprocess.Popen(command, env=environment, **quiet))
            end = time.monotonic() + 60
            ready = ["sinfo", "--noheader", "--format=%T %D"]
            while subprocess.run(ready, env=environment, capture_output=True, text=True).stdout.split() != ["idle", "2"]:
                if time.monotonic() > end:
                    sys.exit("the nodes are not ready:\n" + Path(folder, "slurmctld.log").read_text()[-2000:])
                time.sleep(0.2)
            for part in ("pool", "sweep"):
                inside = ["salloc", "--quiet", "--nodes=2", "--cpus-per-task=2", sys.executable, __file__, part, folder]
                subprocess.run(inside, env=environment, check=True, timeout=300)
        finally:
            for daemon in reversed(daemons):
                daemon.terminate()
            for daemon in daemons:
                daemon.wait()


if __name__ == "__main__":
    main()
