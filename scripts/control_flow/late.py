"""Sizes that a run makes itself, and conditions whose sides have different sizes."""
import numpy as np
import tensorflow as tf

from .common import *

SIX = np.array([1.5, -2.0, 0.25, 3.0, 0.5, -1.0], np.float32)
THREE = np.array([1, 2, 3, -1, -1, -0.5], np.float32)
SIGNS = [SIX, -SIX, np.abs(SIX), -np.abs(SIX)]


def count(x, name=None):
    """How many elements are positive."""
    return tf.reduce_sum(tf.cast(x > 0.0, tf.int32), name=name)


@case(each(["y:0", "z:0", "n:0"], *[{"x:0": x} for x in SIGNS]))
def late_fill():
    """Fill, and arithmetic with its result; the size is fetched, too"""
    v2()
    x = floats(shape=[6])
    n = count(x, "n")
    y = tf.fill([n, 2], tf.reduce_sum(x), name="y")
    tf.reduce_sum(tf.exp(y) + 1.0, axis=0, name="z")
    return False


@case(each(["y:0", "z:0"], *[{"x:0": x} for x in SIGNS]))
def late_range_slice():
    """Range, Slice and StridedSlice by what is computed"""
    v2()
    x = floats(shape=[6])
    n = count(x)
    tf.identity(tf.cast(tf.range(n), tf.float32) * tf.reduce_max(x), name="y")
    tf.add(tf.slice(x * 2.0, [6 - n], [n]), x[:n], name="z")
    return False


@case(each(["y:0"], {"x:0": np.abs(SIX)}, {"x:0": THREE}, {"x:0": np.array([1, 2, -3, -4, -5, -6], np.float32)})
      + [({"x:0": SIX}, [], ["y"], "INVALID_ARGUMENT")] + each(["y:0"], {"x:0": THREE}))
def late_reshape():
    """Reshape to as many rows as elements are positive; where they do not divide them the step fails"""
    v2()
    x = floats(shape=[6])
    tf.transpose(tf.reshape(tf.square(x), [count(x), -1]), name="y")
    return False


@case(each(["y:0"], *[{"x:0": x} for x in SIGNS]))
def late_twice():
    """a size that depends on a tensor whose size is late itself"""
    v2()
    x = floats(shape=[6])
    first = tf.range(count(x))
    second = tf.fill([tf.reduce_sum(first) + 1], 0.5)
    tf.add(tf.reduce_sum(second), tf.cast(first, tf.float32), name="y")
    return False


@case(each(["y:0"], {"x:0": SIX}, {"x:0": -SIX}) + read("v:0", "w:0") + each(["y:0"], {"x:0": np.abs(SIX)}) + read("v:0", "w:0"))
def late_effects():
    """assignments before and after the size is known, each once and in order"""
    v1()
    x = floats(shape=[6])
    v, w = variable("vv", 0.0), variable("ww", [0.0, 0.0])
    with tf1.control_dependencies([v.assign_add(1.0)]):
        before = v.read_value()
        n = count(x) + tf.cast(before, tf.int32)
    rows = tf.fill([n, 2], before)
    with tf1.control_dependencies([w.assign_add(tf.reduce_sum(rows, axis=0))]):
        after = w.read_value()
        with tf1.control_dependencies([v.assign(v * 2.0)]):
            tf.concat([tf.reshape(rows, [-1]), after, [v.read_value()]], 0, name="y")
    tf.identity(v.read_value(), "v")
    tf.identity(w.read_value(), "w")
    return init()


@case(do({"x:0": SIX}, "end") + read("v:0", "w:0") + [({"x:0": -SIX}, ["n:0"], ["end"])] + read("v:0", "w:0"))
def late_targets():
    """targets of both stages, a reference variable, a fetch of the first stage only"""
    v1()
    x = floats(shape=[6])
    v, w = variable("vv", 0.0, ref=True), variable("ww", 0.0, ref=True)
    with tf1.control_dependencies([tf1.assign_add(v, tf.reduce_max(x), name="start")]):
        n = count(x, "n")
    rows = tf.fill([n], 2.0)
    with tf1.control_dependencies([tf1.assign_sub(w, tf.reduce_sum(rows))]):
        tf.group(tf1.assign_add(v, 10.0), name="end")
    tf.identity(v, "v")
    tf.identity(w, "w")
    return init()


@case(each(["y:0"], {"x:0": np.abs(SIX)}) + read("v:0") + [({"x:0": SIX}, [], ["y"], "INVALID_ARGUMENT")]
      + read("v:0") + each(["y:0"], {"x:0": THREE}) + read("v:0"))
def late_fails():
    """the second stage fails: what was assigned before it stays, nothing is assigned behind it"""
    v1()
    x = floats(shape=[6])
    v = variable("vv", [0.0, 0.0])
    with tf1.control_dependencies([v.assign_add([1.0, 0.0])]):
        n = count(x)
    rows = tf.reshape(x, [n, -1])
    with tf1.control_dependencies([rows]):
        with tf1.control_dependencies([v.assign_add([0.0, 1.0])]):
            tf.reduce_sum(rows, axis=1, name="y")
    tf.identity(v.read_value(), "v")
    return init()


