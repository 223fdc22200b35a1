"""Graphs, operations and tensors of TensorFlow 1, over the builder."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from ... import _native
from ._device import Device, DeviceSpec, device_of
from ._types import DType, TensorShape, as_dtype


class GraphDef:
    """An encoded graph: `SerializeToString`; prints in protobuf's text form."""

    def __init__(self, graph: Graph) -> None:
        self._bytes, self._text = graph._builder.graph_def(), graph._builder.graph_text()

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self._bytes

    def __str__(self) -> str:
        return self._text


class Operation:
    """A node of a graph."""

    def __init__(self, graph: Graph, number: int) -> None:
        self.graph = graph
        self._number = number
        self.name, self.type, self._device, self._inputs, self._controls = graph._builder.node(number)
        facts = graph._builder.outputs(number)
        self.outputs = [Tensor(self, index, as_dtype(kind + 100 * is_ref)) for index, (kind, is_ref, _) in enumerate(facts)]

    @property
    def device(self) -> str:
        return self._device

    @property
    def inputs(self) -> List[Tensor]:
        return [self.graph._op(number).outputs[index] for number, index in self._inputs]

    @property
    def control_inputs(self) -> List[Operation]:
        return [self.graph._op(number) for number in self._controls]

    def get_attr(self, name: str) -> Any:
        """An attribute's value: types as DType, shapes as TensorShape. ValueError for one that the node does not have."""
        attrs = self.graph._builder.attrs(self._number)
        if name not in attrs:
            raise ValueError(f"Operation '{self.name}' has no attr named '{name}'.")
        inputs_outputs_attrs = self.graph._builder.op_def(self.type)
        kinds = {} if inputs_outputs_attrs is None else {attr: kind for attr, kind, _, _ in inputs_outputs_attrs[2]}
        kind, value = kinds.get(name, ""), attrs[name]
        if kind == "type":
            return as_dtype(value)
        if kind == "list(type)":
            return [as_dtype(each) for each in value]
        if kind == "shape":
            return TensorShape(value)
        return value

    def values(self) -> Tuple[Tensor, ...]:
        return tuple(self.outputs)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs the node in the default session, or in this one."""
        from ._session import session_or_default

        session_or_default(session, self.graph).run(self, feed_dict)

    def colocation_groups(self) -> List[bytes]:
        groups = self.graph._builder.attrs(self._number).get("_class") or []
        return groups or [b"loc:@" + self.name.encode()]

    def _set_device(self, device: str) -> None:
        self.graph._builder.set_device(self._number, device)
        self._device = self.graph._builder.node(self._number)[2]

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"


class Tensor:
    """An output of a node."""

    __array_priority__ = 100

    if TYPE_CHECKING:  # `_math` has them

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __getitem__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...

    def __init__(self, op: Operation, index: int, dtype: DType) -> None:
        self.op = op
        self.value_index = index
        self.dtype = dtype
        self.name = f"{op.name}:{index}"
        self._fed: Optional[Tuple[Any, Optional[List[Optional[int]]]]] = None

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def device(self) -> str:
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self.graph._builder.outputs(self.op._number)[self.value_index][2])

    @property
    def _takes(self) -> Tuple[Any, Optional[List[Optional[int]]]]:
        """NumPy's type and the sizes of what it can be fed; kept, since feeding is to be fast."""
        if self._fed is None:
            self._fed = self.dtype.as_numpy_dtype, self.graph._builder.outputs(self.op._number)[self.value_index][2]
        return self._fed

    def get_shape(self) -> TensorShape:
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Says more of the shape than the operation does. ValueError where both cannot be true."""
        dims = TensorShape(shape)
        self._fed = None
        self.graph._builder.set_shape(self._key, dims.as_list() if dims else None)

    def consumers(self) -> List[Operation]:
        return [op for op in self.graph.get_operations() if self._key in op._inputs]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The value, by the default session or this one."""
        from ._session import session_or_default

        return session_or_default(session, self.graph).run(self, feed_dict)

    @property
    def _key(self) -> Tuple[int, int]:
        return self.op._number, self.value_index

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a Tensor of a graph has no elements to iterate over before it is run")

    def __len__(self) -> int:
        raise TypeError(f"len is not well defined for a symbolic Tensor ({self.name}). Please call `x.shape`")

    def __bool__(self) -> bool:
        raise TypeError("Using a `tf.Tensor` as a Python `bool` is not allowed: its value is known when it is run.")

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"


class GraphKeys:
    """Names of collections."""

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    SUMMARIES = "summaries"
    QUEUE_RUNNERS = "queue_runners"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    REGULARIZATION_LOSSES = "regularization_losses"
    LOSSES = "losses"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    UPDATE_OPS = "update_ops"
    SAVERS = "savers"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    SUMMARY_OP = "summary_op"
    GLOBAL_STEP = "global_step"
    TRAIN_OP = "train_op"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"


