"""Sessions of TensorFlow 1: a graph that may grow while it is open."""

from __future__ import annotations

import contextlib
import threading
import weakref
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

import numpy

from ... import _log, errors
from ...session import KEPT, Calls, Closed, Plan, _Computed, _Wanted, open_devices
from . import _summaries
from ._graph import Graph, GraphDef, Operation, Tensor, get_default_graph
from ._missing import Missing
from ._proto import ConfigProto, RunOptions
from ._variables import Variable

_local = threading.local()


def _sessions() -> List[Any]:
    if not hasattr(_local, "sessions"):
        _local.sessions = []
    sessions: List[Any] = _local.sessions
    return sessions


def get_default_session() -> Any:
    """The session of the innermost `with` of this thread, or None."""
    sessions = _sessions()
    return sessions[-1] if sessions else None


def session_or_default(session: Any, graph: Graph) -> Any:
    """This session, or the default one. ValueError where there is none, or it is of another graph."""
    found = get_default_session() if session is None else session
    if found is None:
        raise ValueError("Cannot evaluate: no default session is registered. Use `with sess.as_default()` or pass one as `session=`.")
    if found.graph is not graph:
        raise ValueError("Cannot use the given session: it is of another graph.")
    return found


class _Fetches(_Wanted):
    """Fetches of a graph: tensors, nodes, variables, their names, and summaries, which are made here."""

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._graph = graph
        self.ops: List[Operation] = []
        super().__init__(fetches)

    def _leaf(self, fetch: Any) -> Any:
        if isinstance(fetch, Variable):
            fetch = fetch._snapshot
        try:
            element = self._graph.as_graph_element(fetch)
        except (KeyError, ValueError) as error:
            raise ValueError(f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error})") from None
        except TypeError as error:
            raise TypeError(f"Fetch argument {fetch!r} has invalid type {type(fetch).__name__}. ({error})") from None
        op = element.op if isinstance(element, Tensor) else element
        if op.type in _summaries.OPERATIONS:
            work, tensors = _summaries.computed(op)
            return _Computed(work, [self._leaf(tensor) for tensor in tensors])
        self.ops.append(op)
        return super()._leaf(element)


