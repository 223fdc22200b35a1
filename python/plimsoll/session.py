"""Sessions: a graph on devices, under a limit for each, as TensorFlow 1 has them."""

from __future__ import annotations

import collections
import functools
import os
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _log, _native
from ._native import Plan as Plan
from .config import _context

Limits = Union[str, int, Mapping[str, Union[str, int]]]
"""A limit for each device: `{"CPU:0": "64MiB", "GPU:0": 1 << 30}`; a size alone is that of every GPU."""


def open_devices(
    config: Any = None,
    limits: Optional[Limits] = None,
    device_count: Optional[Mapping[str, int]] = None,
    sim_gpus: Optional[str] = None,
    *,
    spill: Optional[str] = None,
    exact_convolutions: bool = False,
    matmul_precision: Optional[str] = None,
    fit: bool = True,
    described: Optional[Union[str, os.PathLike[str]]] = None,
) -> _native.Devices:
    """Opens the machine's devices; those of `plimsoll.config`, which sessions share, where nothing is given.

    `config` is a ConfigProto: encoded, as text, or TensorFlow's own. `sim_gpus` are simulated cards, as "2x4GiB". `spill` is a folder
    and a size, as "/var/tmp=8GiB": a file there, of this size at most, in which values of processors wait where a plan is made to fit.
    With `exact_convolutions`, convolutions do all multiplications, also where a form with fewer is faster. With `matmul_precision` "bf16",
    operands of products and convolutions may be rounded to bf16 on processors; "float32" is the default. Without `fit`, a plan that is
    over a limit is refused instead of made to fit. `described` is a file in place of this machine, which then only plans: `plan`.
    """
    own = config, limits, device_count, sim_gpus, spill, matmul_precision, described
    if all(each is None for each in own) and exact_convolutions is False and fit is True:
        return _context.settings().open()
    if config is not None and not isinstance(config, (bytes, str)):
        if not hasattr(config, "SerializeToString"):
            raise TypeError(f"config must be a ConfigProto, encoded or as text too, not {type(config).__name__}")
        config = config.SerializeToString()
    if isinstance(config, str):
        config = config.encode()
    if limits is not None and not isinstance(limits, Mapping):
        limits = {"": limits}
    return _native.Devices(
        {
            "config": config,
            "limits": None if limits is None else {device: str(limit) for device, limit in limits.items()},
            "device_count": None if device_count is None else dict(device_count),
            "sim_gpus": sim_gpus,
            "spill": spill,
            "exact_convolutions": exact_convolutions,
            "matmul_precision": matmul_precision,
            "fit": fit,
            "described": described,
        }
    )


KEPT = 64
"""Callables of a session that are kept."""


class Calls:
    """The runs of a session, kept as callables: what was run before is neither looked up nor planned again."""

    def __init__(self) -> None:
        self._known: Dict[Any, _native.Callable] = {}

    def of(
        self, session: _native.Session, names: Sequence[str], tensors: Sequence[str], operations: Sequence[str], one: bool = False
    ) -> _native.Callable:
        """The callable that takes values by these names, and gives these tensors: a list, or, with `one`, the only one."""
        key = tuple(names), tuple(tensors), tuple(operations), one
        known = self._known.get(key)
        if known is None:
            if len(self._known) == KEPT:
                self._known.clear()
            known = self._known[key] = session.callable(names, tensors, operations, one)
        return known

    def clear(self) -> None:
        self._known.clear()


