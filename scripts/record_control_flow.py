#!/usr/bin/env python3
"""Records cases of conditional execution in crates/cli/tests/cases, and what is refused in crates/cli/tests/refused.

    python scripts/record_control_flow.py [CASE...]     (needs tensorflow-cpu 2.21)

Names begin with `switch_` where the graph has Switch and Merge, and with `if_` where it has If, Case and functions. TensorFlow's
optimisers leave the graphs alone.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework.function import Defun
from tensorflow.python.ops import functional_ops
from tensorflow.python.ops import gen_control_flow_ops as gen
from tensorflow.python.ops import gen_resource_variable_ops as resource

from record_cases import leave_alone, record

tf1 = tf.compat.v1
REFUSED = pathlib.Path(__file__).parent.parent / "crates/cli/tests/refused"
CASES, REFUSALS = {}, {}
X = np.array([[1.5, -2.0, 0.25], [3.0, 0.5, -1.0]], np.float32)


def case(steps, **options):
    """A case of that name; the function's text is its note."""
    def add(build):
        CASES[build.__name__] = (build, steps, options)
        return build
    return add


def refusal(code, part, feeds, fetches=(), targets=(), init=()):
    """A run that fails with that code and that text in its message."""
    def add(build):
        REFUSALS[build.__name__] = (build, dict(code=code, message=part, feeds=feeds, fetches=list(fetches), targets=list(targets), init=list(init)))
        return build
    return add


def yes(**more):
    return {"p:0": np.True_, **{f"{name}:0": value for name, value in more.items()}}


def no(**more):
    return {"p:0": np.False_, **{f"{name}:0": value for name, value in more.items()}}


def each(fetches, *feeds, targets=()):
    """A step for each of the feeds."""
    return [(feed, list(fetches), list(targets)) for feed in feeds]


def read(*names):
    """A step that only reads."""
    return [({}, list(names), [])]


def do(feed, *targets):
    """A step that only runs something."""
    return [(feed, [], list(targets))]


def predicate(name="p"):
    return tf1.placeholder(tf.bool, [], name=name)


def floats(name="x", shape=(2, 3)):
    return tf1.placeholder(tf.float32, shape, name=name)


def v1():
    tf1.disable_control_flow_v2()


def v2():
    tf1.enable_control_flow_v2()


def variable(name, value, ref=False):
    return tf1.get_variable(name, initializer=tf.constant(value), use_resource=not ref)


def init(*variables):
    tf1.variables_initializer(variables or tf1.global_variables(), name="init")
    return True


FIVE = [f"{name}/read:0" for name in "abcde"]


# Switch and Merge.


@case(each(["y:0", "z:0", "n:0"], yes(x=X), no(x=X), yes(x=-X)))
def switch_cond():
    """tf.cond with three outputs of three types, one of them a constant of the branch"""
    v1()
    p, x = predicate(), floats()
    y, z, n = tf1.cond(p, lambda: (x * 2.0, tf.reduce_sum(x), tf.constant(7)), lambda: (tf.exp(x) + 1.0, tf.reduce_max(x), tf.constant(-7)))
    for name, tensor in [("y", y), ("z", z), ("n", n)]:
        tf.identity(tensor, name)
    return False


@case(each(["y:0", "g:0", "h:0"], yes(x=X), no(x=X)))
def switch_gradient():
    """the gradient through tf.cond: Switch and Merge the other way round, zeros for what a branch does not use"""
    v1()
    p, x = predicate(), floats()
    w = tf.constant([[0.5, 1.0], [-1.0, 2.0], [0.25, 0.125]])
    y = tf1.cond(p, lambda: tf.reduce_sum(tf.matmul(x, w) ** 2), lambda: tf.reduce_mean(tf.tanh(x)))
    tf.identity(y, "y")
    gx, gw = tf1.gradients(y, [x, w])
    tf.identity(gx, "g")
    tf.identity(gw, "h")
    return False


@case(each(["y:0", "i:0"], *[{"p:0": np.bool_(p), "q:0": np.bool_(q), "x:0": np.float32(3)} for p in (0, 1) for q in (0, 1)]))
def switch_nested():
    """tf.cond within both branches of tf.cond"""
    v1()
    p, q, x = predicate(), predicate("q"), floats(shape=())
    inner = lambda a, b: tf1.cond(q, lambda: (x * a, tf.constant(int(a))), lambda: (x - b, tf.constant(int(b))))
    y, i = tf1.cond(p, lambda: inner(2.0, 3.0), lambda: inner(4.0, 5.0))
    tf.identity(y, "y")
    tf.identity(i, "i")
    return False


@case(each(["y:0"], *[{"n:0": np.int32(n), "x:0": X} for n in (-1, 0, 1, 2, 9)]))
def switch_case():
    """tf.case: a chain of conds"""
    v1()
    n, x = tf1.placeholder(tf.int32, [], "n"), floats()
    y = tf1.case([(tf.equal(n, 0), lambda: x + 1.0), (tf.equal(n, 1), lambda: x * 2.0), (n > 5, lambda: -x)], default=lambda: tf.square(x))
    tf.identity(y, "y")
    return False


