"""TF1's control flow: cond, while_loop, TensorArray; calls of functions."""
import tensorflow as tf
from tensorflow.python.framework import function
from tensorflow.python.ops import control_flow_util, while_loop

from .common import add_case, case, on, set_device, tf1, variable


def version(number, build):
    """With control flow of that version: 1 is Switch, Merge, Enter, Exit; 2 is If and While."""

    def run():
        before, control_flow_util.ENABLE_CONTROL_FLOW_V2 = control_flow_util.ENABLE_CONTROL_FLOW_V2, number == 2
        try:
            return build()
        finally:
            control_flow_util.ENABLE_CONTROL_FLOW_V2 = before

    run.__module__ = build.__module__
    return run


def flow(cpus=4, soft=False, versions=(1, 2)):
    def add(build):
        name = build.__name__
        for number in versions:
            add_case(f"{name}_v{number}" if len(versions) > 1 else name, version(number, build), cpus=cpus, soft=soft)
        return build

    return add


@flow()
def cond_plain():
    with on("/cpu:1"):
        p = tf1.placeholder_with_default(True, [], "p")
    with on("/cpu:2"):
        x = tf1.placeholder_with_default(2.0, [], "x")
        y = tf1.cond(p, lambda: x + 1.0, lambda: x * 3.0)
    z = tf.negative(y, name="z")
    return [([], [z])]


@flow()
def cond_devices_inside():
    """Branches on devices of their own; Switch moves to its data."""
    with on("/cpu:1"):
        x = tf1.placeholder_with_default(2.0, [], "x")
        v = variable("v")

    def yes():
        with on("/cpu:2"):
            return tf.reduce_sum(v) + x

    def no():
        with on("/cpu:3"):
            return x * 3.0

    y = tf1.cond(x > 1.0, yes, no)
    with on("/cpu:2"):
        z = tf.negative(y, name="z")
    return [([v.initializer], [z])]


@flow()
def cond_of_variables():
    with on("/cpu:3"):
        v, w = variable("v"), variable("w", resource=True)
    with on("/cpu:2"):
        p = tf1.placeholder_with_default(True, [], "p")
        y = tf1.cond(p, lambda: tf1.assign_add(w, tf.ones([2, 2])), lambda: tf.identity(v))
        train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y * v))
    return [([v.initializer, w.initializer], [y]), ([], [train])]


@flow()
def cond_nested():
    with on("/cpu:1"):
        x = tf1.placeholder_with_default(2.0, [], "x")
    with on("/cpu:2"):
        y = tf1.cond(x > 1.0, lambda: tf1.cond(x > 3.0, lambda: x + 1.0, lambda: set_device(x - 1.0, "/cpu:3")), lambda: tf.constant(0.0))
    g = tf1.gradients(y, x)
    return [([], [y, g])]


@flow()
def while_plain():
    i = tf1.while_loop(lambda i: i < 5, lambda i: i + 1, [0])
    with on("/cpu:2"):
        j = tf1.while_loop(lambda i: i < 5, lambda i: i + 1, [i])
    return [([], [j])]


@flow()
def while_devices_inside():
    """Enter goes where its first consumer is, Exit where its input is."""
    with on("/cpu:1"):
        x = tf1.placeholder_with_default(tf.ones([2]), [2], "x")
        w = variable("w", (2,))

    def body(i, s):
        with on("/cpu:2"):
            s = s + x * w
        with on("/cpu:3"):
            s = tf.tanh(s)
        return i + 1, s

    with on("/cpu:3"):
        n = tf.constant(3, name="n")
    i, s = tf1.while_loop(lambda i, s: i < n, body, [tf.constant(0), tf.zeros([2])], name="loop")
    with on("/cpu:2"):
        y = tf.reduce_sum(s) + tf.cast(i, tf.float32)
    return [([w.initializer], [y])]


@flow()
def while_gradient():
    """Stacks keep what the gradient needs, with handles of their own."""
    with on("/cpu:1"):
        x = tf1.placeholder_with_default(tf.ones([2]), [2], "x")
    with on("/cpu:2"):
        _, y = tf1.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, tf.sin(s) * x), [0, x])
    with on("/cpu:3"):
        g = tf1.gradients(tf.reduce_sum(y), x)
    return [([], [g])]


@flow()
def while_nested():
    with on("/cpu:2"):
        def outer(i, s):
            with on("/cpu:3"):
                _, t = tf1.while_loop(lambda j, t: j < i, lambda j, t: (j + 1, t * 2.0), [0, s])
            return i + 1, t + 1.0

        _, y = tf1.while_loop(lambda i, s: i < 3, outer, [0, tf.constant(1.0)])
    return [([], [y])]


@flow(versions=(1,))
def while_with_variables():
    with on("/cpu:1"):
        v, w = variable("v"), variable("w", resource=True)

    def body(i):
        with on("/cpu:2"), tf1.control_dependencies([tf1.assign_add(v, tf.ones([2, 2])).op, w.assign_add(tf.ones([2, 2]))]):
            return i + 1

    i = tf1.while_loop(lambda i: i < 3, body, [0])
    return [([v.initializer, w.initializer], [i])]


@flow(soft=True)
def while_on_gpu():
    with on("/gpu:0"):
        i = tf1.while_loop(lambda i: i < 3, lambda i: set_device(i + 1, "/gpu:1"), [0])
    with on("/cpu:7"):
        y = i * 2
    return [([], [y])]


