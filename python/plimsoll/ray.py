"""Ray as an engine: each job of a pool, each run of a sweep, is a Ray task that takes a lease on the node that it lands on.

    ray start --head --resources="$(python -m plimsoll.ray resources)"      # on each node, with its cards
    ray.init(address="auto")
    with plimsoll.Pool(engine="ray", gpus=1, memory="2GiB") as pool: ...

Ray packs tasks by the resource `card_bytes`, the memory of a node's cards, and by `cards` where a lease is of whole cards or of fractions.
The lease on the node is what holds: it waits there where the cards' memory is in pieces, or where programs that Ray does not know have it.
A job whose node is lost is run again on another. `plimsoll` and `cloudpickle` have to be installed on the nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Optional, Sequence

from ._binary import LeaseOptions
from ._engines import Gone
from .errors import LeaseRefused, WorkerOutOfMemory

__all__ = ["engine", "resources"]

BYTES, CARDS = "card_bytes", "cards"
_UNITS = {"": 1, "b": 1, **{unit + end: 1024**power for power, unit in enumerate("kmgt", 1) for end in ("", "b", "ib")}}
_WORKERS = 64


def resources() -> dict[str, int]:
    """The resources of this node, for `ray start --resources`: the memory of its cards in bytes, and their number."""
    from .machine import devices

    cards = [card for card in devices().cards if card.cuda_ordinal is not None]
    return {BYTES: sum(card.total_bytes or 0 for card in cards), CARDS: len(cards)}


def engine() -> Tasks:
    """The engine, on the cluster that this program is connected to, or can be. Raises ConnectionError where there is none."""
    import ray  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if not ray.is_initialized():
        ray.init(address="auto", log_to_driver=True)
    return Tasks(ray)


def needs(lease: LeaseOptions) -> dict[str, float]:
    """The resources of a task with that lease."""
    if not lease.needs_lease():
        return {}
    gpus = 1 if lease.gpus is None else lease.gpus
    if isinstance(gpus, str) and gpus.strip().isdecimal():
        gpus = int(gpus)
    if not isinstance(gpus, int):
        raise ValueError(f"gpus={lease.gpus!r}: the cards of nodes have numbers of their own: a number of cards is asked for on Ray")
    memory = lease.memory
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", memory)
        if found is None or found[2].lower() not in _UNITS:
            raise ValueError(f"memory={memory!r}: a size such as '2GiB', a number of bytes, or a fraction such as 0.4")
        number = float(found[1])
        memory = number if not found[2] and number <= 1 else int(number * _UNITS[found[2].lower()])
    if memory is None or isinstance(memory, float):
        return {CARDS: gpus * (1.0 if memory is None else memory)} if gpus else {}
    return {BYTES: gpus * memory} if gpus else {}


class Tasks:
    """Tasks of Ray."""

    workers = _WORKERS

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # A task that Ray ran again by itself could be one that had come to its end: it is asked for anew where it has not.
        self._task = ray.remote(max_retries=0, num_returns="streaming")(_answers)

    def check(self, lease: LeaseOptions) -> None:
        """Raises `LeaseRefused` where no node has as much."""
        wanted = needs(lease)
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        for name, amount in wanted.items():
            most = max((node.get(name, 0) for node in nodes), default=0)
            if most < amount:
                raise LeaseRefused(
                    f"a task needs {amount:.16g} of Ray's resource {name!r}, and no node of the cluster has more than {most:.16g}: "
                    'start nodes by ray start --resources="$(python -m plimsoll.ray resources)"'
                )

    def start(self, job: bytes, lease: LeaseOptions) -> Task:
        """Starts a task for a job."""
        options = {"resources": needs(lease), "name": lease.name or "plimsoll"}
        return Task(self._ray, self._task.options(**options).remote(job))


class Task:
    """A job that Ray has."""

    def __init__(self, ray: Any, answers: Any) -> None:
        self._ray, self._answers = ray, answers

    def result(self) -> bytes:
        """The answer. Raises `Gone` where its node or its worker was lost."""
        failed = self._ray.exceptions
        lost = [getattr(failed, name) for name in _LOST if hasattr(failed, name)]
        try:
            return bytes(self._ray.get(next(self._answers)))
        except failed.OutOfMemoryError as error:
            raise WorkerOutOfMemory(f"Ray ended the task: {error}") from error
        except tuple(lost) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def cancel(self) -> None:
        """Ends the task."""
        self._ray.cancel(self._answers, force=True)


_LOST = (
    "WorkerCrashedError",
    "NodeDiedError",
    "ObjectLostError",
    "LocalRayletDiedError",
    "TaskCancelledError",
    "RaySystemError",
    "TaskUnschedulableError",
    "OwnerDiedError",
)


def _answers(job: bytes) -> Iterator[bytes]:
    """In the task: the cards are those of the node, also where the task asked Ray for none of its own GPUs."""
    from plimsoll import _apart

    _as_on_the_node("CUDA_VISIBLE_DEVICES")
    _end_with_the_node()
    yield from _apart.answers(job)


def _end_with_the_node() -> None:
    """Has the kernel end this process, and with it the job, when Ray's process of the node ends. By itself it would go on for up to a
    second, in which the job could come to an end that its pool does not hear of, so that it is done again."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL, 0, 0, 0)


def _as_on_the_node(name: str) -> None:
    """Gives a variable the value that it has in Ray's process of the node, which started this one. Ray hides cards from tasks."""
    try:
        with open(f"/proc/{os.getppid()}/environ", "rb") as file:
            variables = dict(entry.split(b"=", 1) for entry in file.read().split(b"\0") if b"=" in entry)
    except OSError:
        return
    value = variables.get(name.encode())
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = os.fsdecode(value)


def _program(command: Sequence[str], folder: str) -> tuple[int, bytes, bytes]:
    """In a worker under its lease: runs a program. Its status and what it printed."""
    here = folder if os.path.isdir(folder) else None
    done = subprocess.run(command, cwd=here, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return done.returncode, done.stdout, done.stderr


def _run(arguments: argparse.Namespace) -> int:
    """Runs a program as a task. Its exit status; it ends by a signal where the program did."""
    from .pool import Pool

    gpus: Any = arguments.gpus
    memory: Any = arguments.memory
    with Pool(1, engine="ray", gpus=gpus, memory=memory, name="sweep") as pool:
        status, out, err = pool.submit(_program, arguments.command, os.getcwd()).result()
    for stream, said in ((sys.stdout, out), (sys.stderr, err)):
        stream.buffer.write(said)
        stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
    return status


def _main(words: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m plimsoll.ray", description="Ray as an engine of Plimsoll.")
    commands = parser.add_subparsers(dest="what", required=True)
    commands.add_parser("resources", help="print the resources of this node, for ray start --resources")
    run = commands.add_parser("run", help="run a program as a task under a lease (plimsoll sweep --engine ray)")
    run.add_argument("--gpus")
    run.add_argument("--memory")
    run.add_argument("command", nargs="+")
    arguments = parser.parse_args(words)
    if arguments.what == "resources":
        print(json.dumps(resources()))
        return 0
    return _run(arguments)


if __name__ == "__main__":
    sys.exit(_main())