@case(each(["m:0", "m:1", "three:0", "three:1"], yes(q=np.True_), yes(q=np.False_), no(q=np.True_), no(q=np.False_)))
def switch_value_index():
    """Merge says which input came; with three inputs of two Switches"""
    p, q = predicate(), predicate("q")
    f, t = gen.switch(tf.constant([1.0, 2.0]), p)
    gen.merge([t, f], name="m")
    inner_f, inner_t = gen.switch(t * 10.0, q)
    gen.merge([f + 0.5, inner_f, inner_t], name="three")
    return False


@case(each(["m:0"], yes(x=X), no(x=X)) + each(["taken:0"], yes(x=X)) + each(["other:0"], no(x=X)))
def switch_alone():
    """a Switch without a Merge: what is alive can be fetched"""
    p, x = predicate(), floats()
    other, taken = gen.switch(x, p)
    tf.identity(taken * 3.0, name="taken")
    tf.identity(tf.nn.relu(other), name="other")
    gen.merge([tf.reduce_sum(other), tf.reduce_max(taken)], name="m")
    return False


@case(do(yes(), "set") + read("v/read:0") + do(no(), "set") + read("v/read:0") + do(yes(), "set") + read("v/read:0"))
def switch_assign_one():
    """a ref variable is changed in one branch only"""
    v1()
    p, v = predicate(), variable("v", [1.0, 2.0], ref=True)
    done = tf1.cond(p, lambda: tf1.assign_add(v, [10.0, 20.0]), lambda: tf.constant([0.0, 0.0]))
    tf.group(done, name="set")
    return init()


@case(do(yes(), "set") + read("v/read:0", "w/read:0") + do(no(), "set") + read("v/read:0", "w/read:0"))
def switch_assign_both():
    """each branch changes another ref variable, the value from outside"""
    v1()
    p, v, w = predicate(), variable("v", 1.0, ref=True), variable("w", 2.0, ref=True)
    delta = tf.constant(0.5) * 3.0
    tf.group(tf1.cond(p, lambda: tf1.assign_add(v, delta), lambda: tf1.assign_sub(w, delta)), name="set")
    return init()


@case(do(yes(), "set") + read("v/Read/ReadVariableOp:0") + do(no(), "set") + read("v/Read/ReadVariableOp:0") + each(["y:0"], yes(), no()) + read("v/Read/ReadVariableOp:0"))
def switch_assign_resource():
    """handles go through Switch: a resource variable is changed and read in branches"""
    v1()
    p, v = predicate(), variable("v", [1.0, 2.0])
    with tf.control_dependencies([tf1.cond(p, lambda: v.assign_add([1.0, 1.0]).op, tf.no_op)]):
        tf.no_op(name="set")

    def add():
        with tf.control_dependencies([v.assign(v * 2.0)]):
            return v.read_value()
    tf.identity(tf1.cond(p, add, lambda: -v.read_value()), "y")
    return init()


@case(do(yes(), "step") + read("v/read:0", "w/read:0") + do(no(), "step") + do(no(), "step") + read("v/read:0", "w/read:0"))
def switch_ref():
    """RefSwitch: a reference goes one of two ways, to be changed there"""
    p, v, w = predicate(), variable("v", [1.0, 2.0], ref=True), variable("w", 5.0, ref=True)
    v_false, v_true = gen.ref_switch(v._ref(), p)
    add = tf.raw_ops.AssignAdd(ref=v_true, value=tf.constant([0.5, 0.25]))
    sub = tf.raw_ops.AssignSub(ref=v_false, value=tf.constant([2.0, 4.0]))
    with tf.control_dependencies([sub]):
        more = tf.raw_ops.AssignAdd(ref=w._ref(), value=tf.constant(1.0))
    tf.group(add, sub, more, name="step")
    return init()


@case(do(yes(), "step") + read("v/read:0", "w/read:0") + do(no(), "step") + do(no(), "step") + read("v/read:0", "w/read:0") + each(["m:1"], yes(), no()))
def switch_ref_merge():
    """RefMerge: one of two ref variables is changed"""
    p, v, w = predicate(), variable("v", [1.0, 2.0], ref=True), variable("w", [3.0, 4.0], ref=True)
    merged, _ = gen.ref_merge([gen.ref_switch(v._ref(), p)[1], gen.ref_switch(w._ref(), p)[0]], name="m")
    tf.group(tf.raw_ops.AssignAdd(ref=merged, value=tf.constant([10.0, 10.0])), name="step")
    return init()