@flow(versions=(1,))
def while_two_devices_chain():
    """NextIteration and Enter by the first of several consumers."""
    with on("/cpu:1"):
        i = tf.raw_ops.Enter(data=1, frame_name="f", name="enter")
        limit = tf.raw_ops.Enter(data=4, frame_name="f", is_constant=True, name="limit")
    with on("/cpu:2"):
        merge = tf.raw_ops.Merge(inputs=[i, i], name="merge")[0]
        less = tf.less(merge, limit, name="less")
    with on("/cpu:3"):
        condition = tf.raw_ops.LoopCond(input=less)
        off, stay = tf.raw_ops.Switch(data=merge, pred=condition)
        more = tf.add(stay, stay, name="more")
        following = tf.raw_ops.NextIteration(data=more)
        out = tf.raw_ops.Exit(data=off, name="exit")
        constant = tf.add(limit, stay, name="uses_limit")
        left = tf.raw_ops.Exit(data=tf.raw_ops.Switch(data=constant, pred=condition)[0], name="second_exit")
    merge.op._update_input(1, following)
    return [([], [out])] if left is not None else []


@flow()
def tensor_arrays():
    with on("/cpu:1"):
        array = tf1.TensorArray(tf.float32, 3, element_shape=[2], clear_after_read=False)
    with on("/cpu:2"):
        array = array.write(0, [1.0, 2.0]).write(1, [3.0, 4.0])
    with on("/cpu:3"):
        array = array.write(2, [5.0, 6.0])
        y = array.stack()
        read = array.read(1)
        size = array.size()
    return [([], [y, read, size])]


@flow(versions=(1,))
def tensor_arrays_far_apart():
    """Without colocation with the first write."""
    with on("/cpu:1"):
        array = tf1.TensorArray(tf.float32, 2, element_shape=[2], colocate_with_first_write_call=False)
    with on("/cpu:2"):
        array = array.unstack(tf.ones([2, 2]))
        total = array.concat()
    with on("/cpu:3"):
        g = tf1.gradients(total, array.flow)
    return [([], [total, g])]


@flow(soft=True)
def tensor_arrays_in_a_loop():
    with on("/cpu:1"):
        x = tf.ones([3, 2])
        v = variable("v", (2,))
    with on("/cpu:2"):
        y = tf1.map_fn(lambda row: row * v, x)
    with on("/cpu:3"):
        g = tf1.gradients(y, [x, v.value()])
    return [([v.initializer], [y, g])]


@flow(soft=True)
def recurrent():
    """A dynamic_rnn over two devices."""
    with on("/cpu:1"):
        x = tf.ones([2, 3, 4])
    with on("/gpu:0"), tf1.variable_scope("rnn", initializer=tf1.zeros_initializer()):
        w = tf1.get_variable("w", [4, 4], use_resource=False)
        state = tf1.scan(lambda s, row: tf.tanh(tf.matmul(row, w) + s), tf.transpose(x, [1, 0, 2]), tf.zeros([2, 4]))
    with on("/cpu:2"):
        loss = tf.reduce_sum(state)
    train = tf1.train.GradientDescentOptimizer(0.1).minimize(loss)
    return [([w.initializer], [train])]


@case(soft=False)
def defun_calls():
    """A TF1 function is an operation of its own name, without a kernel of any device."""
    @function.Defun(tf.float32, tf.float32)
    def product(a, b):
        return a * b

    with on("/cpu:2"):
        x = tf1.placeholder_with_default(2.0, [], "x")
        y = product(x, x, name="y")
    z = product(y, x, name="z")
    return [([], [z])]


@case(soft=False)
def partitioned_calls():
    """Devices inside a body, and of the call."""
    @tf.function(autograph=False)
    def inner(a):
        with on("/cpu:3"):
            return tf.tanh(a) + 1.0

    with on("/cpu:1"):
        x = tf1.placeholder_with_default(2.0, [], "x")
    with on("/cpu:2"):
        y = inner(x)
    z = inner(y)
    return [([], [z])]


@case(soft=False)
def partitioned_calls_with_variables():
    """Resources go into a call from another device: the call is not tied to them."""
    with on("/cpu:1"):
        v = variable("v", resource=True)

    @tf.function(autograph=False)
    def change(a):
        with tf1.control_dependencies([v.assign_add(a)]):
            return v.read_value()

    with on("/cpu:2"):
        y = change(tf.ones([2, 2]))
        z = y * 2.0
    return [([v.initializer], [z])]


@case(soft=False)
def case_of_three():
    with on("/cpu:1"):
        i = tf1.placeholder_with_default(1, [], "i")
    with on("/cpu:2"):
        y = tf.switch_case(i, [lambda: tf.constant(1.0), lambda: tf.constant(2.0), lambda: tf.constant(3.0)])
    z = y + 1.0
    return [([], [z])]


@case(soft=False)
def functional_without_lowering():
    """If and While as they are: nodes like any other."""
    @function.Defun(tf.float32)
    def double(a):
        return a * 2.0

    @function.Defun(tf.float32)
    def small(a):
        return a < 10.0

    with on("/cpu:2"):
        x = tf1.placeholder_with_default(2.0, [], "x")
    with on("/cpu:1"):
        y = tf.raw_ops.While(input=[x], cond=small, body=double, name="y")[0]
    z = tf.raw_ops.If(cond=True, input=[y], Tout=[tf.float32], then_branch=double, else_branch=double, name="z")[0]
    with on("/cpu:3"):
        w = tf.raw_ops.StatelessIf(cond=True, input=[z], Tout=[tf.float32], then_branch=double, else_branch=double, name="w")[0]
    return [([], [w])]