@case(each(["y:0", "z:0"], *[{"x:0": np.float32(x)} for x in (0.2, 0.9, 0.5, 0.7, 0.1)]))
def late_random():
    """numbers that are drawn before and after a size is known, each once"""
    v1()
    x = floats(shape=[])
    drawn = tf1.random_uniform([8], seed=3)
    n = tf.reduce_sum(tf.cast(drawn < x, tf.int32))
    tf.add(tf.reduce_sum(tf.fill([n], 1.0)), drawn, name="y")
    with tf1.control_dependencies([drawn]):
        tf.add(tf1.random_uniform([4], seed=5), tf.cast(tf.shape(tf.range(n)), tf.float32), name="z")
    return False


def worlds(*names, **more):
    """A feed for every value of these predicates."""
    feeds = [{}]
    for name in names:
        feeds = [{**feed, f"{name}:0": np.bool_(value)} for feed in feeds for value in (False, True)]
    return [{**feed, **{f"{name}:0": value for name, value in more.items()}} for feed in feeds]


@case(each(["y:0", "z:0"], *worlds("p", "q", x=X)))
def late_nested():
    """a condition inside a condition, three sizes"""
    v2()
    p, q, x = predicate(), predicate("q"), floats()
    y = tf1.cond(p, lambda: tf1.cond(q, lambda: x[:1] * 2.0, lambda: tf.exp(x)), lambda: tf.concat([x, x, x], 0))
    tf.identity(y, "y")
    tf.reduce_sum(y, axis=1, name="z")
    return False


@case(each(["y:0", "z:0"], *worlds("p", "q", x=X)))
def late_both():
    """a condition inside both sides, four sizes; one that is not computed from the feeds beside it"""
    v2()
    p, q, x = predicate(), predicate("q"), floats()
    inner = lambda on, off: lambda: tf1.cond(q, lambda: tf.tile(x, [on, 1]), lambda: tf.tile(-x, [off, 1]))
    y = tf1.cond(p, inner(1, 2), inner(3, 4))
    tf.identity(y, "y")
    tf.add(tf.reduce_max(y), tf1.cond(q, lambda: x[:, 1:], lambda: x[:, :1]), name="z")
    return False


@case(each(["y:0", "s:0"], *worlds("p", x=SIX), *worlds("p", x=-SIX)))
def late_inside():
    """a late size inside one side"""
    v2()
    p, x = predicate(), floats(shape=[6])
    y = tf1.cond(p, lambda: tf.fill([count(x)], 3.0), lambda: x * 2.0)
    tf.identity(y, "y")
    tf.reduce_sum(y, name="s")
    return False


@case(each(["y:0"], *worlds("p", x=X)) + read("v:0") + each(["y:0"], *worlds("p", x=-X)) + read("v:0"))
def late_assigns():
    """both sides assign, and give different sizes; after them everything is assigned once more"""
    v2()
    p, x = predicate(), floats()
    v = variable("vv", 1.0)

    def side(by, rows):
        def make():
            with tf.control_dependencies([v.assign_add(by)]):
                return tf.tile(x, [rows, 1]) * v.read_value()
        return make
    y = tf1.cond(p, side(1.0, 2), side(10.0, 1))
    with tf.control_dependencies([v.assign(v.read_value() * tf.reduce_sum(tf.ones_like(y)))]):
        tf.reduce_sum(y, axis=1, name="y")
    tf.identity(v.read_value(), "v")
    return init()


@case(each(["y:0", "m:0"], *[{"i:0": np.int32(i), "x:0": X} for i in (0, 1, 2, 3, -1)]))
def late_case():
    """Case of four branches, each of another size; the branch is computed"""
    v2()
    index, x = tf1.placeholder(tf.int32, [], name="i"), floats()
    y = tf.switch_case(index + 0 * tf.cast(tf.reduce_sum(x), tf.int32), [lambda rows=rows: tf.tile(x, [rows, 1]) + rows for rows in (1, 2, 3, 4)])
    tf.identity(y, "y")
    tf.reduce_mean(y, name="m")
    return False


@case(each(["y:0", "g:0"], *worlds("p", x=X)))
def late_switch():
    """TensorFlow 1's condition by a computed predicate, sides of different sizes"""
    v1()
    p, x = predicate(), floats()
    y = tf1.cond(tf.logical_not(p), lambda: tf.matmul(x, x, transpose_b=True), lambda: tf.reduce_sum(x, axis=0, keepdims=True))
    tf.tanh(y, name="y")
    tf.reduce_sum(y, axis=0, name="g")
    return False


@case(each(["y:0", "z:0"], {"x:0": SIX}, {"x:0": -np.abs(SIX)}))
def late_loop():
    """a loop counts how many rows there are; behind it are read what stays in the loop, which is known, and what changes"""
    v1()
    x = floats(shape=[6])
    n = count(x)
    rows, stays, changes = tf1.while_loop(lambda i, *_: i < n, lambda i, a, b: (i + 1, a, tf.tanh(b) + a), [0, tf.constant(2.0), x])
    tf.fill([rows], stays * 0.5, name="y")
    tf.add(changes, stays, name="z")
    return False