@case(do(yes(), "all") + read(*FIVE) + do(no(), "all") + read(*FIVE))
def switch_dead_control():
    """deadness goes along control edges: what waits for the branch that is not taken does not run, ControlTrigger does"""
    p = predicate()
    a, b, c, d, e = (variable(name, 0.0, ref=True) for name in "abcde")
    f, t = gen.switch(p, p)
    with tf.control_dependencies([tf.identity(t)]):
        on_true = tf1.assign_add(a, 1.0)
        constant = tf.constant(5.0)
    with tf.control_dependencies([tf.identity(f)]):
        middle = tf.no_op()
    with tf.control_dependencies([middle]):
        on_false = tf1.assign_add(b, 1.0)
    with tf.control_dependencies([tf.identity(t), middle]):
        trigger = gen.control_trigger()
    with tf.control_dependencies([trigger]):
        always = tf1.assign_add(c, 1.0)
    # A Switch runs whichever way its input goes.
    with tf.control_dependencies([t, f]):
        alive = tf1.assign_add(d, 1.0)
    tf.group(on_true, on_false, always, alive, tf1.assign_add(e, constant), name="all")
    return init()


@case(each(["m:0", "m:1"], yes(), no()) + each(["c:0"], yes(), no()))
def switch_merge_control():
    """a Merge waits for its control inputs, dead or alive, and is alive with one of its data inputs"""
    p = predicate()
    f, t = gen.switch(tf.constant(3.0), p)
    dead, inputs = tf.identity(t), [f * 2.0, t + 1.0]
    with tf.control_dependencies([dead]):
        gen.merge(inputs, name="m")
        trigger = gen.control_trigger()
    with tf.control_dependencies([trigger]):
        tf.constant(9.0, name="c")
    return False


@case(each(["y:0"], *[{"p:0": np.bool_(p), "q:0": np.bool_(q)} for p in (0, 1) for q in (0, 1)]))
def switch_both_dead():
    """a Merge of two dead inputs is dead, and the Merge after it takes its other input"""
    p, q = predicate(), predicate("q")
    f, t = gen.switch(tf.constant([1.0, -1.0]), p)
    inner_f, inner_t = gen.switch(t, q)
    inner, index = gen.merge([inner_f * 2.0, inner_t * 3.0])
    gen.merge([f, inner + tf.cast(index, tf.float32)], name="y")
    return False


@case(do({}, "step") + read("v/Read/ReadVariableOp:0", "flag/read:0") + do({}, "step") + do({}, "step") + do({}, "step") + read("v/Read/ReadVariableOp:0", "flag/read:0"))
def switch_variable_predicate():
    """predicates that are variables: a bool ref variable that flips, a counter"""
    v1()
    flag, v = variable("flag", True, ref=True), variable("v", [1.0, 1.0])
    count = variable("count", 0)
    change = tf1.cond(flag, lambda: v.assign_add([1.0, 0.0]).op, lambda: v.assign(v * 3.0).op)
    with tf.control_dependencies([change]):
        late = tf1.cond(count.read_value() >= 2, lambda: v.assign_sub([0.0, 0.5]).op, tf.no_op)
    with tf.control_dependencies([late]):
        flip = tf1.assign(flag, tf.logical_not(flag))
        tf.group(flip, count.assign_add(1), name="step")
    return init()


@case(read("y:0", "there:0") + do({}, "set") + read("y:0", "there:0"))
def switch_initialised():
    """a ref variable that has no value is read only in the branch that is not taken"""
    v1()
    w = variable("w", [4.0, 5.0], ref=True)
    there = tf1.is_variable_initialized(w)
    tf.identity(there, "there")
    tf.identity(tf1.cond(there, lambda: w.read_value() * 2.0, lambda: tf.constant([-1.0, -1.0])), "y")
    tf.group(w.initializer, name="set")
    return False


@case(each(["y:0", "z:0"], yes(x=X), no(x=X), yes(x=-X)))
def switch_layers():
    """layers in both branches: products, reductions, chains of elementwise operations that both use"""
    v1()
    p, x = predicate(), floats()
    w = tf.constant(np.round(np.random.default_rng(3).normal(size=(3, 4)), 2).astype(np.float32))
    shared = tf.tanh(x) * 0.5 + x

    def left():
        hidden = tf.nn.relu(tf.matmul(shared, w) + [0.1, 0.2, 0.3, 0.4])
        return hidden, tf.reduce_sum(hidden, 0)

    def right():
        hidden = tf.nn.softmax(tf.matmul(shared * shared - 1.0, w))
        return hidden * 2.0 - tf.reduce_mean(hidden), tf.reduce_max(hidden, 0) * tf.reduce_sum(shared)
    y, z = tf1.cond(p, left, right)
    tf.identity(y * y + 1.0, "y")
    tf.identity(tf.sqrt(tf.abs(z)), "z")
    return False


@case(each(["y:0", "s:0"], yes(x=X), no(x=X)))
def switch_shapes():
    """branches that give tensors of different shapes"""
    v1()
    p, x = predicate(), floats()
    y = tf1.cond(p, lambda: x[:1], lambda: x)
    tf.identity(y * 2.0, "y")
    tf.shape(y, name="s")
    return False


@case(read("y:0", "z:0", "i:1"))
def switch_known():
    """predicates that are known before anything runs"""
    a, b = gen.switch(tf.constant([1.0, 2.0]), tf.constant(True))
    y, _ = gen.merge([a, b * 2.0])
    tf.identity(y, "y")
    c, d = gen.switch(tf.constant(3.0), tf.less(tf.constant(5), tf.size(tf.zeros([4]))))
    z, _ = gen.merge([c + 1.0, d])
    tf.identity(z, "z")
    gen.merge([d, c], name="i")
    return False


