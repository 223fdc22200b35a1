"""Conditional execution made at random."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_control_flow_ops as gen

from .common import *


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


class WildBranches:
    """Conditions within conditions on three variables, made at random."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        v2()
        self.p, self.q, self.k, self.x = predicate("p"), predicate("q"), floats("k", []), floats("x", [4])
        self.n = tf1.placeholder(tf.int32, [], "n")
        self.variables = [variable(f"v{number}", [0.1 * number] * 4) for number in range(3)]
        y, before = self.x, []
        for _ in range(3):
            with tf.control_dependencies(before):
                condition = self.condition()
                y = tf1.cond(condition, lambda y=y: self.body(y, 1), lambda y=y: self.body(y, 1))
            before = [y.op]
        tf.identity(y, "y")

    def condition(self):
        any_of = [lambda: self.p, lambda: self.q, lambda: self.k > 0.0, lambda: tf.reduce_sum(self.variables[0]) > 0.5, lambda: tf.reduce_sum(self.variables[1]) < 0.0]
        return any_of[self.random.integers(0, len(any_of))]()

    def body(self, a, depth):
        """Within functions, TensorFlow keeps what reads and changes a variable in this order."""
        for _ in range(self.random.integers(1, 4)):
            kind, chosen = self.random.integers(0, 7), self.variables[self.random.integers(0, 3)]
            if kind < 2:
                a = [lambda: a * 0.5 + 1.0, lambda: tf.tanh(a), lambda: a - tf.reduce_mean(a), lambda: tf.nn.relu(a)][self.random.integers(0, 4)]()
            elif kind == 2:
                a = a + chosen.read_value()
            elif kind == 3:
                [lambda: chosen.assign_add(a), lambda: chosen.assign(a * 0.5), lambda: chosen.assign_sub(chosen.read_value() * 0.5)][self.random.integers(0, 3)]()
            elif depth < 3:
                a = self.branch(a, depth)
        return a

    def branch(self, a, depth):
        if self.random.integers(0, 4) == 0:
            return tf.switch_case(self.n, [lambda: self.body(a, depth + 1)] * self.random.integers(1, 4))
        other = self.random.integers(0, 2)
        return tf1.cond(self.condition(), lambda: self.body(a, depth + 1), (lambda: self.body(self.x, depth + 1)) if other else lambda: a * 1.0)


def wild_branch_steps(seed):
    random = np.random.default_rng(seed + 1000)
    for _ in range(6):
        feeds = {"p:0": np.bool_(random.integers(0, 2)), "q:0": np.bool_(random.integers(0, 2)), "k:0": np.float32(random.normal()), "n:0": np.int32(random.integers(-1, 4))}
        yield {**feeds, "x:0": np.round(random.normal(size=4), 1).astype(np.float32)}, ["y:0"], []
        yield {}, [f"v{number}/Read/ReadVariableOp:0" for number in range(3)], []


for seed in (1,):
    def build(seed=seed):
        WildBranches(seed)
        return init()
    build.__name__, build.__doc__ = f"if_random_{seed}", "conditions within conditions on three variables, made at random"
    CASES[build.__name__] = (build, wild_branch_steps(seed), {})
