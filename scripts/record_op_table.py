#!/usr/bin/env python3
"""Writes crates/graph/data/ops.txt: the signatures of operations, one a line, as TensorFlow registers them.

    python scripts/record_op_table.py > crates/graph/data/ops.txt     (needs tensorflow-cpu 2.21)

A line reads  Name(input:type, …) -> (output:type, …) | attr:kind{allowed}>=minimum=default; … | flags
where a type is `T` (an attribute), `float` (fixed), `N*T` (a run), `list:T` (a type list), with `ref ` before references.
"""
import sys
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry  # noqa: F401  (registers the operations)
import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session as c_api
from tensorflow.core.framework import op_def_pb2

WANTED = set(sys.argv[1:])


def type_name(number):
    return types_pb2.DataType.Name(number).removeprefix("DT_").lower()


def quote(text):
    return '"' + text.decode("utf-8").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def shape(s):
    return "?" if s.unknown_rank else "[" + ",".join(str(d.size) if d.size >= 0 else "?" for d in s.dim) + "]"


def value(v):
    kind = v.WhichOneof("value")
    if kind == "list":
        l = v.list
        items = ([quote(s) for s in l.s] + [str(i) for i in l.i] + [repr(f) for f in l.f] + [str(b).lower() for b in l.b]
                 + [type_name(t) for t in l.type] + [shape(s) for s in l.shape])
        return "[" + ",".join(items) + "]"
    return {"s": lambda: quote(v.s), "i": lambda: str(v.i), "f": lambda: repr(v.f), "b": lambda: str(v.b).lower(),
            "type": lambda: type_name(v.type), "shape": lambda: shape(v.shape), "tensor": lambda: "tensor",
            "func": lambda: "@" + v.func.name}[kind]()


def arg(a):
    base = type_name(a.type) if a.type else a.type_attr
    text = f"list:{a.type_list_attr}" if a.type_list_attr else f"{a.number_attr}*{base}" if a.number_attr else base
    return f"{a.name}:{'ref ' if a.is_ref else ''}{text}"


def attr(a):
    text = f"{a.name}:{a.type}"
    if a.HasField("allowed_values"):
        l = a.allowed_values.list
        text += "{" + " ".join([type_name(t) for t in l.type] + [s.decode() for s in l.s]) + "}"
    if a.has_minimum:
        text += f">={a.minimum}"
    if a.HasField("default_value"):
        text += "=" + value(a.default_value)
    return text


def line(op):
    flags = [name for name, on in [("stateful", op.is_stateful), ("commutative", op.is_commutative), ("aggregate", op.is_aggregate),
                                   ("uninitialized-ok", op.allows_uninitialized_input)] if on]
    return (f"{op.name}({', '.join(map(arg, op.input_arg))}) -> ({', '.join(map(arg, op.output_arg))})"
            f" | {'; '.join(map(attr, op.attr))} | {' '.join(flags)}").rstrip()


ops = op_def_pb2.OpList()
ops.ParseFromString(c_api.TF_GetBuffer(c_api.TF_GetAllOpList()))
for op in sorted(ops.op, key=lambda op: op.name):
    if op.name != "DefaultAttrs" and (not WANTED or op.name in WANTED):  # a test operation of TensorFlow itself
        print(line(op))