@case(each(["y:0", "z:0"], yes(x=X), no(x=X)) + do(yes(x=X), "set") + read("v/read:0") + do(no(x=X), "set") + read("v/read:0"), devices=2)
def switch_devices():
    """branches on two devices, predicate and variable on the first"""
    v1()
    with tf1.device("/cpu:0"):
        p, x, v = predicate(), floats(), variable("v", 1.0, ref=True)

    def far():
        with tf1.device("/cpu:1"):
            return tf.reduce_sum(tf.exp(x), 1), x * 3.0

    def near():
        return tf.reduce_max(x, 1), tf.nn.relu(x)
    y, z = tf1.cond(p, far, near)
    with tf1.device("/cpu:1"):
        tf.identity(y + 1.0, "y")
        total = tf.reduce_sum(z)
    tf.identity(z, "z")
    with tf1.device("/cpu:0"):
        tf.group(tf1.cond(p, lambda: tf1.assign_add(v, total), lambda: tf1.assign(v, total * 0.5)), name="set")
    return init()


@case(sum([[({"x:0": X * scale, "y:0": np.array([1, 0], np.int32)}, ["loss:0"], ["train"])] for scale in (1, 2, 1, 0.5)], []) + read("w/read:0", "skipped/read:0"))
def switch_train():
    """training that skips steps whose gradient is too long"""
    v1()
    x, y = floats(), tf1.placeholder(tf.int32, [2], "y")
    w, skipped = variable("w", np.round(np.random.default_rng(5).normal(size=(3, 2)), 2).astype(np.float32), ref=True), variable("skipped", 0, ref=True)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, w)), name="loss")
    optimizer = tf1.train.GradientDescentOptimizer(0.5)
    (gradient, _), = optimizer.compute_gradients(loss, [w])
    short = tf.norm(gradient) < 1.5
    tf.group(tf1.cond(short, lambda: tf.group(optimizer.apply_gradients([(gradient, w)])), lambda: tf.group(tf1.assign_add(skipped, 1))), name="train")
    return init()


# Switches and Merges at random.

WORLDS = [tuple(bool(world >> bit & 1) for bit in range(3)) for world in range(8)]


class Wild:
    """A graph of three predicates made at random. Of each tensor it is known in which worlds it is alive."""

    def __init__(self, seed):
        self.random, self.tensors, self.fetches = np.random.default_rng(seed), [], []
        self.predicates = [predicate(name) for name in "pqr"]
        everywhere = frozenset(range(8))
        for name in "xy":
            self.tensors.append((floats(name, [4]), everywhere))
        with tf1.device("/cpu:0"):
            self.variable = variable("v", [0.0] * 4, ref=bool(seed % 2))
        self.last = tf.no_op()
        self.updates = []
        for step in range(45):
            kind = self.random.integers(0, 12)
            # What changes the variable is where that is.
            with tf1.device(f"/cpu:{self.random.integers(0, 2) if seed > 2 and kind != 9 else 0}"):
                self.add(kind, f"n{step}")
        # What is alive somewhere, the latest first.
        self.fetches = [(tensor.name, alive) for tensor, alive in self.tensors[::-1] if alive and tensor.op.type not in ("Switch", "Placeholder")][:14]
        with tf1.device("/cpu:0"), tf.control_dependencies([self.last]):
            tf.group(*self.updates, name="step")

    def pick(self):
        return self.tensors[-1 - min(int(self.random.exponential(5)), len(self.tensors) - 1)]

    def add(self, kind, name):
        (a, alive_a), (b, alive_b) = self.pick(), self.pick()
        if kind < 4:
            bit = int(self.random.integers(0, 3))
            off, on = gen.switch(a, self.predicates[bit], name=f"Switch_{name}")
            for tensor, wanted in ((off, False), (on, True)):
                self.tensors.append((tensor, frozenset(world for world in alive_a if WORLDS[world][bit] == wanted)))
        elif kind < 8:
            apart = [(tensor, alive) for tensor, alive in self.tensors if not alive & alive_a and alive]
            if alive_a and apart:
                other, alive = apart[self.random.integers(0, len(apart))]
                merged, index = gen.merge([other, a], name=f"{name}_merge")
                self.tensors.append((merged, alive | alive_a))
                self.tensors.append((tf.cast(index, tf.float32) + merged, alive | alive_a))
        elif kind == 8:
            # Deadness goes along control edges; a Switch is as alive as what it is given.
            own = tf.identity(b)
            with tf.control_dependencies([own]):
                self.tensors.append((tf.tanh(a, name=name), alive_a & alive_b))
        elif kind == 9:
            with tf.control_dependencies([self.last]):
                trigger = gen.control_trigger()
            value = a * 0.5
            with tf.control_dependencies([trigger]):
                self.last = tf1.assign_add(self.variable, value)
            if hasattr(self.last, "op"):
                self.last = self.last.op
            self.updates.append(self.last)
        else:
            ops = [lambda: a + b, lambda: a * b - 1.0, lambda: tf.maximum(a, b), lambda: tf.reduce_sum(a) + tf.sin(b), lambda: tf.nn.softmax(a - b)]
            self.tensors.append((tf.identity(ops[self.random.integers(0, len(ops))](), name=name), alive_a & alive_b))


