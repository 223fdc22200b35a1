"""Optimizers: gradients become updates of variables, in TensorFlow 1's nodes."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _array, _math
from ._gradients import gradients
from ._graph import Graph, Operation, Tensor, get_default_graph
from ._missing import refuse
from ._op import apply_op, constant, convert_to_tensor
from ._variables import Variable, get_variable, group, trainable_variables, tuple_, variable_scope


def create_slot(primary: Variable, value: Any, name: str) -> Variable:
    """A variable beside another one, named after both. `value` is a tensor, or a function that makes the first value."""
    graph = get_default_graph()
    with graph.control_dependencies(None), variable_scope(None, f"{primary.op.name}/{name}"), graph.colocate_with(primary.op):
        made: Variable = get_variable(
            "", initializer=value, trainable=False, use_resource=primary._is_resource, **_shape_of(primary, value)
        )
    return made


def _shape_of(primary: Variable, value: Any) -> Dict[str, Any]:
    return {"shape": primary.shape, "dtype": primary.dtype} if callable(value) else {}


class Optimizer:
    """Turns gradients into updates. `compute_gradients`, then `apply_gradients`; or `minimize` for both."""

    GATE_NONE, GATE_OP, GATE_GRAPH = 0, 1, 2
    _given: Tuple[str, ...] = ()
    """The numbers that the optimizer was given: attributes with an underscore before these names."""

    def __init__(self, use_locking: bool, name: str) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._use_locking = use_locking
        self._name = name
        self._slots: Dict[str, Dict[Variable, Variable]] = {}
        self._numbers: Dict[str, Tensor] = {}
        self._others: Dict[Tuple[str, Graph], Variable] = {}

    def get_name(self) -> str:
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Optional[Variable] = None,
        var_list: Optional[Sequence[Variable]] = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        name: Optional[str] = None,
        grad_loss: Any = None,
    ) -> Operation:
        """A node that makes the loss smaller by changing variables."""
        made = self.compute_gradients(loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss)
        if all(gradient is None for gradient, _ in made):
            names = [str(variable) for _, variable in made]
            raise ValueError(f"No gradients provided for any variable, check your graph for ops that do not support gradients: {names}")
        return self.apply_gradients(made, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Optional[Sequence[Variable]] = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: Any = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> List[Tuple[Optional[Tensor], Variable]]:
        """The gradient of the loss for each variable, None where it does not depend on one."""
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError("gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.")
        if callable(loss):
            refuse("train.Optimizer.compute_gradients", loss=loss)
        variables = list(trainable_variables() if var_list is None else var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        for variable in variables:
            if not isinstance(variable, Variable):
                raise TypeError(f"Argument is not a tf.Variable: {variable!r}")
        made = gradients(
            loss,
            variables,
            grad_loss,
            gate_gradients=gate_gradients == self.GATE_OP,
            aggregation_method=aggregation_method,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
        )
        if gate_gradients == self.GATE_GRAPH:
            made = tuple_(made)
        return list(zip(made, variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Optional[Variable] = None, name: Optional[str] = None) -> Operation:
        """A node that has run when every variable has been updated, and `global_step` counted on."""
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
        if not pairs:
            raise ValueError("No variables provided.")
        given = [(convert_to_tensor(gradient), variable) for gradient, variable in pairs if gradient is not None]
        if not given:
            raise ValueError(f"No gradients provided for any variable: {[str(variable) for _, variable in pairs]}.")
        graph = given[0][1].graph
        with graph.as_default():
            with graph.control_dependencies(None):
                self._create_slots([variable for _, variable in given])
            with graph.name_scope(name or self._name) as scope:
                self._numbers = {}
                self._prepare()
                updates = []
                for gradient, variable in given:
                    with graph.name_scope(f"update_{variable.op.name}"), graph.colocate_with(variable.op):
                        updates.append(self._apply(gradient, variable))
                if global_step is None:
                    done: Operation = self._finish(updates, scope)
                else:
                    with graph.control_dependencies([self._finish(updates, "update")]), graph.colocate_with(global_step.op):
                        made = global_step.assign_add(constant(1, global_step.dtype, name="value"), name=scope, read_value=False)
                        done = made
        graph.add_to_collection("train_op", done)
        return done

    def get_slot(self, var: Variable, name: str) -> Optional[Variable]:
        """The variable beside another one that the optimizer keeps there under this name."""
        return self._slots.get(name, {}).get(var)

    def get_slot_names(self) -> List[str]:
        return sorted(self._slots)

    def variables(self) -> List[Variable]:
        """The optimizer's own variables."""
        slots = [slot for each in self._slots.values() for slot in each.values()]
        return sorted([*slots, *self._others.values()], key=lambda variable: variable.name)

    def _slot(self, variable: Variable, name: str, slot: Any = None, as_name: Optional[str] = None) -> None:
        from ._initializers import Zeros

        known = self._slots.setdefault(name, {})
        if variable not in known:
            known[variable] = create_slot(variable, Zeros() if slot is None else slot, as_name or self._name)

    def _other(self, name: str, first: float, beside: Variable) -> Variable:
        key = name, get_default_graph()
        if key not in self._others:
            with get_default_graph().colocate_with(beside.op):
                self._others[key] = Variable(first, name=name, trainable=False, use_resource=beside._is_resource)
        return self._others[key]

    def _number(self, name: str, value: Any) -> None:
        self._numbers[name] = convert_to_tensor(value() if callable(value) else value, name=name)

    def _in_type(self, name: str, variable: Variable) -> Tensor:
        return _math.cast(self._numbers[name], variable.dtype)

    def _update(self, op: str, variable: Variable, slots: Sequence[Variable], **rest: Any) -> Operation:
        """The node that applies an update, in the form for the kind of variable."""
        known = [variable, *slots]
        prefix = "Resource" if variable._is_resource else ""
        from ._op import op_def

        names = [arg.name for arg in op_def(prefix + op).inputs[: len(known)]]
        made = apply_op(
            prefix + op, None, use_locking=self._use_locking, **{name: each._handle for name, each in zip(names, known)}, **rest
        )
        return made if isinstance(made, Operation) else made.op

    def _create_slots(self, variables: List[Variable]) -> None:
        pass

    def _prepare(self) -> None:
        for name in self._given:
            self._number(name, getattr(self, f"_{name}"))

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        raise NotImplementedError

    def _finish(self, updates: List[Operation], name: str) -> Operation:
        return group(*updates, name=name)


