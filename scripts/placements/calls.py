"""Calls and conditions: where the nodes around them are, and those of their bodies. Nodes of bodies have names that nothing else has."""
import tensorflow as tf
from tensorflow.python.framework import function

from .common import case, on, set_class, tf1, variable
from .flow import flow


def value(name, at=2.0):
    return tf1.placeholder_with_default(at, [], name)


@flow(versions=(2,))
def cond_reads_what_asks_for_nothing():
    """A Const and a Placeholder that only a condition reads stay where they would be without it."""
    p, k, x = tf1.placeholder_with_default(True, [], "p"), tf.constant(3.0, name="k"), value("x")
    with on("/cpu:1"):
        y = tf1.cond(p, lambda: tf.add(k, x, "f_add"), lambda: tf.multiply(k, x, "f_mul"), name="c")
    return [([], [y])]


@flow(versions=(2,))
def cond_reads_what_asks():
    p = tf1.placeholder_with_default(True, [], "p")
    with on("/cpu:2"):
        k, x = tf.constant(3.0, name="k"), value("x")
    with on("/cpu:1"):
        y = tf1.cond(p, lambda: tf.add(k, 1.0, "f_add"), lambda: tf.multiply(x, 2.0, "f_mul"), name="c")
    return [([], [y])]


@flow(versions=(2,))
def cond_with_partial_requests():
    """What a node of a branch leaves open, the condition fills in."""
    p, x = tf1.placeholder_with_default(True, [], "p"), value("x")

    def yes():
        with on("/job:localhost"):
            a = tf.tanh(x, "f_job")
        with on("/device:CPU:*"):
            b = tf.tanh(a, "f_any")
        with on("/task:0/device:CPU:3"):
            return tf.tanh(b, "f_own")

    with on("/cpu:2"):
        y = tf1.cond(p, yes, lambda: tf.negative(x, "f_neg"), name="c")
    return [([], [y])]


@flow(versions=(2,))
def cond_with_labels():
    """A label in a branch may be a node of it, or one around the condition."""
    p, x = tf1.placeholder_with_default(True, [], "p"), value("x")
    with on("/cpu:3"):
        a = value("a")

    def yes():
        with on("/cpu:2"):
            b = tf.tanh(x, "f_b")
        return set_class(tf.tanh(b, "f_c"), "loc:@f_b")

    y = tf1.cond(p, yes, lambda: set_class(tf.negative(x, "f_d"), "loc:@a"), name="c")
    return [([], [y, a])]


@flow(versions=(2,), soft=True)
def cond_with_labels_and_requests():
    p, x = tf1.placeholder_with_default(True, [], "p"), value("x")
    with on("/cpu:3"):
        a = value("a")
    with on("/cpu:1"):
        y = tf1.cond(p, lambda: set_class(tf.tanh(x, "f_b"), "loc:@a"), lambda: tf.negative(x, "f_c"), name="c")
    return [([], [y, a])]


@flow(versions=(2,))
def cond_reads_a_variable_that_is_written_elsewhere():
    v = variable("v", resource=True)
    p = tf1.placeholder_with_default(True, [], "p")
    with on("/cpu:1"):
        y = tf1.cond(p, lambda: tf.negative(v.read_value(), "f_neg"), lambda: tf.zeros([2, 2]), name="c")
    with on("/cpu:2"):
        u = v.assign(tf.ones([2, 2]))
    return [([u], [y])]


@flow(versions=(2,))
def cond_in_a_call_in_a_cond():
    p, x = tf1.placeholder_with_default(True, [], "p"), value("x")

    @tf.function(autograph=False)
    def inner(z):
        with on("/cpu:3"):
            a = tf.tanh(z, "f_a")
        b = tf1.cond(a > 0.0, lambda: tf.tanh(a, "f_b"), lambda: tf.negative(z, "f_c"), name="f_if")
        return tf.tanh(b, "f_d")

    with on("/cpu:1"):
        y = tf1.cond(p, lambda: inner(x), lambda: x * 2.0, name="c")
    return [([], [y])]


@case(soft=False)
def call_with_partial_requests():
    """What a node of a body leaves open is as on the device of the call."""
    @tf.function(autograph=False)
    def inner(z):
        with on("/job:localhost"):
            a = tf.tanh(z, "f_job")
        with on("/device:CPU:*"):
            b = tf.tanh(a, "f_any")
        with on("/task:0"):
            c = tf.tanh(b, "f_task")
        with on("/replica:0/device:CPU:3"):
            d = tf.tanh(c, "f_own")
        return tf.tanh(d, "f_free")

    x = value("x")
    with on("/cpu:2"):
        y = inner(x)
    return [([], [y])]


