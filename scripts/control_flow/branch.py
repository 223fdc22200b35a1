"""If, Case and calls."""
import numpy as np
import tensorflow as tf
from tensorflow.python.framework.function import Defun
from tensorflow.python.ops import functional_ops
from tensorflow.python.ops import gen_resource_variable_ops as resource

from .common import *


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