class GradientDescentOptimizer(Optimizer):
    """`variable -= learning_rate * gradient`."""

    _given = ("learning_rate",)

    def __init__(self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent") -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        return self._update("ApplyGradientDescent", variable, [], alpha=self._in_type("learning_rate", variable), delta=gradient)


class MomentumOptimizer(Optimizer):
    """`accumulation = momentum * accumulation + gradient; variable -= learning_rate * accumulation`."""

    _given = ("learning_rate", "momentum")

    def __init__(
        self, learning_rate: Any, momentum: Any, use_locking: bool = False, name: str = "Momentum", use_nesterov: bool = False
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate, self._momentum, self._use_nesterov = learning_rate, momentum, use_nesterov

    def _create_slots(self, variables: List[Variable]) -> None:
        for variable in variables:
            self._slot(variable, "momentum")

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        slot = self._slots["momentum"][variable]
        rate, momentum = self._in_type("learning_rate", variable), self._in_type("momentum", variable)
        return self._update("ApplyMomentum", variable, [slot], lr=rate, grad=gradient, momentum=momentum, use_nesterov=self._use_nesterov)


class AdamOptimizer(Optimizer):
    """Adam."""

    _given = ("learning_rate", "beta1", "beta2", "epsilon")

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate, self._beta1, self._beta2, self._epsilon = learning_rate, beta1, beta2, epsilon

    def _powers(self) -> Tuple[Variable, Variable]:
        graph = get_default_graph()
        return self._others["beta1_power", graph], self._others["beta2_power", graph]

    def _create_slots(self, variables: List[Variable]) -> None:
        first = min(variables, key=lambda variable: variable.name)
        self._other("beta1_power", self._beta1, first)
        self._other("beta2_power", self._beta2, first)
        for variable in variables:
            self._slot(variable, "m")
            self._slot(variable, "v")

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        powers = [_math.cast(power._snapshot, variable.dtype) for power in self._powers()]
        rest = {name: self._in_type(name, variable) for name in ("beta1", "beta2", "epsilon")}
        slots = [self._slots[name][variable] for name in ("m", "v")]
        rate = self._in_type("learning_rate", variable)
        return self._update("ApplyAdam", variable, slots, beta1_power=powers[0], beta2_power=powers[1], lr=rate, grad=gradient, **rest)

    def _finish(self, updates: List[Operation], name: str) -> Operation:
        graph = get_default_graph()
        with graph.control_dependencies(updates):
            beta1, beta2 = self._powers()
            with graph.colocate_with(beta1.op):
                first = beta1.assign(beta1._snapshot * self._numbers["beta1"], use_locking=self._use_locking, read_value=False)
                second = beta2.assign(beta2._snapshot * self._numbers["beta2"], use_locking=self._use_locking, read_value=False)
        return group(*updates, first, second, name=name)


class AdagradOptimizer(Optimizer):
    """Adagrad."""

    _given = ("learning_rate",)

    def __init__(
        self, learning_rate: Any, initial_accumulator_value: float = 0.1, use_locking: bool = False, name: str = "Adagrad"
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate, self._first = learning_rate, initial_accumulator_value

    def _create_slots(self, variables: List[Variable]) -> None:
        from ._initializers import Constant

        for variable in variables:
            self._slot(variable, "accumulator", Constant(self._first))

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        slot = self._slots["accumulator"][variable]
        return self._update("ApplyAdagrad", variable, [slot], lr=self._in_type("learning_rate", variable), grad=gradient)


class RMSPropOptimizer(Optimizer):
    """RMSProp."""

    _given = ("learning_rate", "decay", "momentum", "epsilon")

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate, self._decay, self._momentum, self._epsilon, self._centered = learning_rate, decay, momentum, epsilon, centered

    def _create_slots(self, variables: List[Variable]) -> None:
        from ._initializers import Ones

        for variable in variables:
            self._slot(variable, "rms", Ones())
            if self._centered:
                self._slot(variable, "mg")
            self._slot(variable, "momentum")

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        names = ("mg", "rms", "momentum") if self._centered else ("rms", "momentum")
        slots = [self._slots[name][variable] for name in names]
        numbers = {name: self._in_type(name, variable) for name in ("momentum", "epsilon")}
        op = "ApplyCenteredRMSProp" if self._centered else "ApplyRMSProp"
        rate, rho = self._in_type("learning_rate", variable), self._in_type("decay", variable)
        return self._update(op, variable, slots, lr=rate, rho=rho, grad=gradient, **numbers)


class AdadeltaOptimizer(Optimizer):
    """Adadelta."""

    _given = ("lr", "rho", "epsilon")

    def __init__(
        self, learning_rate: Any = 0.001, rho: Any = 0.95, epsilon: Any = 1e-8, use_locking: bool = False, name: str = "Adadelta"
    ) -> None:
        super().__init__(use_locking, name)
        self._lr, self._rho, self._epsilon = learning_rate, rho, epsilon

    def _create_slots(self, variables: List[Variable]) -> None:
        for variable in variables:
            self._slot(variable, "accum")
            self._slot(variable, "accum_update")

    def _apply(self, gradient: Tensor, variable: Variable) -> Operation:
        slots = [self._slots[name][variable] for name in ("accum", "accum_update")]
        numbers = {name: self._in_type(name, variable) for name in ("lr", "rho", "epsilon")}
        return self._update("ApplyAdadelta", variable, slots, grad=gradient, **numbers)


class ExponentialMovingAverage:
    """Averages of variables that follow them slowly."""

    def __init__(self, decay: float, num_updates: Any = None, zero_debias: bool = False, name: str = "ExponentialMovingAverage") -> None:
        refuse("train.ExponentialMovingAverage", zero_debias=zero_debias)
        self._decay, self._num_updates, self._name = decay, num_updates, name
        self._averages: Dict[Variable, Variable] = {}

    @property
    def name(self) -> str:
        return self._name

    def apply(self, var_list: Optional[Sequence[Variable]] = None) -> Operation:
        """A node that moves the averages. They begin with the variables' first values."""
        from ._graph import GraphKeys

        variables = list(trainable_variables() if var_list is None else var_list)
        graph = variables[0].graph
        for variable in variables:
            if not isinstance(variable, Variable):
                refuse("train.ExponentialMovingAverage.apply", tensor=variable)
            if not variable.dtype.is_floating:
                raise TypeError(f"The variables must be half, float, or double: {variable.name}")
            if variable not in self._averages:
                with graph.control_dependencies(None):
                    average = create_slot(variable, variable.initialized_value(), self._name)
                graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, variable)
                self._averages[variable] = average
        with graph.as_default(), graph.name_scope(self._name) as scope:
            decay: Any = convert_to_tensor(self._decay, "float32", name="decay")
            if self._num_updates is not None:
                steps = _math.cast(self._num_updates, "float32", name="num_updates")
                decay = _math.function("minimum")(decay, (1.0 + steps) / (10.0 + steps))
            updates = [self._moved(self._averages[variable], variable, decay) for variable in variables]
            return group(*updates, name=scope)

    @staticmethod
    def _moved(average: Variable, variable: Variable, decay: Tensor) -> Operation:
        graph = get_default_graph()
        with graph.name_scope("AssignMovingAvg") as scope:
            rate = 1.0 - _math.cast(decay, variable.dtype)
            change = (average._snapshot - variable._snapshot) * rate
            made: Operation = average.assign_sub(change, name=scope, read_value=False)
            return made

    def average(self, var: Variable) -> Optional[Variable]:
        """The average of a variable that `apply` has seen."""
        return self._averages.get(var)

    def average_name(self, var: Variable) -> str:
        """The name that the average of a variable has in a checkpoint."""
        if var in self._averages:
            return self._averages[var].op.name
        return f"{var.op.name}/{self._name}"

    def variables_to_restore(self, moving_avg_variables: Optional[Sequence[Variable]] = None) -> Dict[str, Variable]:
        """For a Saver: variables by the names of their averages, and the others by their own."""
        from ._variables import global_variables, moving_average_variables

        averaged = list(
            moving_avg_variables
            if moving_avg_variables is not None
            else dict.fromkeys([*trainable_variables(), *moving_average_variables()])
        )
        found = {self.average_name(variable): variable for variable in averaged}
        names = {variable.op.name for variable in averaged}
        averages = set(self._averages.values())
        for variable in dict.fromkeys(global_variables()):
            if variable.op.name not in names and variable.op.name not in found and variable not in averages:
                found[variable.op.name] = variable
        return found


def exponential_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False, name: Optional[str] = None
) -> Tensor:
    """`learning_rate * decay_rate ** (global_step / decay_steps)`; with `staircase` the exponent is rounded down."""
    if global_step is None:
        raise ValueError("global_step is required for exponential_decay.")
    with get_default_graph().name_scope(name or "ExponentialDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        kind = rate.dtype.base_dtype
        steps, factor = _math.cast(decay_steps, kind), _math.cast(decay_rate, kind)
        power = _math.cast(convert_to_tensor(global_step), kind) / steps
        if staircase:
            power = _math.function("floor")(power)
        return _math.multiply(rate, _math.function("pow")(factor, power), name=scope)


def inverse_time_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, decay_rate: Any, staircase: bool = False, name: Optional[str] = None
) -> Tensor:
    """`learning_rate / (1 + decay_rate * global_step / decay_steps)`."""
    with get_default_graph().name_scope(name or "InverseTimeDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        kind = rate.dtype.base_dtype
        steps, factor = _math.cast(decay_steps, kind), _math.cast(decay_rate, kind)
        power = _math.cast(convert_to_tensor(global_step), kind) / steps
        if staircase:
            power = _math.function("floor")(power)
        one = _math.cast(constant(1), kind)
        return _math.truediv(rate, _math.add(one, _math.multiply(factor, power)), name=scope)


def polynomial_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    end_learning_rate: Any = 0.0001,
    power: Any = 1.0,
    cycle: bool = False,
    name: Optional[str] = None,
) -> Tensor:
    """From `learning_rate` to `end_learning_rate` within so many steps."""
    refuse("train.polynomial_decay", cycle=cycle)
    with get_default_graph().name_scope(name or "PolynomialDecay") as scope:
        rate = convert_to_tensor(learning_rate, name="initial_learning_rate")
        kind = rate.dtype.base_dtype
        last, exponent = _math.cast(end_learning_rate, kind), _math.cast(power, kind)
        step = _math.cast(convert_to_tensor(global_step), kind)
        steps = _math.cast(decay_steps, kind)
        done = _math.truediv(_math.function("minimum")(step, steps), steps)
        span = rate - last
        left = _math.function("pow")(1 - done, exponent)
        return _math.add(_math.multiply(span, left), last, name=scope)


def piecewise_constant(x: Any, boundaries: Sequence[Any], values: Sequence[Any], name: Optional[str] = None) -> Tensor:
    """The value of the interval that `x` is in: up to and with each boundary."""
    if len(boundaries) != len(values) - 1:
        raise ValueError("The length of boundaries should be 1 less than the length of values")
    with get_default_graph().name_scope(name or "PiecewiseConstant"):
        step = convert_to_tensor(x)
        made = convert_to_tensor(values[-1])
        for boundary, value in reversed(list(zip(boundaries, values))):
            made = _array.where(
                step <= convert_to_tensor(boundary, step.dtype.base_dtype), convert_to_tensor(value, made.dtype.base_dtype), made
            )
        return made