@case(soft=False)
def call_with_labels():
    """A label that is no node of the body is a group of the body's nodes, whatever the graph around has."""
    with on("/cpu:3"):
        a = value("a")
        v = variable("v", resource=True, shape=())

    @tf.function(autograph=False)
    def inner(z):
        with on("/cpu:1"):
            b = set_class(tf.tanh(z, "f_b"), "loc:@a")
        c = set_class(tf.tanh(b, "f_c"), "loc:@f_b")
        return set_class(tf.tanh(c, "f_d"), "loc:@v")

    with on("/cpu:2"):
        y = inner(value("x"))
    return [([v.initializer], [y, a])]


@case(soft=False)
def call_reads_a_variable_that_is_written_elsewhere():
    v = variable("v", resource=True)

    @tf.function(autograph=False)
    def inner(z):
        with on("/cpu:1"):
            a = tf.add(v.read_value(), z, "f_add")
        return tf.tanh(a, "f_tanh")

    with on("/cpu:1"):
        y = inner(value("x"))
    with on("/cpu:2"):
        u = v.assign(tf.ones([2, 2]))
    return [([u], [y])]


@case(soft=False)
def call_in_a_call_with_variables():
    with on("/cpu:3"):
        v = variable("v", resource=True)

    @tf.function(autograph=False)
    def inner(z):
        with tf1.control_dependencies([v.assign_add(z)]):
            return tf.negative(v.read_value(), "f_neg")

    @tf.function(autograph=False)
    def outer(z):
        # The logs of all bodies are one: the calls need different names.
        with on("/cpu:1"), tf1.name_scope("g_scope"):
            a = inner(z)
        return tf.tanh(a, "f_tanh")

    with on("/cpu:2"):
        y = outer(tf.ones([2, 2]))
    return [([v.initializer], [y])]


@case(soft=False)
def call_that_waits():
    """Only the call waits: what it waits for is where the call is, and the body is where it would be."""
    k = tf.constant(3.0, name="k")

    @tf.function(autograph=False)
    def inner(z):
        with on("/cpu:3"):
            a = tf.tanh(z, "f_a")
            b = tf.constant(5.0, name="f_b")
        return tf.add(a, b, "f_add")

    with on("/cpu:1"), tf1.control_dependencies([k.op]):
        y = inner(value("x"))
    return [([], [y])]


@case(soft=False)
def legacy_calls():
    """A function that is called by its name is on one device, whatever its nodes ask for."""
    @function.Defun(tf.float32)
    def inner(z):
        with on("/cpu:3"):
            return tf.tanh(z, "f_tanh")

    @function.Defun(tf.float32)
    def outer(z):
        with on("/cpu:2"):
            a = tf.negative(z, "g_neg")
        return tf.add(a, a, "g_add")

    x = value("x")
    with on("/cpu:1"):
        y = inner(x, name="y")
    z = outer(y, name="z")
    return [([], [z])]


@case(soft=False)
def legacy_call_in_a_legacy_call():
    @function.Defun(tf.float32)
    def inner(z):
        with on("/cpu:3"):
            return tf.tanh(z, "f_tanh")

    @function.Defun(tf.float32)
    def outer(z):
        with on("/cpu:2"):
            a = inner(z, name="g_call")
        return tf.negative(a, "g_neg")

    with on("/cpu:1"):
        y = outer(value("x"), name="y")
    return [([], [y])]


@case(soft=False)
def call_of_what_nothing_asks_for():
    @tf.function(autograph=False)
    def inner(z):
        a = tf.tanh(z, "f_a")
        b = tf.shape(a, name="f_shape")
        return tf.cast(tf.reduce_sum(b), tf.float32, "f_cast")

    with on("/cpu:2"):
        x = value("x")
    return [([], [tf.negative(inner(x), "z")])]


@case(soft=False)
def call_that_looks_at_the_shape_of_its_argument():
    """An argument is where the call is, and so is what only looks at its shape."""
    with on("/cpu:1"):
        x = value("x")

    @tf.function(autograph=False)
    def inner(z):
        return tf.cast(tf.raw_ops.Rank(input=z, name="f_rank"), tf.float32, "f_cast")

    with on("/cpu:2"):
        y = inner(x)
    return [([], [tf.negative(y, "y")])]


@flow(versions=(2,), soft=True)
def cond_reads_what_others_pull_elsewhere():
    """A condition's input asks for its device once more, after nodes that want it elsewhere."""
    p = tf1.placeholder_with_default(True, [], "p")
    with on("/cpu:3"):
        x = value("x")
    with on("/cpu:1"):
        a = set_class(tf.tanh(x, "a"), "loc:@x")
    y = tf1.cond(p, lambda: tf.tanh(x, "f_tanh"), lambda: tf.negative(x, "f_neg"), name="c")
    return [([], [y, a])]