def wild(seed):
    """The fetches and the name of the variable's value."""
    with tf.Graph().as_default():
        made = Wild(seed)
        return made.fetches, "v/Read/ReadVariableOp:0" if seed % 2 == 0 else "v/read:0"


def wild_steps(seed):
    fetches, value = wild(seed)
    random = np.random.default_rng(seed + 100)
    for world, (p, q, r) in enumerate(WORLDS):
        feeds = {"p:0": np.bool_(p), "q:0": np.bool_(q), "r:0": np.bool_(r)}
        feeds |= {f"{name}:0": np.round(random.normal(size=4), 1).astype(np.float32) for name in "xy"}
        yield feeds, [name for name, alive in fetches if world in alive], ["step"]
        yield {}, [value], []


for seed in (1, 3, 4):
    def build(seed=seed):
        Wild(seed)
        return init()
    build.__name__, build.__doc__ = f"switch_random_{seed}", "Switches, Merges, control edges and updates made at random; what is alive is fetched in every world"
    CASES[build.__name__] = (build, wild_steps(seed), {"devices": 2})


# If, Case and calls.


@case(each(["y:0", "z:0", "n:0"], yes(x=X), no(x=X), yes(x=-X)))
def if_cond():
    """tf.cond as functions: three outputs of three types"""
    v2()
    p, x = predicate(), floats()
    y, z, n = tf1.cond(p, lambda: (x * 2.0, tf.reduce_sum(x), tf.constant(7)), lambda: (tf.exp(x) + 1.0, tf.reduce_max(x), tf.constant(-7)))
    for name, tensor in [("y", y), ("z", z), ("n", n)]:
        tf.identity(tensor, name)
    return False


@case(each(["y:0", "g:0", "h:0"], yes(x=X), no(x=X)))
def if_gradient():
    """the gradient of tf.cond: another If, with what the first keeps for it"""
    v2()
    p, x = predicate(), floats()
    w = tf.constant([[0.5, 1.0], [-1.0, 2.0], [0.25, 0.125]])
    y = tf1.cond(p, lambda: tf.reduce_sum(tf.matmul(x, w) ** 2), lambda: tf.reduce_mean(tf.tanh(x)))
    tf.identity(y, "y")
    gx, gw = tf1.gradients(y, [x, w])
    tf.identity(gx, "g")
    tf.identity(gw, "h")
    return False


def branches(*types):
    """Two functions of those types: three times the last argument, and one less than it."""
    @Defun(*types)
    def triple(*args):
        return args[-1] * 3.0

    @Defun(*types)
    def less(*args):
        return args[-1] - 1.0
    return triple, less


CONDITIONS = {"f": tf.float32, "i": tf.int32, "l": tf.int64, "d": tf.float64, "u": tf.uint8}


@case(each([f"{name}_if:0" for name in CONDITIONS], *[
    {"x:0": np.float32(2), **{f"{name}:0": type_.as_numpy_dtype(value) for name, type_ in CONDITIONS.items()}} for value in (0, 1, 7)])
    + [({"x:0": np.float32(2), "f:0": np.float32(value)}, ["f_if:0"], []) for value in (-0.0, 0.5, -1, np.nan)])
def if_numbers():
    """conditions that are numbers: zero is false"""
    x = floats(shape=())
    then, otherwise = branches(tf.float32)
    for name, type_ in CONDITIONS.items():
        condition = tf1.placeholder(type_, [], name)
        functional_ops.If(condition, [x], then, otherwise, name=f"{name}_if")
    return False


@case([({"x:0": np.float32(2), "v:0": np.zeros(shape, np.float32), "b:0": np.zeros(shape[:1], bool)}, ["v_if:0", "b_if:0"], [])
       for shape in [(0, 3), (1, 3), (2, 0), (2, 2)]])
def if_vectors():
    """conditions that are no scalars: false where they have no elements"""
    x = floats(shape=())
    then, otherwise = branches(tf.float32)
    functional_ops.If(tf1.placeholder(tf.float32, [None, None], "v"), [x], then, otherwise, name="v_if")
    functional_ops.If(tf1.placeholder(tf.bool, [None], "b"), [x], then, otherwise, name="b_if")
    return False


@case([({"x:0": np.float32(2)}, ["empty:0", "word:0", "none:0"], [])])
def if_strings():
    """conditions that are strings: the empty one is false"""
    x = floats(shape=())
    then, otherwise = branches(tf.float32)
    for name, value in [("empty", tf.constant("")), ("word", tf.constant("no")), ("none", tf.constant([], tf.string))]:
        functional_ops.If(value, [x], then, otherwise, name=name)
    return False


