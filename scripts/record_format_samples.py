#!/usr/bin/env python3
"""Writes crates/formats/tests/data: small files of every format, made by TensorFlow, for tests without TensorFlow.

    python scripts/record_format_samples.py crates/formats/tests/data     (needs tensorflow-cpu 2.21)
"""
import pathlib
import sys

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import attr_value_pb2, graph_pb2, types_pb2

OUT = pathlib.Path(sys.argv[1])


def attributes():
    """One node for each kind of attribute and each way to write a tensor."""
    graph = graph_pb2.GraphDef()
    graph.versions.producer, graph.versions.min_consumer = 2474, 12
    kinds = graph.node.add(name="kinds", op="Mystery", device="/device:GPU:1", input=["a", "b:1", "^c"]).attr
    kinds["s"].s, kinds["i"].i, kinds["f"].f, kinds["b"].b, kinds["type"].type = b"\xff\0text", -7, 1.5, True, types_pb2.DT_HALF_REF
    kinds["shape"].shape.dim.add(size=-1)
    kinds["shape"].shape.dim.add(size=3)
    kinds["named"].shape.dim.add(size=2, name="batch")
    kinds["unknown"].shape.unknown_rank = True
    kinds["placeholder"].placeholder = "T"
    kinds["func"].func.name = "f"
    kinds["func"].func.attr["T"].type = types_pb2.DT_FLOAT
    kinds["empty_list"].list.SetInParent()
    kinds["unset"].CopyFrom(attr_value_pb2.AttrValue())
    kinds["s_list"].list.s.extend([b"a", b""])
    kinds["i_list"].list.i.extend([1, -1, 2**62])
    kinds["f_list"].list.f.extend([0.1, float("inf")])
    kinds["b_list"].list.b.extend([True, False])
    kinds["type_list"].list.type.extend([types_pb2.DT_FLOAT, types_pb2.DT_STRING])
    kinds["shape_list"].list.shape.add().dim.add(size=4)
    kinds["func_list"].list.func.add(name="g")
    node = graph.node.add(name="debug", op="NoOp")
    node.experimental_debug_info.original_node_names.extend(["x", "y"])
    node.experimental_type.type_id = 3
    tensors = graph.node.add(name="tensors", op="Mystery").attr
    for name in ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "complex64",
                 "complex128", "qint8", "quint8", "qint16", "quint16", "qint32", "int4", "uint4", "float8_e5m2", "float8_e4m3fn"):
        data_type = tf.dtypes.as_dtype(name)
        base = np.array([[0, 1, 1], [1, 1, 1]])
        values = base.astype(data_type.as_numpy_dtype) if data_type.as_numpy_dtype not in (np.object_,) and base.dtype != data_type else base
        try:
            content = tf.make_tensor_proto(values, data_type)
        except TypeError:
            continue
        tensors[f"{name}_content"].tensor.CopyFrom(content)
        splat = tensors[f"{name}_splat"].tensor
        splat.dtype = data_type.as_datatype_enum
        splat.tensor_shape.dim.add(size=1 << 30)
        field, one = {
            "float16": ("half_val", [0x3C00]), "bfloat16": ("half_val", [0x3F80]), "float32": ("float_val", [1.5]), "float64": ("double_val", [1.5]),
            "int64": ("int64_val", [-3]), "uint32": ("uint32_val", [3]), "uint64": ("uint64_val", [3]), "bool": ("bool_val", [True]),
            "complex64": ("scomplex_val", [1, 2]), "complex128": ("dcomplex_val", [1, 2]),
        }.get(name, ("float8_val", [1]) if name.startswith("float8") else ("int_val", [3]))
        if field == "float8_val":
            splat.float8_val = bytes(one)
        else:
            getattr(splat, field).extend(one)
    tensors["strings"].tensor.CopyFrom(tf.make_tensor_proto([[b"a", b""], [b"\xff" * 200, b"d"]]))
    resource = tensors["resource"].tensor
    resource.dtype = types_pb2.DT_RESOURCE
    resource.tensor_shape.SetInParent()
    resource.resource_handle_val.add(name="v", container="c", hash_code=7)
    (OUT / "attributes.pb").write_bytes(graph.SerializeToString(deterministic=True))
    (OUT / "attributes.pbtxt").write_text(text_format.MessageToString(graph))


def functions():
    """Functions, control flow, and debug information."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def f(x):
        with tf.control_dependencies([tf.debugging.assert_non_negative(x)]):
            return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.cond(tf.reduce_sum(y) > 0, lambda: y * 2, lambda: y)), [0, x])[1]

    graph = f.get_concrete_function().graph.as_graph_def()
    graph.debug_info.files.append("model.py")
    frame = graph.debug_info.frames_by_id[7]
    frame.line, frame.func = 3, "f"
    graph.debug_info.traces_by_id[1].frame_id.extend([7, 7])
    (OUT / "functions.pb").write_bytes(graph.SerializeToString(deterministic=True))


def checkpoint():
    tensors = {"strings": tf.constant([["", "a"], ["bc" * 100, "d"]]), "scalar": tf.constant(1.5), "bools": tf.constant([True, False]),
               "bfloat16": tf.constant([1, 2], tf.bfloat16), "layer/weights": tf.reshape(tf.range(6, dtype=tf.int64), [2, 3])}
    whole = tf.reshape(tf.range(24, dtype=tf.float32), [2, 3, 4])
    slices = {"2 3 4 0,1:-:-": whole[:1], "2 3 4 1,1:0,2:-": whole[1:, :2], "2 3 4 1,1:2,1:0,4": whole[1:, 2:]}
    tf.raw_ops.SaveV2(prefix=str(OUT / "checkpoint"), tensor_names=[*tensors, *["sliced"] * len(slices)],
                      shape_and_slices=[*[""] * len(tensors), *slices], tensors=[*tensors.values(), *slices.values()])


def arrays():
    np.save(OUT / "float.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    np.save(OUT / "fortran.npy", np.asfortranarray(np.arange(24, dtype=">i2").reshape(2, 3, 4)))
    np.save(OUT / "scalar.npy", np.float64(1.5))


OUT.mkdir(parents=True, exist_ok=True)
attributes()
functions()
checkpoint()
arrays()
