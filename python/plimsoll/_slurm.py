"""Slurm's allocation around this program: each job of a pool is a step on one of its nodes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from typing import Callable, Optional

from . import _apart
from ._binary import LeaseOptions
from ._engines import Gone


def _number(name: str) -> Optional[int]:
    text = os.environ.get(name, "").split("(")[0].strip()
    return int(text) if text.isdecimal() else None


def _per_node(nodes: int) -> list[int]:
    """The processors that the allocation has of each node. `salloc` says those of all in Slurm's short form, as `4(x2),2`; a step those of
    its own."""
    found: list[int] = []
    for part in os.environ.get("SLURM_JOB_CPUS_PER_NODE", "").split(","):
        match = re.fullmatch(r"([1-9][0-9]{0,5})(?:\(x([0-9]{1,5})\))?", part.strip())
        if match is None:
            break
        found += [int(match[1])] * int(match[2] or 1)
    else:
        if len(found) == nodes:
            return found
    return [max(1, _number("SLURM_CPUS_ON_NODE") or 1)] * nodes


def processors() -> int:
    """How many processors this program may use: those of the allocation, where it is in one."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = _number("SLURM_CPUS_ON_NODE") if "SLURM_JOB_ID" in os.environ else None
    return max(1, min(mine, given or mine))


def engine() -> Optional[Steps]:
    """The engine in an allocation of several nodes; none on one, and in a step, whose nodes are divided already."""
    if "SLURM_JOB_ID" not in os.environ or os.environ.get("SLURM_STEP_ID", "").isdecimal():
        return None
    nodes = _number("SLURM_JOB_NUM_NODES") or _number("SLURM_NNODES") or 1
    return Steps(_per_node(nodes)) if nodes > 1 and shutil.which("srun") else None


class Steps:
    """Steps on the nodes of an allocation, each on the one that those of this pool leave most of."""

    def __init__(self, processors: list[int]) -> None:
        self.workers = sum(processors)
        self._processors = processors
        self._running = [0] * len(processors)
        self._lock = threading.Lock()

    def check(self, lease: LeaseOptions) -> None:
        """A node that cannot grant a lease says so itself."""

    def start(self, job: bytes, lease: LeaseOptions) -> Step:
        """Starts a step for a job."""
        with self._lock:
            node = min(range(len(self._running)), key=lambda node: self._running[node] / self._processors[node])
            self._running[node] += 1
        try:
            return Step(job, node, self._end)
        except BaseException:
            self._end(node)
            raise

    def _end(self, node: int) -> None:
        with self._lock:
            self._running[node] -= 1


class Step:
    """A job on a node."""

    def __init__(self, job: bytes, node: int, done: Callable[[int], None]) -> None:
        self._job, self._node, self._done = job, node, done
        command = ["srun", "--nodes=1", "--ntasks=1", "--overlap", "--quiet", f"--relative={node}", sys.executable, "-m", "plimsoll._apart"]
        path = os.pathsep.join([os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )

    def result(self) -> bytes:
        """The answer. Raises `Gone` where the step ended without one."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(self._job)
                process.stdin.close()
            self._job = b""
            answer: Optional[bytes] = None
            while (frame := _apart.read_frame(process.stdout)) is not None:
                kind, data = frame
                if kind == b"A":
                    answer = data
                else:
                    with contextlib.suppress(Exception):  # there is no standard output
                        sys.stdout.write(data.decode("utf-8", "replace"))
            status = process.wait()
            if answer is None:
                raise Gone(f"the step on node {self._node} of the allocation ended with status {status} before it had an answer")
            return answer
        finally:
            process.stdout.close()
            self._done(self._node)

    def cancel(self) -> None:
        """Ends the step."""
        self._process.terminate()