@case(each(["y:0", "y:1", "y:2", "y:3", "y:4"], yes(x=X), no(x=X)))
def if_outputs():
    """many outputs: an argument as it is, twice, a constant, an integer, a bool"""
    p, x = predicate(), floats()

    @Defun(tf.float32, tf.float32)
    def then(a, b):
        return a, a, tf.constant([1.0, 2.0]), tf.size(b), tf.constant(True)

    @Defun(tf.float32, tf.float32)
    def otherwise(a, b):
        return b, a + b, tf.reduce_sum(a, 0)[:2], tf.constant(-3), tf.reduce_any(a > 2.0)
    functional_ops.If(p, [x, x * x], then, otherwise, name="y")
    return False


def read_of(handle):
    return resource.read_variable_op(handle, tf.float32)


@case(do(yes(), "set") + read("v/Read/ReadVariableOp:0", "w/Read/ReadVariableOp:0") + do(no(), "set") + read("v/Read/ReadVariableOp:0", "w/Read/ReadVariableOp:0")
      + each(["y:0"], yes(), no()) + read("v/Read/ReadVariableOp:0", "w/Read/ReadVariableOp:0"))
def if_assign():
    """bodies that change variables: one each, without outputs; then changed and read within"""
    v2()
    p, v, w = predicate(), variable("v", [1.0, 2.0]), variable("w", 2.0)
    tf.group(tf1.cond(p, lambda: v.assign_add([10.0, 20.0]).op, lambda: w.assign(w * 4.0).op), name="set")

    def both():
        v.assign_add([1.0, 1.0])
        w.assign(tf.reduce_sum(v))
        return v + w

    def one():
        before = v.read_value()
        v.assign(v * 0.5)
        return before - v
    tf.identity(tf1.cond(p, both, one), "y")
    return init()


@case(do(yes(), "set") + read("v/Read/ReadVariableOp:0") + do(no(), "set") + read("v/Read/ReadVariableOp:0") + do(no(), "set") + read("v/Read/ReadVariableOp:0"))
def if_assign_one():
    """a body that changes a variable, and one that does nothing; control edges to and from the If"""
    p, v = predicate(), variable("v", [1.0, 2.0])

    @Defun(tf.resource, tf.float32)
    def then(handle, delta):
        with tf.control_dependencies([resource.assign_add_variable_op(handle, delta)]):
            return tf.constant(1)

    @Defun(tf.resource, tf.float32)
    def otherwise(handle, delta):
        return tf.constant(0)
    with tf.control_dependencies([v.assign(v * 2.0)]):
        done = functional_ops.If(p, [v.handle, tf.constant([0.5, 0.25])], then, otherwise, name="done")
    with tf.control_dependencies(done):
        tf.group(v.assign_sub([1.0, 1.0]), name="set")
    return init()


@case(each(["y:0", "i:0"], *[{"p:0": np.bool_(p), "q:0": np.bool_(q), "x:0": np.float32(3)} for p in (0, 1) for q in (0, 1)]) + read("v/Read/ReadVariableOp:0"))
def if_nested():
    """If within the branches of an If, the inner one's condition and variable from outside"""
    v2()
    p, q, x, v = predicate(), predicate("q"), floats(shape=()), variable("v", 1.0)

    def change():
        v.assign_add(x)
        return v * 100.0, tf.constant(1)

    def left():
        return tf1.cond(q, lambda: (x * v, tf.constant(2)), change)

    def right():
        deep = lambda: tf1.cond(x > 2.0, lambda: x * 7.0, lambda: x * 9.0)
        return tf1.cond(q, lambda: (deep() + v, tf.constant(4)), lambda: (x - 5.0, tf.constant(5)))
    y, i = tf1.cond(p, left, right)
    tf.identity(y, "y")
    tf.identity(i, "i")
    return init()


@case(each(["y:0", "z:0"], yes(x=X), no(x=X)) + read("v/Read/ReadVariableOp:0"))
def if_in_call():
    """an If in a function that is called, and calls in the branches of an If"""
    p, x, v = predicate(), floats(), variable("v", 2.0)

    @Defun(tf.float32)
    def shrink(a):
        return tf.tanh(a) * 0.5

    @Defun(tf.float32, tf.resource)
    def then(a, handle):
        with tf.control_dependencies([resource.assign_add_variable_op(handle, tf.constant(1.0))]):
            return tf.raw_ops.PartitionedCall(args=[a], Tout=[tf.float32], f=shrink)[0] + read_of(handle)

    @Defun(tf.float32, tf.resource)
    def otherwise(a, handle):
        return tf.raw_ops.PartitionedCall(args=[a - 1.0], Tout=[tf.float32], f=shrink)[0]

    @Defun(tf.bool, tf.float32, tf.resource)
    def outer(condition, a, handle):
        return functional_ops.If(condition, [a * 2.0, handle], then, otherwise)[0]
    called, = tf.raw_ops.StatefulPartitionedCall(args=[p, x, v.handle], Tout=[tf.float32], f=outer)
    tf.identity(called, "y")
    with tf.control_dependencies([called]):
        z, = functional_ops.If(tf.logical_not(p), [x, v.handle], then, otherwise)
    tf.identity(z, "z")
    return init()


