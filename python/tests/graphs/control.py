"""Conditions and loops."""

import plimsoll.compat.v1 as tf


def build():
    x = tf.placeholder(tf.float32, [2], name="x")
    p = tf.placeholder(tf.bool, [], name="p")
    v = tf.get_variable("v", [2])
    with tf.device("/cpu:0"):
        y = tf.cond(p, lambda: (x * v + 1.0, tf.constant([1, 2])), lambda: (v - x, tf.constant([3, 4])), name="choice")
    with tf.control_dependencies([y[0]]):
        tf.cond(tf.less(tf.reduce_sum(x), 3.0), lambda: tf.assign_add(v, x), lambda: tf.identity(v), name="change")
    tf.while_loop(lambda i, s: i < 10, lambda i, s: [i + 1, s + x * 2.0], [tf.constant(0), tf.zeros([2])], name="loop")

    def inner(i, a):
        return i + 1, tf.cond(tf.equal(i, 1), lambda: a * 10.0, lambda: a + x, name="inside")

    tf.while_loop(lambda i, a: tf.less(i, 3), inner, (0, y[0]), name="outer", parallel_iterations=3)
