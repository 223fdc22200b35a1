"""TensorFlow 1's `tf.train`: optimizers, averages, schedules, checkpoints, and what ends a loop of training."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Iterator, List, Optional

from ._graph import GraphKeys, get_default_graph
from ._missing import missing, refuse
from ._optimizers import (
    AdadeltaOptimizer,
    AdagradOptimizer,
    AdamOptimizer,
    ExponentialMovingAverage,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
    exponential_decay,
    inverse_time_decay,
    piecewise_constant,
    polynomial_decay,
)
from ._saver import (
    CheckpointState,
    Saver,
    checkpoint_exists,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_variable,
)

__all__ = [
    "AdadeltaOptimizer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "CheckpointState",
    "Coordinator",
    "ExponentialMovingAverage",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
    "Saver",
    "checkpoint_exists",
    "create_global_step",
    "exponential_decay",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "inverse_time_decay",
    "latest_checkpoint",
    "list_variables",
    "load_variable",
    "piecewise_constant",
    "polynomial_decay",
    "start_queue_runners",
    "write_graph",
]
__getattr__ = missing("plimsoll.compat.v1.train")


class Coordinator:
    """Ends threads together: each asks `should_stop`, and any may `request_stop`."""

    def __init__(self, clean_stop_exception_types: Any = None) -> None:
        from ... import errors

        self._clean = tuple(clean_stop_exception_types or (errors.OutOfRangeError,))
        self._stop = threading.Event()
        self._error: Optional[BaseException] = None
        self._threads: List[threading.Thread] = []

    def request_stop(self, ex: Any = None) -> None:
        """Asks all threads to end. An exception is raised again by `join`."""
        error = ex[1] if isinstance(ex, tuple) else ex
        if error is not None and not isinstance(error, self._clean) and self._error is None and not self._stop.is_set():
            self._error = error
        self._stop.set()

    def should_stop(self) -> bool:
        return self._stop.is_set()

    def wait_for_stop(self, timeout: Optional[float] = None) -> bool:
        return self._stop.wait(timeout)

    def clear_stop(self) -> None:
        self._stop.clear()
        self._error = None

    def register_thread(self, thread: threading.Thread) -> None:
        self._threads.append(thread)

    @contextlib.contextmanager
    def stop_on_exception(self) -> Iterator[None]:
        """Asks all threads to end where an exception leaves the block."""
        try:
            yield
        except Exception as error:
            self.request_stop(error)

    def join(self, threads: Any = None, stop_grace_period_secs: float = 120, ignore_live_threads: bool = False) -> None:
        """Waits until threads have ended. RuntimeError where some live on so long after they were asked to end."""
        waited = [*(threads or ()), *self._threads]
        while any(thread.is_alive() for thread in waited) and not self.wait_for_stop(1.0):
            pass
        last = time.monotonic() + stop_grace_period_secs
        for thread in waited:
            thread.join(max(0.0, last - time.monotonic()))
        alive = [thread.name for thread in waited if thread.is_alive()]
        self._threads = []
        if self._error is not None:
            raise self._error
        if alive and not ignore_live_threads:
            raise RuntimeError(f"Coordinator stopped with threads still running: {' '.join(alive)}")

    @property
    def joined(self) -> bool:
        return not self._threads


def start_queue_runners(
    sess: Any = None,
    coord: Optional[Coordinator] = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> List[threading.Thread]:
    """The threads that fill queues: none, since there are no queues."""
    refuse("train.start_queue_runners", queues=get_default_graph().get_collection(collection) or None)
    return []


def create_global_step(graph: Any = None) -> Any:
    """The variable that counts steps. ValueError where there is one."""
    from ._initializers import Zeros
    from ._variables import get_variable

    graph = get_default_graph() if graph is None else graph
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        made = get_variable(
            GraphKeys.GLOBAL_STEP,
            shape=[],
            dtype="int64",
            initializer=Zeros(),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )
    return made


def get_global_step(graph: Any = None) -> Any:
    """The variable that counts steps, or None."""
    graph = get_default_graph() if graph is None else graph
    found = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if found:
        return found[0]
    named = [variable for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES) if variable.op.name == "global_step"]
    return named[0] if named else None


def get_or_create_global_step(graph: Any = None) -> Any:
    """The variable that counts steps."""
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def global_step(sess: Any, global_step_tensor: Any) -> int:
    """How many steps were counted."""
    return int(sess.run(global_step_tensor))


def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """Writes a graph into a file, as text or encoded. The file's path."""
    import os

    graph_def = graph_or_graph_def.as_graph_def() if hasattr(graph_or_graph_def, "as_graph_def") else graph_or_graph_def
    os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    with open(path, "wb") as file:
        file.write(str(graph_def).encode() if as_text else graph_def.SerializeToString())
    return path