@case([({"n:0": np.int32(n), "x:0": X}, ["pure:0", "state:0"], []) for n in (-1, 0, 1, 2, 5)] + read("v/Read/ReadVariableOp:0"))
def if_case():
    """StatelessCase and Case: an index out of range takes the last branch"""
    n, x, v = tf1.placeholder(tf.int32, [], "n"), floats(), variable("v", 1.0)

    def pure(f):
        return Defun(tf.float32)(lambda a: f(a))

    def state(f):
        @Defun(tf.float32, tf.resource)
        def body(a, handle):
            with tf.control_dependencies([resource.assign_add_variable_op(handle, f(tf.constant(1.0)))]):
                return f(a) * read_of(handle)
        return body
    kinds = [lambda a: a + 1.0, lambda a: a * 3.0, lambda a: -a]
    tf.raw_ops.StatelessCase(branch_index=n, input=[x], Tout=[tf.float32], branches=[pure(f) for f in kinds], output_shapes=[[2, 3]], name="pure")
    tf.raw_ops.Case(branch_index=n, input=[x, v.handle], Tout=[tf.float32], branches=[state(f) for f in kinds], output_shapes=[[2, 3]], name="state")
    return init()


@case(each(["y:0"], *[{"n:0": np.int32(n), "x:0": X} for n in (-1, 0, 1, 2, 9)]))
def if_switch_case():
    """tf.switch_case"""
    v2()
    n, x = tf1.placeholder(tf.int32, [], "n"), floats()
    tf.identity(tf.switch_case(n, [lambda: x + 1.0, lambda: x * 2.0, lambda: tf.zeros_like(x)], default=lambda: tf.square(x)), "y")
    return False


@case(do({}, "step") + read("v/Read/ReadVariableOp:0") + do({}, "step") + do({}, "step") + do({}, "step") + read("v/Read/ReadVariableOp:0", "count/Read/ReadVariableOp:0"))
def if_variable_predicate():
    """conditions that are variables"""
    v2()
    flag, v, count = variable("flag", True), variable("v", [1.0, 1.0]), variable("count", 0)
    change = tf1.cond(flag, lambda: v.assign_add([1.0, 0.0]).op, lambda: v.assign(v * 3.0).op)
    with tf.control_dependencies([change]):
        late = tf1.cond(count >= 2, lambda: v.assign_sub([0.0, 0.5]).op, tf.no_op)
    with tf.control_dependencies([late]):
        tf.group(flag.assign(tf.logical_not(flag)), count.assign_add(1), name="step")
    return init()


@case(read("y:0", "there:0") + do({}, "set") + read("y:0", "there:0"))
def if_initialised():
    """a resource variable that has no value is read only in the branch that is not taken"""
    v2()
    w = variable("w", [4.0, 5.0])
    there = tf1.is_variable_initialized(w)
    tf.identity(there, "there")
    tf.identity(tf1.cond(there, lambda: w.read_value() * 2.0, lambda: tf.constant([-1.0, -1.0])), "y")
    tf.group(w.initializer, name="set")
    return False


@case(each(["y:0", "s:0"], yes(x=X), no(x=X)))
def if_shapes():
    """branches that give tensors of different shapes"""
    v2()
    p, x = predicate(), floats()
    y = tf1.cond(p, lambda: x[:1], lambda: x)
    tf.identity(y * 2.0, "y")
    tf.shape(y, name="s")
    return False


@case(each(["y:0"], yes(x=X), no(x=X)) + do(yes(x=X), "set") + read("v/Read/ReadVariableOp:0") + do(no(x=X), "set") + read("v/Read/ReadVariableOp:0"), devices=2)
def if_devices():
    """bodies on another device than their variable"""
    v2()
    with tf1.device("/cpu:0"):
        p, x, v = predicate(), floats(), variable("v", 1.0)

    def far():
        with tf1.device("/cpu:1"):
            return tf.reduce_sum(tf.exp(x), 1) * v

    def near():
        return tf.reduce_max(x, 1)
    y = tf1.cond(p, far, near)
    with tf1.device("/cpu:1"):
        y = tf.identity(y + 1.0, "y")
    tf.group(tf1.cond(p, lambda: v.assign_add(tf.reduce_sum(y)).op, lambda: v.assign(y[0]).op), name="set")
    return init()


@case(sum([[({"x:0": X * scale, "y:0": np.array([1, 0], np.int32)}, ["loss:0"], ["train"])] for scale in (1, 2, 1, 0.5)], []) + read("w/Read/ReadVariableOp:0", "skipped/Read/ReadVariableOp:0"))
def if_train():
    """training that skips steps whose gradient is too long"""
    v2()
    x, y = floats(), tf1.placeholder(tf.int32, [2], "y")
    w, skipped = variable("w", np.round(np.random.default_rng(5).normal(size=(3, 2)), 2).astype(np.float32)), variable("skipped", 0)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, w)), name="loss")
    optimizer = tf1.train.MomentumOptimizer(0.5, 0.9)
    (gradient, _), = optimizer.compute_gradients(loss, [w])
    short = tf.norm(gradient) < 1.5
    # Its slots are made outside: an If cannot hold a variable's beginning.
    optimizer._create_slots([w])
    tf.group(tf1.cond(short, lambda: tf.group(optimizer.apply_gradients([(gradient, w)])), lambda: tf.group(skipped.assign_add(1))), name="train")
    return init()


