#!/usr/bin/env python3
"""Records what TensorFlow says of lists whose tensors have several shapes, or other shapes than operations state.

    python scripts/record_list_shapes.py    writes crates/cli/tests/list_shapes.jsonl (needs tensorflow-cpu 2.21)

A line is a graph of one function below: its name, what it fetches ("out0:0", ...), the graph as text, and either the values, each as a
list of its elements, or the code with which the run fails.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import json
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow.python.framework.meta_graph import strip_graph_default_valued_attrs

FILE = pathlib.Path(__file__).parent.parent / "crates/cli/tests/list_shapes.jsonl"
tf1, raw = tf.compat.v1, tf.raw_ops
CASES = {}


def case(function):
    CASES[function.__name__] = function


def floats(*shape):
    return tf.constant(np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape))


def empty(shape=-1):
    return raw.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=tf.float32)


def reserve(count, shape=-1):
    return raw.TensorListReserve(element_shape=shape, num_elements=count, element_dtype=tf.float32)


def put(tensors, index, item):
    return raw.TensorListSetItem(input_handle=tensors, index=index, item=item)


def get(tensors, index, shape=-1):
    return raw.TensorListGetItem(input_handle=tensors, index=index, element_shape=shape, element_dtype=tf.float32)


def push(tensors, *items):
    for item in items:
        tensors = raw.TensorListPushBack(input_handle=tensors, tensor=item)
    return tensors


def pop(tensors, shape=-1):
    return raw.TensorListPopBack(input_handle=tensors, element_shape=shape, element_dtype=tf.float32)


def length(tensors):
    return raw.TensorListLength(input_handle=tensors)


def stack(tensors, shape):
    return raw.TensorListStack(input_handle=tensors, element_shape=shape, element_dtype=tf.float32)


def gather(tensors, indices, shape=-1):
    return raw.TensorListGather(input_handle=tensors, indices=indices, element_shape=shape, element_dtype=tf.float32)


def concat(tensors, shape=-1):
    none = tf.constant([], tf.int64)
    return raw.TensorListConcatV2(input_handle=tensors, element_shape=shape, leading_dims=none, element_dtype=tf.float32)[0]


def join(one, other):
    return raw.TensorListConcatLists(input_a=one, input_b=other, element_dtype=tf.float32)


def array(**how):
    return raw.TensorArrayV3(size=2, dtype=tf.float32, **how)


def write(handle, flow, *items):
    for index, item in enumerate(items):
        flow = raw.TensorArrayWriteV3(handle=handle, index=index, value=item, flow_in=flow)
    return flow


def read(handle, flow, index):
    return raw.TensorArrayReadV3(handle=handle, index=index, flow_in=flow, dtype=tf.float32)


def repeat(count, body, state):
    return tf1.while_loop(lambda i, _: i < count, lambda i, state: (i + 1, body(state)), [0, state])[1]


# Tensors of several shapes.
@case
def set_of_two_shapes():
    tensors = put(put(reserve(2), 0, floats(2)), 1, floats(3))
    return [get(tensors, 0), get(tensors, 1)]


@case
def set_over_one_of_another_shape():
    return [get(put(put(reserve(1), 0, floats(2)), 0, floats(3)), 0)]


@case
def pushed_of_two_shapes():
    tensors, last = pop(push(empty(), floats(2), floats(3)))
    return [last, pop(tensors)[1]]


@case
def pushed_of_two_lengths_where_the_rank_is_stated():
    return [pop(push(empty([-1]), floats(2), floats(3)))[1]]


@case
def set_behind_a_resize():
    tensors = raw.TensorListResize(input_handle=put(reserve(1), 0, floats(2)), size=2)
    return [get(put(tensors, 1, floats(3)), 1)]


@case
def set_into_the_rows_of_a_tensor():
    return [get(put(raw.TensorListFromTensor(tensor=floats(2, 3), element_shape=-1), 0, floats(2)), 0)]


@case
def scattered_into_a_list_of_another_shape():
    tensors = put(reserve(2), 0, floats(2))
    return [get(raw.TensorListScatterIntoExistingList(input_handle=tensors, tensor=floats(1, 3), indices=[1]), 0)]


@case
def gathered_from_two_shapes():
    return [gather(push(empty(), floats(3), floats(2)), [1])]


@case
def stacked_of_two_shapes():
    return [stack(push(empty(), floats(3), floats(2)), -1)]


@case
def concatenated_of_two_lengths():
    return [concat(push(empty(), floats(3), floats(2)))]


@case
def joined_of_two_shapes():
    return [length(join(push(empty(), floats(3)), push(empty(), floats(2))))]


@case
def split_into_two_lengths():
    return [get(raw.TensorListSplit(tensor=floats(5, 2), element_shape=-1, lengths=tf.constant([2, 3], tf.int64)), 0)]


@case
def pushed_in_a_loop_upon_another_shape():
    return [length(repeat(2, lambda tensors: push(tensors, floats(3)), push(empty(), floats(2))))]


@case
def pushed_in_a_loop_that_does_not_run():
    none = tf1.placeholder_with_default(0, [])
    return [pop(repeat(none, lambda tensors: push(tensors, floats(3)), push(empty(), floats(2))))[1]]


# Other shapes than are stated.
@case
def pushed_of_another_shape_than_stated():
    return [pop(push(empty([2]), floats(3)))[1]]


@case
def pushed_of_another_rank_than_stated():
    return [pop(push(empty([-1]), floats(3, 1)))[1]]


@case
def pushed_in_a_loop_of_another_shape_than_stated():
    return [length(repeat(2, lambda tensors: push(tensors, floats(3)), empty([2])))]


@case
def read_as_another_shape():
    return [get(put(reserve(1), 0, floats(3)), 0, [2])]


@case
def read_as_another_shape_where_nothing_was_set():
    return [get(put(reserve(2), 0, floats(3)), 1, [2])]


@case
def popped_as_another_shape():
    return [pop(push(empty(), floats(3)), [2])[1]]


@case
def popped_as_another_shape_than_stated():
    return [pop(push(empty([3]), floats(3)), [2])[1]]


@case
def scattered_of_another_shape_than_stated():
    return [get(raw.TensorListScatterV2(tensor=floats(2, 3), indices=[0, 1], element_shape=[2], num_elements=2), 0)]


# TensorArrays.
@case
def written_of_two_shapes():
    handle, flow = array()
    flow = write(handle, flow, floats(2), floats(3))
    return [read(handle, flow, 0), read(handle, flow, 1)]


@case
def written_of_two_shapes_that_have_to_be_one():
    handle, flow = array(identical_element_shapes=True)
    flow = write(handle, flow, floats(2), floats(3))
    return [read(handle, flow, 0), read(handle, flow, 1)]


@case
def written_of_two_lengths_where_the_rank_is_stated():
    handle, flow = array(element_shape=tf.TensorShape([None]))
    return [read(handle, write(handle, flow, floats(3), floats(2)), 0)]


@case
def array_split_into_two_lengths():
    handle, flow = array()
    flow = raw.TensorArraySplitV3(handle=handle, value=floats(5), lengths=tf.constant([2, 3], tf.int64), flow_in=flow)
    return [read(handle, flow, 0)]


@case
def array_split_into_two_lengths_that_have_to_be_one():
    handle, flow = array(identical_element_shapes=True)
    flow = raw.TensorArraySplitV3(handle=handle, value=floats(5), lengths=tf.constant([2, 3], tf.int64), flow_in=flow)
    return [read(handle, flow, 0)]


@case
def array_concatenated_of_two_lengths():
    handle, flow = array()
    flow = write(handle, flow, floats(2), floats(3))
    return [raw.TensorArrayConcatV3(handle=handle, flow_in=flow, dtype=tf.float32)[0]]


def record(name, build):
    graph = tf.Graph()
    with graph.as_default():
        fetches = [tf.identity(tensor, f"out{index}").name for index, tensor in enumerate(build())]
    whole = tf1.MetaGraphDef(graph_def=graph.as_graph_def())
    strip_graph_default_valued_attrs(whole)
    found = dict(name=name, fetches=fetches)
    with tf1.Session(graph=graph) as session:
        try:
            found["values"] = [np.ravel(value).tolist() for value in session.run(fetches)]
        except tf.errors.OpError as error:
            found["error"] = error_codes_pb2.Code.Name(error.error_code)
    return found | dict(graph=text_format.MessageToString(whole.graph_def, as_one_line=True))


if __name__ == "__main__":
    FILE.write_text("".join(json.dumps(record(name, build)) + "\n" for name, build in CASES.items()))
