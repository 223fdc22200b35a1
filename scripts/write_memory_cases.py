"""Writes graphs of training steps as recorded cases without values: for runs that look at memory alone.

    python scripts/write_memory_cases.py FOLDER GRAPH.json...

GRAPH.json names a GraphDef beside it, its resources (placeholders there) with shapes and types, feeds, fetches and targets. Variables and
feeds are zeros; what is fetched is not compared (`PLIMSOLL_MEMORY_CASES=FOLDER cargo test -p plimsoll --test cards -- --ignored`).
Needs Python with tensorflow-cpu==2.21.0.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2


def constant(graph, name, value):
    node = graph.node.add(name=name, op="Const")
    proto = tf.make_tensor_proto(value)
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)


def write(path, folder):
    description = json.loads(path.read_text())
    graph = graph_pb2.GraphDef()
    graph.ParseFromString((path.parent / description["graph"]).read_bytes())
    init = []
    for node in list(graph.node):
        variable = description["variables"].get(node.name)
        if variable is None:
            continue
        dtype = tf.as_dtype(variable["dtype"])
        node.op = "VarHandleOp"
        node.attr.clear()
        node.attr["dtype"].type = dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(variable["shape"]).as_proto())
        node.attr["shared_name"].s = variable["name"].encode() + b"/" + node.name.encode()
        node.attr["container"].s = b""
        name = f"initial/{len(init)}"
        constant(graph, f"{name}/dims", np.array(variable["shape"], np.int32))
        constant(graph, f"{name}/value", np.zeros([], dtype.as_numpy_dtype))
        zeros = graph.node.add(name=f"{name}/zeros", op="Fill", input=[f"{name}/dims", f"{name}/value"])
        zeros.attr["T"].type = dtype.as_datatype_enum
        zeros.attr["index_type"].type = types_pb2.DT_INT32
        assign = graph.node.add(name=f"{name}/assign", op="AssignVariableOp", input=[node.name, zeros.name])
        assign.attr["dtype"].type = dtype.as_datatype_enum
        assign.attr["validate_shape"].b = False
        init.append(assign.name)
    graph.node.add(name="initial", op="NoOp", input=[f"^{name}" for name in init])
    out = folder / path.stem
    out.mkdir(parents=True, exist_ok=True)
    (out / "graph.pb").write_bytes(graph.SerializeToString())
    feeds = {}
    for number, (name, feed) in enumerate(description["feeds"].items()):
        np.save(out / f"feed_{number}.npy", np.zeros(feed["shape"], feed["dtype"]))
        feeds[name] = f"feed_{number}.npy"
    step = {"feeds": feeds, "fetches": {name: "feed_0.npy" for name in description["fetches"]}, "targets": description["targets"]}
    case = {"name": path.stem, "graph": "graph.pb", "init": ["initial"], "rtol": 0, "atol": 0, "steps": [step] * 3}
    (out / "case.json").write_text(json.dumps(case, indent=1))
    print(f"{path.stem}: {len(graph.node)} nodes, {len(init)} variables")


if __name__ == "__main__":
    for each in sys.argv[2:]:
        write(pathlib.Path(each), pathlib.Path(sys.argv[1]))