class BaseSession:
    """A graph on devices: those of `plimsoll.config`, or of a ConfigProto."""

    def __init__(self, target: str = "", graph: Optional[Graph] = None, config: Optional[ConfigProto] = None) -> None:
        if target:
            raise Missing(f"plimsoll.compat.v1.Session: target={target!r}: a session is of this process")
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        self.graph = get_default_graph() if graph is None else graph
        self._devices: Any = open_devices(None if config is None else str(config))
        self._handed: weakref.WeakSet[Any] = weakref.WeakSet()
        _log.device_mapping(self._devices.device_mapping())
        self._session: Any = None
        self._calls = Calls()
        self._short: Dict[Any, Tuple[Any, List[Tensor]]] = {}
        """Callables of one tensor, with what they are fed, by what `run` is given."""
        self._built = 0
        self._is_closed = False
        self._lock = threading.RLock()

    @property
    def graph_def(self) -> GraphDef:
        return self.graph.as_graph_def()

    @property
    def sess_str(self) -> str:
        return ""

    def _of_graph(self, ops: List[Operation]) -> Any:
        """The session of the graph as far as these nodes need it. Variables keep their values where the graph has grown."""
        if self._is_closed:
            raise RuntimeError("Attempted to use a closed Session.")
        with self._lock:
            needed = max((op._number for op in ops), default=-1) + 1
            if self._session is None or needed > self._built:
                values = {} if self._session is None else self._values()
                before, count = self._session, len(self.graph._builder)
                fresh = self._devices.build(self.graph._builder)
                self._calls.clear()
                self._short.clear()
                if before is not None:
                    before.close()
                self._session, self._built = fresh, count
                for name, value in values.items():
                    fresh.write_variable(name, value)
            return self._session

    def _values(self) -> Dict[str, Any]:
        values = {}
        for name, _, _ in self._session.variables():
            with contextlib.suppress(errors.FailedPreconditionError):
                values[name] = numpy.array(self._session.read_variable(name))
        return values

    def run(self, fetches: Any, feed_dict: Optional[Mapping[Any, Any]] = None, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs what is fetched, and returns its values in its structure; None for nodes."""
        if options is not None or run_metadata is not None:
            _refuse_options(options, run_metadata)
        try:
            call, feeds = self._short[(fetches, *feed_dict) if feed_dict else (fetches,)]
        except (KeyError, TypeError):  # something new, or a structure
            pass
        else:
            return call(*map(_handed_on, feeds, feed_dict.values())) if feed_dict else call()
        if len(self.graph._builder) == 0:
            raise RuntimeError("The Session graph is empty. Add operations to the graph before calling run().")
        wanted = _Fetches(self.graph, fetches)
        names, values, ops = self._fed(feed_dict)
        session = self._of_graph(wanted.ops + ops)
        # What is fed is fetched here.
        given = dict(zip(names, values)) if names else {}
        tensors = [name for name in wanted.tensors if name not in given]
        if wanted.is_one_tensor and tensors:
            call = self._calls.of(session, names, tensors, [], True)
            made = call(*values)
            if len(self._short) == KEPT:
                self._short.clear()
            self._short[(fetches, *(feed_dict or ()))] = call, [self._feed(key) for key in feed_dict or ()]
            return made
        if tensors or wanted.operations:
            given.update(zip(tensors, self._calls.of(session, names, tensors, wanted.operations)(*values)))
        return wanted.of([given[name] for name in wanted.tensors])

    def plan(self, fetches: Any, feed_dict: Optional[Mapping[Any, Any]] = None) -> Plan:
        """The plan of such a run: the peak of each device, before anything runs."""
        wanted = _Fetches(self.graph, fetches)
        names, values, ops = self._fed(feed_dict)
        plan: Plan = self._of_graph(wanted.ops + ops).plan(names, values, wanted.tensors, wanted.operations)
        return plan

    def make_callable(self, fetches: Any, feed_list: Optional[List[Any]] = None, accept_options: bool = False) -> Any:
        """A function that takes the values of `feed_list`, in order, and returns what `run` would."""
        if accept_options:
            raise Missing("plimsoll.compat.v1.Session.make_callable: accept_options")
        wanted = _Fetches(self.graph, fetches)
        feeds = [self._feed(key) for key in feed_list or ()]
        session = self._of_graph(wanted.ops + [feed.op for feed in feeds])
        is_one = wanted.is_one_tensor
        call = session.callable([feed.name for feed in feeds], wanted.tensors, wanted.operations, is_one)
        self._handed.add(call)
        count = len(feeds)

        def run(*values: Any) -> Any:
            if len(values) != count:
                raise ValueError(f"Expected {count} feeds, but got {len(values)}")
            made = call(*map(_handed_on, feeds, values))
            return made if is_one else wanted.of(made)

        return run

    def _feed(self, key: Any) -> Tensor:
        try:
            element = self.graph.as_graph_element(key, allow_operation=False)
        except (KeyError, TypeError, ValueError) as error:
            raise TypeError(f"Cannot interpret feed_dict key as Tensor: {error}") from None
        assert isinstance(element, Tensor)
        return element

    def _fed(self, feed_dict: Optional[Mapping[Any, Any]]) -> Tuple[List[str], Tuple[Any, ...], List[Operation]]:
        feeds = [(self._feed(key), value) for key, value in (feed_dict or {}).items()]
        return [feed.name for feed, _ in feeds], tuple(_value(feed, value) for feed, value in feeds), [feed.op for feed, _ in feeds]

    def partial_run(self, *args: Any, **kwargs: Any) -> Any:
        """Not there: a plan covers a whole run."""
        raise Missing("plimsoll.compat.v1.Session.partial_run")

    partial_run_setup = partial_run

    def list_devices(self) -> List[str]:
        """The full names of the devices."""
        return [name for name, _, _ in self._devices.names()]

    def memory_info(self, device: str) -> Dict[str, int]:
        """Bytes that sessions have of a device now, as `current`, and had at most, as `peak`."""
        info: Dict[str, int] = self._devices.memory_info(device)
        return info

    def _load(self, values: Mapping[Any, Any]) -> None:
        session = self._of_graph([variable.op for variable in values])
        for variable, value in values.items():
            session.write_variable(variable._name, numpy.asarray(value, variable.dtype.as_numpy_dtype))

    def _read(self, variables: List[Variable]) -> List[Any]:
        session = self._of_graph([variable.op for variable in variables])
        return [session.read_variable(variable._name) for variable in variables]

    def close(self) -> None:
        """Gives every byte back."""
        with self._lock:
            self._is_closed = True
            self._calls.clear()
            self._short.clear()
            if self._session is not None:
                self._session.close()
            for call in list(self._handed):
                call.close()
            self._devices = Closed()

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Any]:
        sessions = _sessions()
        sessions.append(self)
        try:
            yield self
        finally:
            sessions.remove(self)


class Session(BaseSession):
    """A graph on devices. In its `with` block it and its graph are the default ones; it is closed at the end."""

    def __enter__(self) -> Session:
        self._around = contextlib.ExitStack()
        self._around.enter_context(self.graph.as_default())
        self._around.enter_context(self.as_default())
        return self

    def __exit__(self, *error: Any) -> None:
        self._around.close()
        self.close()

    @staticmethod
    def reset(target: str, containers: Any = None, config: Any = None) -> None:
        """Not there: variables are a session's own, and go with it."""
        raise Missing("plimsoll.compat.v1.Session.reset")


class InteractiveSession(BaseSession):
    """A session that is the default one until it is closed."""

    def __init__(self, target: str = "", graph: Optional[Graph] = None, config: Optional[ConfigProto] = None) -> None:
        super().__init__(target, graph, config)
        _sessions().append(self)

    def close(self) -> None:
        super().close()
        if self in _sessions():
            _sessions().remove(self)


def _refuse_options(options: Any, run_metadata: Any) -> None:
    if run_metadata is not None:
        raise Missing("plimsoll.compat.v1.Session.run: run_metadata")
    if options is None:
        return
    if not isinstance(options, RunOptions):
        raise TypeError(f"options must be a RunOptions, not {type(options).__name__}")
    # What holds of the memory is in every ResourceExhaustedError.
    for name, value in options._values.items():
        if value and name != "report_tensor_allocations_upon_oom":
            raise Missing(f"plimsoll.compat.v1.RunOptions.{name}")


_FLOATS = numpy.float32, numpy.float64


def _handed_on(feed: Tensor, value: Any) -> Any:
    """As `_value`; a Python float for a scalar stays one, which the module takes faster than an array."""
    if type(value) is float:
        kind, known = feed._takes
        if not known and kind in _FLOATS:
            return value
    return _value(feed, value)


def _value(feed: Tensor, value: Any) -> Any:
    if isinstance(value, (Tensor, Variable)):
        raise TypeError(
            "The value of a feed cannot be a tf.Tensor object. Acceptable feed values include Python scalars, strings, lists, numpy "
            f"ndarrays. For reference, the tensor object was {value!r} which was passed to the feed with key {feed!r}."
        )
    kind, known = feed._takes
    array = numpy.asarray(value, kind)
    if known is not None and (len(known) != array.ndim or any(size not in (None, own) for size, own in zip(known, array.shape))):
        raise ValueError(f"Cannot feed value of shape {array.shape} for Tensor {feed.name}, which has shape {feed.shape}")
    return array
