"""Programs as programs.py makes them, each for one thing that programs made at random have seldom."""
import tensorflow as tf

from .common import *

NAMED = []


def program(cpus=1, frames=False, differentiates=True):
    """Makes a program of a function from the inputs to what is fetched; first of all `y`, whose gradient in `x` is fetched, too."""
    def wrap(case):
        NAMED.append(Named(case, cpus, frames, differentiates))
        return case
    return wrap


class Named:
    def __init__(self, case, cpus, frames, differentiates):
        self.number, self.name, self.cpus, self.frames = 1, case.__name__ + ("_frames" if frames else ""), cpus, frames
        self.case, self.differentiates, self.variables = case, differentiates, []

    def build(self):
        v1() if self.frames else v2()
        self.inputs = [floats(), floats("u", [3]), tf1.placeholder(tf.int32, [], "n"), tf1.placeholder(tf.int64, [2], "k"), predicate()]
        made = list(self.case(*self.inputs))
        if self.differentiates:
            made += [tf.convert_to_tensor(tensor) for tensor in tf1.gradients(tf.reduce_sum(made[0]), [self.inputs[0]])]
        self.fetches = sorted(tf.identity(tensor, f"out{index}").name for index, tensor in enumerate(made))
        tf.no_op(name="end")
        self.variables = tf1.global_variables()
        if self.variables:
            init()
        for at, each in enumerate(self.variables):
            tf.identity(each.read_value(), name=f"now{at}")
        return bool(self.variables)


def inner(times, x):
    return tf1.while_loop(lambda j, _: j < times, lambda j, z: (j + 1, tf.tanh(z)), [tf.constant(0), x])[1]


def outer(times, body, x):
    return tf1.while_loop(lambda i, _: i < times, lambda i, y: (i + 1, body(i, y)), [tf.constant(0), x])[1]


# How often an inner loop runs, each iteration of the outer one says anew.


@program(frames=True)
@program()
def inner_loop_counts_to_outer(x, u, n, k, p):
    return [outer(n, lambda i, y: inner(i + 1, y), x)]


@program(frames=True)
@program()
def inner_loop_counts_to_a_value(x, u, n, k, p):
    def body(i, count, y):
        return i + 1, tf.math.floormod(count * 3 + 1, 5), inner(count, y)
    return [tf1.while_loop(lambda i, *_: i < 4, body, [tf.constant(0), n, x])[2]]


@program(frames=True)
def inner_loop_ends_at_a_value(x, u, n, k, p):
    def until(i, y):
        return tf1.while_loop(lambda z: tf.reduce_sum(z * z) > 0.5, lambda z: z * 0.7, [y]) + 0.3
    return [outer(n, until, x)]


@program(cpus=2, frames=True)
def inner_loop_on_two_devices(x, u, n, k, p):
    def body(i, y):
        with tf1.device("/cpu:1"):
            return inner(i + 1, y) * 0.9
    return [outer(n, body, x)]


@program(frames=True)
def array_that_grows_to_a_fed_size(x, u, n, k, p):
    array = tf1.TensorArray(tf.float32, 0, dynamic_size=True, clear_after_read=False, element_shape=[2, 3])
    array = tf1.while_loop(lambda i, _: i < n + 1, lambda i, array: (i + 1, array.write(i, x * tf.cast(i, tf.float32))), [tf.constant(0), array])[1]
    return [outer(n + 1, lambda i, y: tf.tanh(y + array.read(i)), x)]


# What a run does not have, and what it feeds, move no control flow.


@program(cpus=2, frames=True, differentiates=False)
def enter_of_two_devices_of_which_one_runs(x, u, n, k, p):
    def body(i, y):
        with tf1.device("/cpu:1"):
            tf.identity(u * 2.0, "unread")
        return i + 1, tf.tanh(y + u[0])
    with tf1.device("/cpu:0"):
        return [tf1.while_loop(lambda i, _: i < n, body, [tf.constant(0), x])[1]]


@program(cpus=2, frames=True, differentiates=False)
def switch_of_what_is_fed(x, u, n, k, p):
    with tf1.device("/cpu:1"):
        return [tf1.cond(p, lambda: u * 2.0, lambda: u * 3.0)]


@program(cpus=2, differentiates=False)
def call_of_what_its_body_does_not_read(x, u, n, k, p):
    with tf1.device("/cpu:1"):
        called = tf.function(lambda u, x: [u * 2.0, tf.zeros([2])], autograph=False)
        return list(called(u, x))


# Optionals of lists: what a gradient reads of a side of a condition that may not have run.


@program()
def loop_on_one_side_of_a_condition_in_a_loop(x, u, n, k, p):
    def body(i, y):
        return tf1.cond(tf.equal(i % 2, 0), lambda: inner(3, y) * 0.9, lambda: y + u)
    return [tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, body(i, y)), [tf.constant(0), x], maximum_iterations=6)[1]]


def present(value):
    return tf.raw_ops.OptionalFromValue(components=[value])


def value_of(optional, data_type, shape):
    return tf.raw_ops.OptionalGetValue(optional=optional, output_types=[data_type], output_shapes=[shape])[0]


@program(differentiates=False)
def optional_that_may_have_a_list(x, u, n, k, p):
    rows = lambda: tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=[3])
    optional = tf1.cond(tf.logical_not(p), lambda: present(rows()), tf.raw_ops.OptionalNone)
    rows = value_of(optional, tf.variant, [])
    return [tf.raw_ops.TensorListStack(input_handle=rows, element_shape=[3], element_dtype=tf.float32, num_elements=2)]


@program(differentiates=False)
def optional_that_may_have_a_tensor(x, u, n, k, p):
    optional = tf1.cond(tf.logical_not(p), lambda: present(x), tf.raw_ops.OptionalNone)
    return [value_of(optional, tf.float32, [2, 3]) * 2.0]
