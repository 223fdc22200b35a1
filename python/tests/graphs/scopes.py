"""Names, devices, control dependencies and colocation."""

import plimsoll.compat.v1 as tf


def choose(op):
    return "/gpu:1" if op.type == "MatMul" else "/cpu:0"


def build():
    a = tf.constant([[1.0, 2.0], [3.0, 4.0]], name="a")
    b = tf.constant(3)
    with tf.name_scope("outer") as scope:
        c = tf.add(a, a)
        with tf.name_scope("inner"):
            d = a * 2.0 + 1.0
        with tf.name_scope("inner"):
            e = 1.0 - d
        with tf.name_scope(scope):
            f = tf.identity(e, name="f")
        with tf.name_scope(None):
            tf.identity(f, name="at_the_root")
    with tf.device("/job:worker/task:1"):
        with tf.device("/gpu:0"):
            g = tf.matmul(c, d)
            with tf.device(None):
                tf.matmul(g, g)
        with tf.device("/cpu:*"):
            h = tf.square(g)
    with tf.device(choose):
        i = tf.matmul(h, h)
        j = tf.square(i)
        with tf.device("/task:2"):
            tf.matmul(j, j)
            tf.square(j)
    with tf.device("/gpu:3"), tf.device(lambda op: ""):
        tf.square(j)
    with tf.device(tf.DeviceSpec(device_type="GPU", device_index=2)):
        tf.square(j)
    with tf.control_dependencies([i, j.op]):
        k = tf.identity(b)
        tf.add(k, 1)
        with tf.control_dependencies([h]):
            tf.no_op()
            tf.square(k)
            with tf.control_dependencies(None):
                tf.square(b)
    with tf.colocate_with(g):
        tf.square(g)
    with tf.device("/cpu:0"):
        first = tf.no_op(name="first")
    with tf.device("/gpu:0"):
        second = tf.no_op(name="second")
    tf.group(first, second)
    tf.group(first, name="alone")
    tf.tuple([a, c])
