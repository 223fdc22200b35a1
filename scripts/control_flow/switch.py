"""Switch and Merge."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_control_flow_ops as gen

from .common import *


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


@case(
    sum((do(side, name) + read("v/read:0", "w/read:0") for name in ("chain", "double", "apply", "scatter") for side in (yes(), no())), [])
    + each(["assigned:0"], yes(), no())
    + read("v/read:0", "w/read:0")
)
def switch_ref_updates():
    """updates of one of two ref variables: through the reference that another update gives, by its own value, in place"""
    p, v, w = predicate(), variable("v", [1.0, 2.0], ref=True), variable("w", [3.0, 4.0], ref=True)
    merged, _ = gen.ref_merge([gen.ref_switch(v._ref(), p)[1], gen.ref_switch(w._ref(), p)[0]], name="m")
    added = tf.raw_ops.AssignAdd(ref=merged, value=tf.constant([10.0, 10.0]))
    tf.group(tf.raw_ops.AssignSub(ref=added, value=tf.constant([0.5, 1.5])), name="chain")
    tf.group(tf.raw_ops.AssignAdd(ref=merged, value=merged), name="double")
    tf.group(tf.raw_ops.ApplyGradientDescent(var=merged, alpha=tf.constant(0.5), delta=tf.constant([1.0, 3.0])), name="apply")
    tf.group(tf.raw_ops.ScatterAdd(ref=merged, indices=tf.constant([1]), updates=tf.constant([100.0])), name="scatter")
    tf.identity(tf.raw_ops.Assign(ref=merged, value=tf.constant([7.0, 8.0])), "assigned")
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
