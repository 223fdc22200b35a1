"""Variables, the scopes that name and share them, and their first values."""

from __future__ import annotations

import contextlib
import copy
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import _initializers
from ._graph import Graph, GraphKeys, Operation, Tensor, get_collection, get_default_graph
from ._missing import refuse
from ._op import apply_op, convert_to_tensor
from ._types import DType, TensorShape, as_dtype


class _AutoReuse:
    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE = _AutoReuse()


class Variable:
    """A variable: a reference, as TensorFlow 1 has them, or a resource."""

    def __init__(
        self,
        initial_value: Any = None,
        trainable: Optional[bool] = None,
        collections: Any = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: Optional[str] = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        use_resource: Optional[bool] = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        refuse("Variable", caching_device=caching_device, variable_def=variable_def, import_scope=import_scope, constraint=constraint)
        refuse("Variable", synchronization=synchronization, aggregation=aggregation, expected_shape=expected_shape)
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        graph = get_default_graph()
        kind = None if dtype is None else as_dtype(dtype).base_dtype
        with graph.control_dependencies(None), graph.name_scope(name or "Variable") as scope:
            self._name = scope[:-1]
            beside = None
            if callable(initial_value):
                beside = [f"loc:@{self._name}"]
                # Beside another variable there are no groups of its own.
                around = contextlib.nullcontext() if graph._is_colocated else graph._colocated_with_new(self._name)
                beside = None if graph._is_colocated else beside
                with around, graph.name_scope("Initializer"), graph.device(None):
                    self._initial_value = convert_to_tensor(initial_value(), kind, name="initial_value")
            else:
                self._initial_value = convert_to_tensor(initial_value, kind, name="initial_value")
            self.dtype: DType = self._initial_value.dtype.base_dtype
            self._shape = TensorShape(self._initial_value.shape if shape is None else shape)
            if validate_shape:
                if not self._initial_value.shape:
                    raise ValueError("initial_value must have a shape specified")
            else:
                self._shape = TensorShape(shape)
            self._is_resource = bool(use_resource)
            if use_resource:
                self._make_resource(scope, beside)
            else:
                self._make_reference(scope, beside, validate_shape)
        self.trainable = True if trainable is None else trainable
        keys = list(collections) if collections is not None else [GraphKeys.GLOBAL_VARIABLES]
        if self.trainable and GraphKeys.TRAINABLE_VARIABLES not in keys:
            keys.append(GraphKeys.TRAINABLE_VARIABLES)
        graph.add_to_collections(keys, self)

    def _make_reference(self, scope: str, beside: Optional[List[str]], validate_shape: bool) -> None:
        graph = get_default_graph()
        attrs: Dict[str, Any] = {"dtype": self.dtype.as_datatype_enum, "shape": self._shape.as_list() if self._shape else None}
        if beside:
            attrs["_class"] = beside
        self._handle = graph.add("VariableV2", scope, [], attrs).outputs[0]
        self.initializer = apply_op("Assign", None, ref=self._handle, value=self._initial_value, validate_shape=validate_shape).op
        with graph.colocate_with(self._handle.op):
            self._snapshot: Tensor = apply_op("Identity", "read", input=self._handle)

    def _make_resource(self, scope: str, beside: Optional[List[str]]) -> None:
        graph = get_default_graph()
        attrs: Dict[str, Any] = {
            "dtype": self.dtype.as_datatype_enum,
            "shape": self._shape.as_list() if self._shape else None,
            "shared_name": self._name,
            "debug_name": scope,
            "_class": [f"loc:@{self._name}"],
        }
        self._handle = graph.add("VarHandleOp", scope, [], attrs).outputs[0]
        with graph.name_scope("IsInitialized"):
            apply_op("VarIsInitializedOp", resource=self._handle)
        self.initializer = apply_op("AssignVariableOp", "Assign", resource=self._handle, value=self._initial_value)
        with graph.name_scope("Read"):
            self._snapshot = apply_op("ReadVariableOp", resource=self._handle, dtype=self.dtype)

    @property
    def name(self) -> str:
        return f"{self._name}:0"

    @property
    def op(self) -> Operation:
        return self._handle.op

    @property
    def graph(self) -> Graph:
        return self._handle.graph

    @property
    def device(self) -> str:
        return self._handle.op.device

    @property
    def shape(self) -> TensorShape:
        return TensorShape(self._shape)

    def get_shape(self) -> TensorShape:
        return self.shape

    @property
    def initial_value(self) -> Tensor:
        return self._initial_value

    def initialized_value(self) -> Tensor:
        """The first value: what initialises another variable is computed anew from it."""
        return self._initial_value

    def value(self) -> Tensor:
        return self._snapshot

    def read_value(self) -> Tensor:
        """The value, read anew here: after the control dependencies around."""
        if self._is_resource:
            with self.graph.name_scope("Read"):
                made: Tensor = apply_op("ReadVariableOp", resource=self._handle, dtype=self.dtype)
            return made
        made = apply_op("Identity", "read", input=self._handle)
        return made

    def _ref(self) -> Tensor:
        return self._handle

    def _to_tensor(self, as_ref: bool) -> Tensor:
        return self._handle if as_ref else self._snapshot

    def _as_graph_element(self) -> Tensor:
        return self._snapshot if self._is_resource else self._handle

    def _update(self, what: str, value: Any, use_locking: Any, name: Optional[str], read_value: bool) -> Any:
        if not self._is_resource:
            made = apply_op(what, name, ref=self._handle, value=value, use_locking=bool(use_locking))
            return made if read_value else made.op
        op = apply_op(f"{what}VariableOp", name, resource=self._handle, value=convert_to_tensor(value, self.dtype))
        if not read_value:
            return op
        with self.graph.control_dependencies([op]):
            return apply_op("ReadVariableOp", resource=self._handle, dtype=self.dtype)

    def assign(self, value: Any, use_locking: bool = False, name: Optional[str] = None, read_value: bool = True) -> Any:
        """The variable becomes a value."""
        if use_locking is False and not self._is_resource:
            made = apply_op("Assign", name, ref=self._handle, value=value, use_locking=False, validate_shape=True)
            return made if read_value else made.op
        return self._update("Assign", value, use_locking, name, read_value)

    def assign_add(self, delta: Any, use_locking: bool = False, name: Optional[str] = None, read_value: bool = True) -> Any:
        """A value is added to the variable."""
        return self._update("AssignAdd", delta, use_locking, name, read_value)

    def assign_sub(self, delta: Any, use_locking: bool = False, name: Optional[str] = None, read_value: bool = True) -> Any:
        """A value is taken from the variable."""
        return self._update("AssignSub", delta, use_locking, name, read_value)

    def eval(self, session: Any = None) -> Any:
        """The value, by the default session or this one."""
        return self._snapshot.eval(session=session)

    def load(self, value: Any, session: Any = None) -> None:
        """Gives the variable a value in the default session, or in this one."""
        from ._session import session_or_default

        session_or_default(session, self.graph)._load({self: value})

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("'Variable' object is not iterable.")

    def __repr__(self) -> str:
        return f"<tf.Variable '{self.name}' shape={self.shape} dtype={self.dtype.name}{'' if self._is_resource else '_ref'}>"

    def __hash__(self) -> int:
        return id(self)


def _operators() -> None:
    def one(name: str) -> None:
        def call(self: Variable, *args: Any) -> Any:
            return getattr(Tensor, name)(self._snapshot, *args)

        setattr(Variable, name, call)

    for what in "add sub mul truediv floordiv mod pow matmul and or".split():
        one(f"__{what}__")
        one(f"__r{what}__")
    for what in "lt le gt ge neg abs invert getitem".split():
        one(f"__{what}__")


class VariableScope:
    """Where `get_variable` makes or finds variables."""

    def __init__(self, reuse: Any, name: str = "", initializer: Any = None, regularizer: Any = None, dtype: Any = "float32") -> None:
        self.reuse = reuse
        self._name = name
        self.initializer = initializer
        self.regularizer = regularizer
        self.dtype = as_dtype(dtype)
        self.custom_getter: Optional[Callable[..., Any]] = None
        self.use_resource: Optional[bool] = None
        self.original_name_scope = ""

    @property
    def name(self) -> str:
        return self._name

    def reuse_variables(self) -> None:
        """`get_variable` finds variables that exist from now on."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        self.regularizer = regularizer

    def global_variables(self) -> List[Any]:
        return get_collection(GraphKeys.GLOBAL_VARIABLES, self._name + "/" if self._name else None)

    def trainable_variables(self) -> List[Any]:
        return get_collection(GraphKeys.TRAINABLE_VARIABLES, self._name + "/" if self._name else None)


class _Store:
    """The shared variables of a graph, and the scope at hand."""

    def __init__(self) -> None:
        self.variables: Dict[str, Variable] = {}
        self.scope = VariableScope(False)
        self.opened: Dict[str, int] = {}

    def unique(self, default_name: str) -> str:
        """A scope's name that was not opened yet: `default`, `default_1`."""
        prefix = f"{self.scope.name}/" if self.scope.name else ""
        name, number = default_name, 0
        while self.opened.get(prefix + name):
            number += 1
            name = f"{default_name}_{number}"
        return name


def _store() -> _Store:
    found = get_default_graph().get_collection_ref(("__variable_store",))
    if not found:
        found.append(_Store())
    store: _Store = found[0]
    return store


def get_variable_scope() -> VariableScope:
    """The variable scope at hand."""
    return _store().scope


@contextlib.contextmanager
def variable_scope(
    name_or_scope: Any,
    default_name: Optional[str] = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Optional[Callable[..., Any]] = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: Optional[bool] = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Names variables `scope/name`, and opens a name scope. A scope object opens its own variable scope again, wherever it stands."""
    refuse("variable_scope", caching_device=caching_device, partitioner=partitioner, constraint=constraint)
    if reuse not in (True, False, None, AUTO_REUSE):
        raise ValueError("The reuse parameter must be True or False or None.")
    store, graph = _store(), get_default_graph()
    if name_or_scope is None:
        if default_name is None:
            raise ValueError("If default_name is None then name_or_scope is required")
        if reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        name_or_scope = store.unique(default_name)
        scope_of_names = default_name
    elif isinstance(name_or_scope, VariableScope):
        scope_of_names = name_or_scope.name.split("/")[-1]
    elif isinstance(name_or_scope, str):
        scope_of_names = name_or_scope
    else:
        raise TypeError("VariableScope: name_or_scope must be a string or VariableScope.")
    with contextlib.ExitStack() as around:
        entered = around.enter_context(graph.name_scope(scope_of_names)) if scope_of_names and auxiliary_name_scope else None
        outer = store.scope
        if isinstance(name_or_scope, VariableScope):
            inner = copy.copy(name_or_scope)
            inner.reuse = outer.reuse if reuse is None and not name_or_scope.reuse else (name_or_scope.reuse if reuse is None else reuse)
        else:
            inner = copy.copy(outer)
            inner._name = f"{outer.name}/{name_or_scope}" if outer.name and name_or_scope else outer.name or name_or_scope
            inner.reuse = reuse or outer.reuse
            inner.original_name_scope = entered if entered is not None else outer.original_name_scope
        inner.initializer = inner.initializer if initializer is None else initializer
        inner.regularizer = inner.regularizer if regularizer is None else regularizer
        inner.dtype = inner.dtype if dtype is None else as_dtype(dtype)
        inner.use_resource = inner.use_resource if use_resource is None else use_resource
        if custom_getter is not None:
            inner.custom_getter = _nested(custom_getter, inner.custom_getter)
        store.opened[inner.name] = store.opened.get(inner.name, 0) + 1
        below = {name: count for name, count in store.opened.items() if name.startswith(f"{inner.name}/")}
        if not isinstance(name_or_scope, VariableScope):
            for name in below:
                store.opened[name] = 0
        store.scope = inner
        try:
            yield inner
        finally:
            store.scope = outer
            store.opened.update(below)


def _nested(own: Callable[..., Any], outer: Optional[Callable[..., Any]]) -> Callable[..., Any]:
    if outer is None:
        return own
    return lambda getter, *args, **kwargs: own(lambda *a, **k: outer(getter, *a, **k), *args, **kwargs)


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: Optional[bool] = None,
    collections: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: Optional[bool] = None,
    custom_getter: Optional[Callable[..., Any]] = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """The variable of that name in the variable scope: made, or found where the scope reuses. ValueError where it is not, or is already,
    there, or has another type or shape."""
    refuse("get_variable", caching_device=caching_device, partitioner=partitioner, constraint=constraint)
    refuse("get_variable", synchronization=synchronization, aggregation=aggregation)
    store = _store()
    scope = store.scope
    full = f"{scope.name}/{name}" if scope.name else name
    getter = scope.custom_getter if custom_getter is None else _nested(custom_getter, scope.custom_getter)

    def make(name: str, shape: Any = None, dtype: Any = "float32", initializer: Any = None, **options: Any) -> Variable:
        reuse = options.get("reuse", scope.reuse)
        with get_default_graph().name_scope(None):
            return _shared(store, name, shape, as_dtype(dtype), initializer, reuse, options)

    options: Dict[str, Any] = {
        "shape": shape,
        "dtype": scope.dtype if dtype is None else dtype,
        "initializer": scope.initializer if initializer is None else initializer,
        "regularizer": scope.regularizer if regularizer is None else regularizer,
        "trainable": trainable,
        "collections": collections,
        "validate_shape": validate_shape,
        "use_resource": scope.use_resource if use_resource is None else use_resource,
        "reuse": scope.reuse,
    }
    return make(full, **options) if getter is None else getter(make, full, **options)


def _shared(store: _Store, name: str, shape: Any, dtype: DType, initializer: Any, reuse: Any, options: Dict[str, Any]) -> Variable:
    if name in store.variables:
        found = store.variables[name]
        if reuse is False or reuse is None:
            raise ValueError(
                f"Variable {name} already exists, disallowed. Did you mean to set reuse=True or reuse=tf.AUTO_REUSE in VarScope?"
            )
        if shape is not None and not found.shape.is_compatible_with(shape):
            raise ValueError(f"Trying to share variable {name}, but specified shape {TensorShape(shape)} and found shape {found.shape}.")
        if found.dtype != dtype.base_dtype:
            raise ValueError(f"Trying to share variable {name}, but specified dtype {dtype.name} and found dtype {found.dtype.name}.")
        return found
    if reuse is True:
        raise ValueError(
            f"Variable {name} does not exist, or was not made by tf.get_variable(). Did you mean to set reuse=tf.AUTO_REUSE in VarScope?"
        )
    if isinstance(initializer, type):
        initializer = initializer()
    sizes = TensorShape(shape)
    if initializer is None:
        initializer = _initializers.default(dtype, name)
    if callable(initializer):
        if not sizes.is_fully_defined():
            raise ValueError(f"The initializer passed is not valid for variable {name}: its shape {sizes} is not fully defined.")
        first = initializer
        call = (
            (lambda: first(sizes.as_list(), dtype=dtype.base_dtype))
            if isinstance(first, _initializers.Initializer)
            else _called(first, sizes, dtype)
        )
        value: Any = call
    else:
        if shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        value = convert_to_tensor(initializer, name="initial_value") if not isinstance(initializer, Tensor) else initializer
        dtype = value.dtype.base_dtype
    made = Variable(
        value,
        trainable=options.get("trainable"),
        collections=options.get("collections"),
        validate_shape=options.get("validate_shape", True),
        name=name,
        dtype=dtype,
        use_resource=options.get("use_resource"),
    )
    store.variables[name] = made
    regularizer = options.get("regularizer")
    if regularizer is not None:
        with get_default_graph().colocate_with(made.op), get_default_graph().name_scope(f"{name}/Regularizer/"):
            loss = regularizer(made)
        if loss is not None:
            get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return made


def _called(initializer: Callable[..., Any], sizes: TensorShape, dtype: DType) -> Callable[[], Any]:
    import inspect

    try:
        taken = inspect.signature(initializer).parameters
    except (TypeError, ValueError):
        taken = {}  # type: ignore[assignment]
    if not taken:
        return initializer
    options = {"dtype": dtype.base_dtype} if "dtype" in taken else {}
    return lambda: initializer(sizes.as_list(), **options)


def global_variables(scope: Optional[str] = None) -> List[Any]:
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: Optional[str] = None) -> List[Any]:
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: Optional[str] = None) -> List[Any]:
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def moving_average_variables(scope: Optional[str] = None) -> List[Any]:
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list: List[Any], name: str = "init") -> Operation:
    """A node that gives these variables their first values."""
    return group(*[variable.initializer for variable in var_list], name=name)


def global_variables_initializer() -> Operation:
    """A node `init` that gives all variables their first values."""
    return variables_initializer(global_variables(), "init")


def local_variables_initializer() -> Operation:
    """A node that gives the local variables their first values."""
    return variables_initializer(local_variables(), "init")


def is_variable_initialized(variable: Any) -> Tensor:
    """Whether a variable has a value."""
    if variable._is_resource:
        made: Tensor = apply_op("VarIsInitializedOp", resource=variable._handle)
    else:
        made = apply_op("IsVariableInitialized", ref=variable._handle)
    return made


def assign(
    ref: Any, value: Any, validate_shape: Optional[bool] = None, use_locking: Optional[bool] = None, name: Optional[str] = None
) -> Any:
    """A variable becomes a value."""
    if isinstance(ref, Variable) and ref._is_resource:
        return ref.assign(value, name=name)
    options = {
        "validate_shape": True if validate_shape is None else validate_shape,
        "use_locking": True if use_locking is None else use_locking,
    }
    return apply_op("Assign", name, ref=ref, value=value, **options)


def assign_add(ref: Any, value: Any, use_locking: Optional[bool] = None, name: Optional[str] = None) -> Any:
    """A value is added to a variable."""
    if isinstance(ref, Variable):
        return ref.assign_add(value, bool(use_locking), name)
    return apply_op("AssignAdd", name, ref=ref, value=value, use_locking=bool(use_locking))


def assign_sub(ref: Any, value: Any, use_locking: Optional[bool] = None, name: Optional[str] = None) -> Any:
    """A value is taken from a variable."""
    if isinstance(ref, Variable):
        return ref.assign_sub(value, bool(use_locking), name)
    return apply_op("AssignSub", name, ref=ref, value=value, use_locking=bool(use_locking))


def group(*inputs: Any, name: Optional[str] = None) -> Operation:
    """A node that has run when all of these have: one for each device among them, and one more where there are several."""
    graph = get_default_graph()
    flat: List[Any] = []
    for each in inputs:
        flat.extend(each if isinstance(each, (list, tuple)) else [each])
    ops = [graph._op_of(each) for each in flat]
    if not ops:
        return graph.add("NoOp", name or "group_deps", [], {})
    graph = ops[0].graph
    with graph.as_default(), graph.name_scope(name or "group_deps") as scope:
        by_device: Dict[str, List[Operation]] = {}
        for op in ops:
            by_device.setdefault(op.device, []).append(op)
        if len(by_device) == 1:
            [(device, there)] = by_device.items()
            return _no_op(graph, scope, device, there)
        parts = [_no_op(graph, "NoOp", device, by_device[device]) for device in sorted(by_device)]
        with graph.device(None):
            return _no_op(graph, scope, "", parts)


def _no_op(graph: Graph, name: str, device: str, after: List[Operation]) -> Operation:
    with contextlib.ExitStack() as around:
        around.enter_context(graph.control_dependencies(after))
        if device:
            around.enter_context(graph.device(device))
        return graph.add("NoOp", name, [], {})


def tuple_(tensors: Any, name: Optional[str] = None, control_inputs: Any = None) -> List[Any]:
    """The tensors, each after all of them."""
    with get_default_graph().name_scope(name or "tuple"):
        ops = [tensor.op for tensor in tensors if tensor is not None]
        ops += [get_default_graph()._op_of(each) for each in control_inputs or ()]
        if not ops:
            raise ValueError("Must have at least one Tensor")
        gate = group(*ops)
        made: List[Any] = []
        for tensor in tensors:
            if tensor is None:
                made.append(None)
                continue
            with get_default_graph().colocate_with(tensor), get_default_graph().control_dependencies([gate]):
                made.append(apply_op("Identity", "control_dependency", input=tensor))
        return made


def no_op(name: Optional[str] = None) -> Operation:
    """A node that computes nothing."""
    return get_default_graph().add("NoOp", name or "NoOp", [], {})


from . import _math  # noqa: E402, F401

_operators()
