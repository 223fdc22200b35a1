"""Prints the nodes that a program builds, as JSON: `python dump.py MODULE PROGRAM`, where MODULE is what `tf` is in the program."""

import importlib
import json
import os
import sys


def nodes(tf, program):
    space = {"__name__": "program", "tf": tf}
    source = open(program).read().replace("import plimsoll.compat.v1 as tf\n", "")
    exec(compile(source, program, "exec"), space)
    if "FLAGS" in space:
        space["FLAGS"](["program"])
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(7)
        space["build"]()
        return graph


def main(module, program):
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    tf = importlib.import_module(module)
    tf.disable_v2_behavior()
    graph = nodes(tf, program)
    made = []
    for op in graph.get_operations():
        attrs = {}
        names = [each.name for each in op.op_def.attr] if hasattr(op, "op_def") else list(graph._builder.attrs(op._number))
        for name in sorted(names):
            got = op.get_attr(name)
            if hasattr(got, "tensor_shape"):  # a TensorProto
                from tensorflow import make_ndarray

                got = make_ndarray(got)
            if hasattr(got, "dim") and hasattr(got, "unknown_rank"):  # a TensorShapeProto
                got = None if got.unknown_rank else [None if each.size < 0 else each.size for each in got.dim]
            attrs[name] = plain(got)
        try:
            colocated = sorted(each.decode() for each in op.get_attr("_class"))
        except ValueError:
            colocated = []
        attrs.pop("_class", None)
        inputs = [tensor.name for tensor in op.inputs] + sorted(f"^{each.name}" for each in op.control_inputs)
        made.append({"name": op.name, "op": op.type, "inputs": inputs, "device": op.device, "attrs": attrs, "class": colocated})
    json.dump(made, sys.stdout)


def plain(got):
    if hasattr(got, "as_datatype_enum"):
        return got.as_datatype_enum
    if hasattr(got, "as_list") and not isinstance(got, list):
        return got.as_list() if got.ndims is not None else None
    if isinstance(got, bytes):
        return got.decode(errors="replace")
    if hasattr(got, "dtype") and got.dtype.kind in "OSU":
        got = [plain(each) for each in got.ravel().tolist()]
        return got[0] if len(got) == 1 else got
    if hasattr(got, "tolist"):
        return [str(got.dtype) if got.dtype.kind not in "OSU" else "text", list(got.shape), plain(got.ravel().tolist())]
    if isinstance(got, (list, tuple)):
        return [plain(each) for each in got]
    if isinstance(got, float):
        return f"{got:.6g}"
    return got


if __name__ == "__main__":
    main(*sys.argv[1:])