class Graph:
    """A graph in the making. One thread builds it at a time."""

    def __init__(self) -> None:
        self._builder = _native.Builder()
        self._ops: List[Operation] = []
        self._by_name: Dict[str, Operation] = {}
        self._collections: Dict[Any, List[Any]] = {}
        self._devices: List[Device] = []
        self._is_colocated = False
        self._is_finalized = False
        self._context: Optional[Any] = None
        """The condition or the loop whose nodes are made: `_control.Context`."""
        self.seed: Optional[int] = None
        self._unseeded = 0

    @contextlib.contextmanager
    def as_default(self) -> Iterator[Graph]:
        stack = _defaults()
        stack.append(self)
        try:
            yield self
        finally:
            stack.remove(self)

    def finalize(self) -> None:
        """No node can be added from now on (RuntimeError)."""
        self._is_finalized = True

    @property
    def finalized(self) -> bool:
        return self._is_finalized

    @property
    def version(self) -> int:
        return len(self._builder)

    def add(self, op: str, name: str, inputs: Sequence[Tensor], attrs: Dict[str, Any], controls: Sequence[Operation] = ()) -> Operation:
        """Adds a node. A name that ends with a slash is the name itself, from the root."""
        if self._is_finalized:
            raise RuntimeError("Graph is finalized and cannot be modified.")
        for tensor in inputs:
            if tensor.graph is not self:
                raise ValueError(f"{tensor!r} must be from the same graph as the node '{name}'.")
        context = self._context
        if context is not None:
            inputs = [context.take(tensor) for tensor in inputs]
            controls = controls if inputs else [*controls, context.pivot]
        number = self._builder.add(op, name, [tensor._key for tensor in inputs], attrs, [control._number for control in controls])
        made = self._took(number)
        if context is not None:
            context.note(made)
        return made

    def _close_loop(self, merge: Operation, following: Operation) -> None:
        """What goes from the end of an iteration to the beginning of the next. ValueError for another type or shape."""
        self._builder.close_loop(merge._number, following._number)
        merge._inputs = self._builder.node(merge._number)[3]

    def _took(self, number: int) -> Operation:
        """Takes note of new nodes, and asks the device functions around for their devices."""
        functions = any(callable(device) for device in self._devices)
        while len(self._ops) <= number:
            op = Operation(self, len(self._ops))
            self._ops.append(op)
            self._by_name[op.name] = op
            if functions and not self._is_colocated and "_class" not in self._builder.attrs(op._number):
                op._set_device(device_of(op, self._devices))
        return self._ops[number]

    def _op(self, number: int) -> Operation:
        self._took(len(self._builder) - 1)
        return self._ops[number]

    def get_operations(self) -> List[Operation]:
        if len(self._builder):
            self._took(len(self._builder) - 1)
        return list(self._ops)

    def get_operation_by_name(self, name: str) -> Operation:
        self.get_operations()
        if name not in self._by_name:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return self._by_name[name]

    def get_tensor_by_name(self, name: str) -> Tensor:
        element = self.as_graph_element(name)
        if not isinstance(element, Tensor):
            raise ValueError(f"The name {name!r} refers to an Operation, not a Tensor: tensors are named 'op:0'.")
        return element

    def as_graph_element(self, what: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Union[Tensor, Operation]:
        """The tensor or node that an object or a name stands for. ValueError, KeyError or TypeError where it is none of these."""
        converted = getattr(what, "_as_graph_element", None)
        what = converted() if converted is not None else what
        if isinstance(what, str):
            name, colon, index = what.partition(":")
            op = self.get_operation_by_name(name)
            if not colon:
                what = op
            elif index.isdecimal() and int(index) < len(op.outputs):
                what = op.outputs[int(index)]
            else:
                raise KeyError(f"The name {what!r} refers to a Tensor which does not exist.")
        allowed = (Tensor,) * allow_tensor + (Operation,) * allow_operation
        if not isinstance(what, (Tensor, Operation)) or not isinstance(what, allowed):
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise TypeError(f"Can not convert a {type(what).__name__} into a {kinds}.")
        if what.graph is not self:
            raise ValueError(f"{what!r} is not an element of this graph.")
        return what

    def as_graph_def(self) -> GraphDef:
        return GraphDef(self)

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        if not mark_as_used:
            raise NotImplementedError("plimsoll.compat.v1.Graph.unique_name: mark_as_used=False")
        return self._builder.unique_name(name)

    @contextlib.contextmanager
    def name_scope(self, name: Optional[str]) -> Iterator[str]:
        """Names nodes `scope/node`. Gives the scope with a slash at the end: entered again by that, it is the same one."""
        if name and not re.match(_SCOPE if self._builder.name_scope() else _SCOPE_AT_ROOT, name):
            raise ValueError(f"'{name}' is not a valid scope name. A scope name has to match the following pattern: {_SCOPE}")
        entered = self._builder.enter_name_scope(name or "")
        try:
            yield f"{entered}/" if entered else ""
        finally:
            self._builder.leave()

    def get_name_scope(self) -> str:
        return self._builder.name_scope()

    @contextlib.contextmanager
    def device(self, device: Device) -> Iterator[None]:
        """Asks for a device: a name, a DeviceSpec, a function from a node to one of these, or None for none."""
        if isinstance(device, DeviceSpec):
            device = device.to_string()
        before = self._devices
        self._builder.enter_device("" if callable(device) else device)
        self._devices = before + [device]
        try:
            yield
        finally:
            self._devices = before
            self._builder.leave()

    @contextlib.contextmanager
    def control_dependencies(self, inputs: Optional[Sequence[Any]]) -> Iterator[None]:
        """Nodes made inside run after these; for None after nothing but their inputs, and outside of conditions and loops."""
        nodes = None if inputs is None else [self._op_of(each)._number for each in inputs]
        before, self._context = self._context, None if inputs is None else self._context
        self._builder.enter_control_dependencies(nodes)
        try:
            yield
        finally:
            self._builder.leave()
            self._context = before

    def _op_of(self, what: Any) -> Operation:
        element = self.as_graph_element(what)
        return element.op if isinstance(element, Tensor) else element

    @contextlib.contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Places nodes where this one is; nowhere in particular for None."""
        if op is None and not ignore_existing:
            raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
        with self._colocated(op is not None):
            if ignore_existing:
                self._builder.enter_colocation()
            try:
                if op is None:
                    yield
                    return
                self._builder.enter_colocation(self._op_of(op)._number)
                try:
                    yield
                finally:
                    self._builder.leave()
            finally:
                if ignore_existing:
                    self._builder.leave()

    @contextlib.contextmanager
    def _colocated_with_new(self, name: str) -> Iterator[None]:
        """Places nodes with one of that name, which is yet to be made."""
        with self._colocated(True):
            self._builder.enter_colocation(name=name)
            try:
                yield
            finally:
                self._builder.leave()

    @contextlib.contextmanager
    def _colocated(self, colocated: bool) -> Iterator[None]:
        before = self._is_colocated, self._devices
        self._is_colocated, self._devices = colocated, ([] if colocated else self._devices)
        try:
            yield
        finally:
            self._is_colocated, self._devices = before

    def add_to_collection(self, name: Any, value: Any) -> None:
        self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        for name in dict.fromkeys([names] if isinstance(names, str) else names):
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> List[Any]:
        return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: Optional[str] = None) -> List[Any]:
        """The collection's values; with a scope, those whose names match it at their beginning."""
        values = self._collections.get(name, [])
        if scope is None:
            return list(values)
        return [value for value in values if hasattr(value, "name") and re.match(scope, value.name)]

    def get_all_collection_keys(self) -> List[Any]:
        return list(self._collections)

    def clear_collection(self, name: Any) -> None:
        self._collections.pop(name, None)


_SCOPE_AT_ROOT = r"^[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*$"
_SCOPE = r"^[A-Za-z0-9_.\\/>-]*$"

_local = threading.local()
_global: Optional[Graph] = None


def _defaults() -> List[Graph]:
    if not hasattr(_local, "stack"):
        _local.stack = []
    stack: List[Graph] = _local.stack
    return stack


def get_default_graph() -> Graph:
    """The graph of the innermost `as_default` of this thread, or the program's one."""
    global _global
    stack = _defaults()
    if stack:
        return stack[-1]
    if _global is None:
        _global = Graph()
    return _global


def reset_default_graph() -> None:
    """Begins a new default graph."""
    global _global
    if _defaults():
        raise AssertionError("Do not use tf.reset_default_graph() to clear nested graphs.")
    _global = None


def device(device_name_or_function: Device) -> Any:
    """Asks for a device for the nodes made inside: see `Graph.device`."""
    return get_default_graph().device(device_name_or_function)


def control_dependencies(control_inputs: Optional[Sequence[Any]]) -> Any:
    """Nodes made inside run after these: see `Graph.control_dependencies`."""
    return get_default_graph().control_dependencies(control_inputs)


def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """Places nodes where this one is: see `Graph.colocate_with`."""
    return get_default_graph().colocate_with(op, ignore_existing)


@contextlib.contextmanager
def name_scope(name: Optional[str], default_name: Optional[str] = None, values: Any = None) -> Iterator[str]:
    """Names nodes `scope/node`; with `default_name` where there is no name."""
    if name is None and values is not None and default_name is None:
        raise ValueError("At least one of name (None) and default_name (None) must be provided.")
    graph = graph_of(values or ())
    with graph.name_scope(default_name if name is None else name) as scope:
        yield scope


def graph_of(values: Sequence[Any]) -> Graph:
    """The graph of the first of these that is of one; the default graph where none is."""
    for value in values:
        graph = getattr(value, "graph", None)
        if isinstance(graph, Graph) and isinstance(value, (Tensor, Operation)):
            return graph
    return get_default_graph()


def add_to_collection(name: Any, value: Any) -> None:
    get_default_graph().add_to_collection(name, value)


def get_collection(key: Any, scope: Optional[str] = None) -> List[Any]:
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> List[Any]:
    return get_default_graph().get_collection_ref(key)


def set_random_seed(seed: Optional[int]) -> None:
    """The seed of the default graph, for random operations without one of their own."""
    get_default_graph().seed = seed


Converter = Callable[[Any], Any]