class Closed:
    """The devices of a closed session."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("Attempted to use a closed Session.")


class Session:
    """A graph on devices, with its variables. Any number of threads may use it.

    `graph` is a path (GraphDef, MetaGraph or SavedModel), an encoded GraphDef, or an object of TensorFlow (`tf.Graph`, GraphDef).
    `config`, `limits`, `device_count`, `sim_gpus`, `spill`, `exact_convolutions`, `matmul_precision`, `fit`: see `open_devices`; with any of them,
    the session has devices of its own. `tags` name the graph of a SavedModel that has several.

    Raises `plimsoll.errors.OpError`, whose subclasses have TensorFlow's names.
    """

    def __init__(
        self,
        graph: Any,
        config: Any = None,
        limits: Optional[Limits] = None,
        *,
        device_count: Optional[Mapping[str, int]] = None,
        sim_gpus: Optional[str] = None,
        spill: Optional[str] = None,
        exact_convolutions: bool = False,
        matmul_precision: Optional[str] = None,
        fit: bool = True,
        tags: Optional[Sequence[str]] = None,
    ) -> None:
        options: Dict[str, Any] = {"spill": spill, "exact_convolutions": exact_convolutions, "matmul_precision": matmul_precision}
        options["fit"] = fit
        self._open(open_devices(config, limits, device_count, sim_gpus, **options), graph, tags)

    def _open(self, devices: _native.Devices, graph: Any, tags: Optional[Sequence[str]]) -> None:
        self._devices: Any = devices
        self._handed: weakref.WeakSet[_native.Callable] = weakref.WeakSet()
        """Callables of which others may have more than the session."""
        _log.device_mapping(self._devices.device_mapping())
        self._calls = Calls()
        self._short: Dict[Any, _native.Callable] = {}
        """Those of `_calls` that fetch one tensor, by what `run` is given."""
        if hasattr(graph, "as_graph_def"):
            graph = graph.as_graph_def()
        if hasattr(graph, "SerializeToString"):
            graph = graph.SerializeToString()
        if isinstance(graph, (str, os.PathLike)):
            self._session = self._devices.load(graph, None if tags is None else list(tags))
        else:
            if not isinstance(graph, (bytes, bytearray, memoryview)):
                raise TypeError(f"graph must be a path, an encoded GraphDef or TensorFlow's own, not {type(graph).__name__}")
            self._session = self._devices.session(bytes(graph))

    def run(self, fetches: Any, feed_dict: Optional[Mapping[Any, Any]] = None, options: None = None, run_metadata: None = None) -> Any:
        """Runs the graph once, and returns what `fetches` asks for, in its structure.

        A fetch is a tensor ("loss:0"), whose value comes, or an operation ("train"), for which None comes; lists, tuples, named tuples,
        dicts and classes of attrs with them may be nested. A feed is an array or what NumPy makes one of; contiguous memory is not copied.
        """
        if options is not None or run_metadata is not None:
            raise NotImplementedError("plimsoll.Session.run: options and run_metadata")
        try:
            call = self._short[(fetches, *feed_dict) if feed_dict else (fetches,)]
        except (KeyError, TypeError):  # something new, or a structure
            pass
        else:
            return call(*feed_dict.values()) if feed_dict else call()
        wanted = _Wanted(fetches)
        names, values = _feeds(feed_dict)
        if not wanted.tensors and not wanted.operations:
            self._session.operations()  # a closed session says so
            return wanted.of([])
        call = self._calls.of(self._session, names, wanted.tensors, wanted.operations, wanted.is_one_tensor)
        made = call(*values)
        if wanted.is_one_tensor:
            if len(self._short) == KEPT:
                self._short.clear()
            self._short[(fetches, *(feed_dict or ()))] = call
            return made
        return wanted.of(made)

    def plan(self, fetches: Any, feed_dict: Optional[Mapping[Any, Any]] = None) -> Plan:
        """The plan of such a run: the peak of each device, before anything runs. Limits are not held against it here: see `Plan.fits`."""
        wanted = _Wanted(fetches)
        names, values = _feeds(feed_dict)
        return self._session.plan(names, values, wanted.tensors, wanted.operations)

    def make_callable(self, fetches: Any, feed_list: Optional[Sequence[Any]] = None, accept_options: bool = False) -> Callable[..., Any]:
        """A function that takes the values of `feed_list`, in order, and returns what `run` would. It is planned once for a shape."""
        if accept_options:
            raise NotImplementedError("plimsoll.Session.make_callable: accept_options")
        wanted = _Wanted(fetches)
        names = [_name(feed) for feed in feed_list or ()]
        call = self._session.callable(names, wanted.tensors, wanted.operations, wanted.is_one_tensor)
        self._handed.add(call)
        if wanted.is_one_tensor:
            return call
        return lambda *values: wanted.of(call(*values))

    def partial_run(self, *args: Any, **kwargs: Any) -> Any:
        """Not there: a plan covers a whole run. Use `run` for each part, with what it needs as feeds."""
        raise NotImplementedError("plimsoll.Session.partial_run: a plan covers a whole run")

    partial_run_setup = partial_run

    def list_devices(self) -> List[str]:
        """The full names of the devices."""
        return [name for name, _, _ in self._devices.names()]

    def memory_info(self, device: str) -> Dict[str, int]:
        """Bytes that sessions have of a device ("CPU:0") now, as `current`, and had at most, as `peak`."""
        info: Dict[str, int] = self._devices.memory_info(device)
        return info

    @property
    def variables(self) -> List[Tuple[str, str, Tuple[int, ...]]]:
        """Name, type and shape of each variable."""
        return [(name, kind, tuple(shape)) for name, kind, shape in self._session.variables()]

    def read_variable(self, name: str) -> Any:
        """The value of a variable, as an array."""
        return self._session.read_variable(name)

    def write_variable(self, name: str, value: Any) -> None:
        """Gives a variable a value."""
        self._session.write_variable(name, value)

    def save(self, prefix: Union[str, os.PathLike[str]]) -> None:
        """Writes a checkpoint that TensorFlow reads."""
        self._session.save(prefix)

    def restore(self, checkpoint: Union[str, os.PathLike[str]]) -> None:
        """Reads variables from a checkpoint: a folder (the latest in it) or a prefix."""
        self._session.restore(checkpoint)

    def close(self) -> None:
        """Gives every byte back. Runs that are under way end first: by themselves, or by Ctrl-C, which ends their wait and this one."""
        self._short.clear()
        self._calls.clear()
        self._session.close()
        for call in list(self._handed):
            call.close()
        self._devices = Closed()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def plan(
    graph: Any,
    fetches: Any,
    feed_dict: Optional[Mapping[Any, Any]] = None,
    config: Any = None,
    limits: Optional[Limits] = None,
    *,
    device_count: Optional[Mapping[str, int]] = None,
    sim_gpus: Optional[str] = None,
    spill: Optional[str] = None,
    exact_convolutions: bool = False,
    matmul_precision: Optional[str] = None,
    fit: bool = True,
    devices: Optional[Union[str, os.PathLike[str]]] = None,
    tags: Optional[Sequence[str]] = None,
) -> Plan:
    """The plan of a run of a graph: see `Session` and `Session.plan`. Nothing of the graph runs.

    `devices` is a file that `plimsoll devices --describe FILE` wrote on another machine: the plan is the one that is made there.
    """
    options: Dict[str, Any] = {"spill": spill, "exact_convolutions": exact_convolutions, "matmul_precision": matmul_precision}
    options.update(fit=fit, described=devices)
    session = Session.__new__(Session)
    session._open(open_devices(config, limits, device_count, sim_gpus, **options), graph, tags)
    with session:
        return session.plan(fetches, feed_dict)


def _name(what: Any) -> str:
    if isinstance(what, str):
        return what
    if isinstance(getattr(what, "name", None), str):
        return str(what.name)
    raise TypeError(f"{what!r} is no tensor and no operation: their names are taken, or what has a name")


def _feeds(feed_dict: Optional[Mapping[Any, Any]]) -> Tuple[List[str], Tuple[Any, ...]]:
    if not feed_dict:
        return [], ()
    return [_name(key) for key in feed_dict], tuple(feed_dict.values())


class _Wanted:
    """What is fetched, and the structure that it comes in."""

    def __init__(self, fetches: Any) -> None:
        self.tensors: List[str] = []
        self.operations: List[str] = []
        self._at: Dict[str, int] = {}
        self._structure = self._take(fetches)
        self.is_one_tensor = isinstance(self._structure, int)

    def _take(self, fetch: Any) -> Any:
        """The structure with the number of each tensor, and None for an operation."""
        if isinstance(fetch, Mapping):
            return _Dict(fetch, {key: self._take(value) for key, value in fetch.items()})
        if isinstance(fetch, tuple) and hasattr(fetch, "_fields"):
            return _Named(type(fetch), [self._take(value) for value in fetch])
        if hasattr(type(fetch), "__attrs_attrs__"):
            return _Named(type(fetch), [self._take(getattr(fetch, field.name)) for field in type(fetch).__attrs_attrs__])
        if isinstance(fetch, (list, tuple)):
            return _Many(type(fetch), [self._take(value) for value in fetch])
        return self._leaf(fetch)

    def _leaf(self, fetch: Any) -> Any:
        """The structure of a single fetch."""
        name = _name(fetch)
        if ":" not in name:
            if name not in self.operations:
                self.operations.append(name)
            return None
        if name not in self._at:
            self._at[name] = len(self.tensors)
            self.tensors.append(name)
        return self._at[name]

    def of(self, values: Sequence[Any]) -> Any:
        """The structure with these values of the tensors."""
        return _filled(self._structure, values)


class _Dict:
    """A mapping of its fetch's type."""

    def __init__(self, fetch: Mapping[Any, Any], parts: Dict[Any, Any]) -> None:
        kind: Callable[..., Any] = type(fetch)
        self.empty = functools.partial(kind, fetch.default_factory) if isinstance(fetch, collections.defaultdict) else kind
        self.parts = parts


class _Computed:
    """What is made of other values."""

    def __init__(self, work: Callable[..., Any], parts: List[Any]) -> None:
        self.work, self.parts = work, parts


class _Many:
    def __init__(self, kind: type, parts: List[Any]) -> None:
        self.kind, self.parts = kind, parts


class _Named(_Many):
    pass


def _filled(structure: Any, values: Sequence[Any]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, int):
        return values[structure]
    if isinstance(structure, _Dict):
        made = structure.empty()
        for key, part in structure.parts.items():
            made[key] = _filled(part, values)
        return made
    parts = [_filled(part, values) for part in structure.parts]
    if isinstance(structure, _Computed):
        return structure.work(*parts)
    return structure.kind(*parts) if isinstance(structure, _Named) else structure.kind(parts)
