"""What is refused."""
import numpy as np
import tensorflow as tf
from tensorflow.python.ops import gen_control_flow_ops as gen

from .common import *


def retval(index=0):
    return f"Retval[{index}] does not have value"


@refusal("INVALID_ARGUMENT", retval(), {"p": True}, ["s:0"])
def switch_output():
    gen.switch(tf.constant([1.0, 2.0]), predicate(), name="s")


@refusal("INVALID_ARGUMENT", retval(1), {"p": True}, ["alive:0", "dead:0"])
def behind_a_switch():
    f, t = gen.switch(tf.constant([1.0, 2.0]), predicate())
    tf.identity(t * 2.0, name="alive")
    tf.identity(tf.exp(f) + 1.0, name="dead")


@refusal("INVALID_ARGUMENT", retval(), {"p": False}, ["c:0"])
def constant_behind_a_dead_control_edge():
    _, t = gen.switch(tf.constant(1.0), predicate())
    with tf.control_dependencies([tf.identity(t)]):
        tf.constant(4.0, name="c")


@refusal("INVALID_ARGUMENT", retval(), {"p": False, "q": True}, ["m:0"])
def merge_of_dead():
    _, t = gen.switch(tf.constant(1.0), predicate())
    a, b = gen.switch(t, predicate("q"))
    gen.merge([a, b], name="m")


@refusal("INVALID_ARGUMENT", retval(), {"p": False}, ["v_new:0"], init=["init"])
def assignment_not_made():
    v = variable("v", 1.0, ref=True)
    _, t = gen.switch(tf.constant(5.0), predicate())
    tf.identity(tf1.assign(v, t), name="v_new")
    init()


@refusal("FAILED_PRECONDITION", "Attempting to use uninitialized value", {"p": True}, ["y:0"])
def uninitialised_ref_in_the_branch_taken():
    v1()
    w = variable("w", [4.0, 5.0], ref=True)
    tf.identity(tf1.cond(predicate(), lambda: w.read_value() * 2.0, lambda: tf.constant([1.0, 1.0])), "y")


@refusal("FAILED_PRECONDITION", "Could not find variable", {"p": True}, ["y:0"])
def uninitialised_resource_in_the_branch_taken():
    v2()
    w = variable("w", [4.0, 5.0])
    tf.identity(tf1.cond(predicate(), lambda: w.read_value() * 2.0, lambda: tf.constant([1.0, 1.0])), "y")


@refusal("INVALID_ARGUMENT", "must be", {"v": [True, False]}, ["m:0"])
def predicate_that_is_no_scalar():
    f, t = gen.switch(tf.constant(1.0), tf1.placeholder(tf.bool, None, "v"))
    gen.merge([f, t], name="m")


@refusal("INVALID_ARGUMENT", "assertion failed", {"p": True, "x": [1.0, -1.0]}, ["y:0"])
def assertion_in_the_branch_taken():
    v1()
    x = floats(shape=[2])

    def checked():
        with tf.control_dependencies([tf1.assert_positive(x)]):
            return tf.identity(x)
    tf.identity(tf1.cond(predicate(), checked, lambda: x * 2.0), "y")


@refusal("INVALID_ARGUMENT", "No OpKernel was registered to support Op 'MaxPool3D'", {}, ["pool:0"])
def pooling_of_volumes_of_half():
    tf.raw_ops.MaxPool3D(input=tf.ones([1, 2, 2, 2, 1], tf.float16), ksize=[1, 2, 2, 2, 1], strides=[1] * 5, padding="VALID", name="pool")


@refusal("INVALID_ARGUMENT", "No OpKernel was registered to support Op 'LRN'", {}, ["normal:0"])
def response_normalization_of_bfloat16():
    tf.raw_ops.LRN(input=tf.ones([1, 2, 2, 3], tf.bfloat16), name="normal")


@refusal("INVALID_ARGUMENT", "Furthermore, the element shape is not fully defined", {}, ["read:0"])
def read_of_an_array_that_nothing_writes():
    tf.identity(tf1.TensorArray(tf.float32, 3).read(0), name="read")


def written(*values, **attributes):
    """A TensorArray of floats, and its flow behind writes of values of other shapes or types."""
    handle, flow = tf.raw_ops.TensorArrayV3(size=3, dtype=tf.float32, **attributes)
    for index, value in enumerate(values):
        value = tf1.placeholder_with_default(value, None)
        flow = tf.raw_ops.TensorArrayWriteV3(handle=handle, index=index, value=value, flow_in=flow)
    return handle, flow


@refusal("INVALID_ARGUMENT", "[2]", {}, ["size:0"])
def tensor_array_of_another_shape():
    handle, flow = written([1.0, 2.0, 3.0], element_shape=[2])
    tf.raw_ops.TensorArraySizeV3(handle=handle, flow_in=flow, name="size")


@refusal("INVALID_ARGUMENT", "[2]", {}, ["size:0"])
def tensor_array_of_two_shapes_where_they_are_one():
    handle, flow = written([1.0, 2.0], [1.0], identical_element_shapes=True)
    tf.raw_ops.TensorArraySizeV3(handle=handle, flow_in=flow, name="size")


@refusal("INVALID_ARGUMENT", "int32", {}, ["size:0"])
def tensor_array_of_another_type():
    handle, flow = written([1, 2])
    tf.raw_ops.TensorArraySizeV3(handle=handle, flow_in=flow, name="size")


@refusal("INVALID_ARGUMENT", "TensorArray dtype is float but Op requested dtype int32.", {}, ["read:0"])
def tensor_array_read_as_another_type():
    handle, flow = written([1.0, 2.0])
    tf.raw_ops.TensorArrayReadV3(handle=handle, index=0, flow_in=flow, dtype=tf.int32, name="read")
