"""Programs of functions as TensorFlow 1 defines them (Defun): what they change, and SymbolicGradient, which is their gradient."""
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.framework.function import Defun
from tensorflow.python.ops import functional_ops

from .common import *
from .named import program


def defun(*types, **options):
    """A function under its own name, which is the same each time."""
    return lambda body: Defun(*types, func_name=body.__name__, **options)(body)


def gradient_of(name, inputs, types, **attrs):
    """SymbolicGradient of a function, or of an operation with type attributes."""
    func = attr_value_pb2.NameAttrList(name=name)
    for attr, dtype in attrs.items():
        func.attr[attr].type = dtype.as_datatype_enum
    return functional_ops.symbolic_gradient(input=inputs, Tout=types, f=func)


@program(frames=True)
def defun_of_several_results(x, u, n, k, p):
    @defun(tf.float32, tf.float32, tf.int32, tf.float32)
    def several(x, u, n, unread):
        y = tf.tanh(tf.matmul(x, tf.reshape(u, [3, 1])))
        return y * tf.cast(n, tf.float32), n + 1, x / (u * u + 1.0)
    y, m, z = several(x, u, n, u)
    return [tf.reduce_sum(y) * z, m, *tf1.gradients([y, z], [u, n], [y, z])]


@program(frames=True)
def defun_that_calls_twice(x, u, n, k, p):
    @defun(tf.float32, tf.float32)
    def inner(x, u):
        return tf.sigmoid(x * u), tf.reduce_sum(x)

    @defun(tf.float32, tf.float32)
    def outer(x, u):
        y, total = inner(x, u)
        z, _ = inner(y, u * total)
        return z + y
    return [outer(x, u), *tf1.gradients(outer(x, u), [u])]


# TensorFlow's runtime lets gradients through integers, which its front end does not.


@program(frames=True)
def defun_of_integers(x, u, n, k, p):
    @defun(tf.float32, tf.int32)
    def scaled(u, n):
        return u * tf.cast(n * n, tf.float32) + tf.cast(tf.cast(u, tf.int32), tf.float32) * u
    return [x * scaled(u, n), *tf1.gradients(scaled(u, n), [u, n])]


@program(frames=True)
def defun_whose_gradient_is_given(x, u, n, k, p):
    @defun(tf.float32, tf.float32)
    def ten_times(x, dy):
        return 10.0 * dy * x

    @defun(tf.float32, grad_func=ten_times)
    def square(x):
        return x * x

    @defun(tf.float32)
    def around(x):
        return tf.tanh(square(x)) * x
    return [square(x) * u, around(u), *tf1.gradients(around(u), [u])]


@program(frames=True)
def gradient_of_an_operation(x, u, n, k, p):
    return [x * u, *gradient_of("Mul", [u, u * 2.0, u], [tf.float32] * 2, T=tf.float32)]


@program(frames=True)
def defun_that_changes_a_variable(x, u, n, k, p):
    @defun(tf.float32)
    def counts(x):
        v.assign_add([1.0, 2.0, 3.0])
        return x * x
    v = variable("v", [0.0, 0.0, 0.0])
    return [counts(x) * u]


@program(frames=True)
def defun_that_changes_a_variable_where_it_says_so(x, u, n, k, p):
    @defun(tf.float32, tf.bool)
    def counts(x, p):
        tf1.cond(p, lambda: v.assign_add([1.0, 2.0, 3.0], read_value=False), lambda: v.assign_sub([1.0, 1.0, 1.0], read_value=False))
        return x * x
    v = variable("v", [0.0, 0.0, 0.0])
    made = counts(x, p)
    return [made * u, tf1.cond(p, lambda: counts(x, p), lambda: x)]


@program(frames=True)
def defun_of_a_variable(x, u, n, k, p):
    @defun(tf.float32)
    def weighted(x):
        return tf.tanh(x * v) * x

    @defun(tf.float32)
    def around(x):
        return weighted(x) + x
    v = variable("v", [0.5, -1.0, 0.25])
    made = around(x)
    return [made, *tf1.gradients(made, [v])]


@program(cpus=2, frames=True)
def defun_on_another_device(x, u, n, k, p):
    @defun(tf.float32, tf.float32)
    def there(x, u):
        with tf1.device("/cpu:0"):
            y = x * u
        return tf.tanh(y) * x
    with tf1.device("/cpu:1"):
        made = there(x, u)
    return [made, *tf1.gradients(made, [u], colocate_gradients_with_ops=True)]


@program(frames=True)
def defun_in_a_loop(x, u, n, k, p):
    @defun(tf.float32, tf.float32)
    def step(y, u):
        return tf.tanh(y * u) + y * 0.5
    return [tf1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, set_shape(step(y, u), [2, 3])), [tf.constant(0), x])[1]]


@program(frames=True)
def defun_on_a_side_of_a_condition(x, u, n, k, p):
    @defun(tf.float32)
    def side(x):
        return tf.sigmoid(x) * x
    return [tf1.cond(p, lambda: set_shape(side(x), [2, 3]), lambda: x * u)]


# What TensorFlow refuses, it refuses when it runs.


@program(frames=True, differentiates=False)
def gradient_of_no_function(x, u, n, k, p):
    gradient_of("nowhere", [u, u], [tf.float32])
    return [x]


@program(frames=True, differentiates=False)
def gradient_of_no_function_that_runs(x, u, n, k, p):
    return gradient_of("nowhere", [u, u], [tf.float32])


@program(frames=True, differentiates=False)
def gradient_of_a_gradient(x, u, n, k, p):
    return gradient_of("SymbolicGradient", [u, u], [tf.float32])


@program(frames=True, differentiates=False)
def gradient_of_too_many_arguments(x, u, n, k, p):
    @defun(tf.float32)
    def square(x):
        return x * x
    return [square(u), *gradient_of("square", [u, u, u], [tf.float32] * 2)]


@program(frames=True, differentiates=False)
def gradient_of_too_few_results(x, u, n, k, p):
    @defun(tf.float32, tf.float32)
    def product(x, y):
        return x * y
    return [product(u, u), *gradient_of("product", [u, u, u], [tf.float32])]


@program(frames=True, differentiates=False)
def gradient_of_other_types(x, u, n, k, p):
    @defun(tf.float32)
    def square(x):
        return x * x
    return [square(u), *gradient_of("square", [tf.cast(u, tf.float64), u], [tf.float32])]


def set_shape(tensor, shape):
    tensor.set_shape(shape)
    return tensor