# What is refused.


def retval(index=0):
    return f"Retval[{index}] does not have value"


@refusal("INVALID_ARGUMENT", retval(), {"p": True}, ["s:0"])
def switch_output():
    gen.switch(tf.constant([1.0, 2.0]), predicate(), name="s")


@refusal("INVALID_ARGUMENT", retval(1), {"p": True}, ["alive:0", "dead:0"])
def behind_a_switch():
    f, t = gen.switch(tf.constant([1.0, 2.0]), predicate())
    tf.identity(t * 2.0, name="alive")
    tf.identity(tf.exp(f) + 1.0, name="dead")


@refusal("INVALID_ARGUMENT", retval(), {"p": False}, ["c:0"])
def constant_behind_a_dead_control_edge():
    _, t = gen.switch(tf.constant(1.0), predicate())
    with tf.control_dependencies([tf.identity(t)]):
        tf.constant(4.0, name="c")


@refusal("INVALID_ARGUMENT", retval(), {"p": False, "q": True}, ["m:0"])
def merge_of_dead():
    _, t = gen.switch(tf.constant(1.0), predicate())
    a, b = gen.switch(t, predicate("q"))
    gen.merge([a, b], name="m")


@refusal("INVALID_ARGUMENT", retval(), {"p": False}, ["v_new:0"], init=["init"])
def assignment_not_made():
    v = variable("v", 1.0, ref=True)
    _, t = gen.switch(tf.constant(5.0), predicate())
    tf.identity(tf1.assign(v, t), name="v_new")
    init()


@refusal("FAILED_PRECONDITION", "Attempting to use uninitialized value", {"p": True}, ["y:0"])
def uninitialised_ref_in_the_branch_taken():
    v1()
    w = variable("w", [4.0, 5.0], ref=True)
    tf.identity(tf1.cond(predicate(), lambda: w.read_value() * 2.0, lambda: tf.constant([1.0, 1.0])), "y")


@refusal("FAILED_PRECONDITION", "Could not find variable", {"p": True}, ["y:0"])
def uninitialised_resource_in_the_branch_taken():
    v2()
    w = variable("w", [4.0, 5.0])
    tf.identity(tf1.cond(predicate(), lambda: w.read_value() * 2.0, lambda: tf.constant([1.0, 1.0])), "y")


@refusal("INVALID_ARGUMENT", "must be", {"v": [True, False]}, ["m:0"])
def predicate_that_is_no_scalar():
    f, t = gen.switch(tf.constant(1.0), tf1.placeholder(tf.bool, None, "v"))
    gen.merge([f, t], name="m")


@refusal("INVALID_ARGUMENT", "assertion failed", {"p": True, "x": [1.0, -1.0]}, ["y:0"])
def assertion_in_the_branch_taken():
    v1()
    x = floats(shape=[2])

    def checked():
        with tf.control_dependencies([tf1.assert_positive(x)]):
            return tf.identity(x)
    tf.identity(tf1.cond(predicate(), checked, lambda: x * 2.0), "y")


def record_refusal(name, build, entry):
    graph = tf.Graph()
    with graph.as_default():
        build()
    (REFUSED / f"{name}.pbtxt").write_text(text_format.MessageToString(graph.as_graph_def()))
    with tf1.Session(graph=graph, config=leave_alone(tf1.ConfigProto(allow_soft_placement=True))) as session:
        if entry["init"]:
            session.run(entry["init"])
        try:
            session.run([entry["fetches"], entry["targets"]], {f"{key}:0": np.array(value) for key, value in entry["feeds"].items()})
        except tf.errors.OpError as error:
            code = error.__class__.__name__
            said = {"InvalidArgumentError": "INVALID_ARGUMENT", "FailedPreconditionError": "FAILED_PRECONDITION"}[code]
            assert said == entry["code"] and entry["message"] in error.message, (name, code, error.message[-600:])
        else:
            raise AssertionError(f"{name} is accepted")
    return {"name": name, **entry}


def main():
    wanted = sys.argv[1:]
    for name, (build, steps, options) in CASES.items():
        if not wanted or name in wanted:
            record(name, build, steps, note=build.__doc__, as_written=True, stripped=True, **options)
    if not wanted or wanted == ["refused"]:
        shutil.rmtree(REFUSED, ignore_errors=True)
        REFUSED.mkdir(parents=True)
        table = [record_refusal(name, *refused) for name, refused in REFUSALS.items()]
        (REFUSED / "refused.json").write_text(json.dumps(table, indent=1) + "\n")
        print(f"{len(table)} refusals")


if __name__ == "__main__":
    main()
