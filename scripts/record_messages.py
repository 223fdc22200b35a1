#!/usr/bin/env python3
"""Writes crates/formats/data/messages.txt: the protobuf messages that plimsoll-formats reads and prints, one a line.

    python scripts/record_messages.py > crates/formats/data/messages.txt     (needs tensorflow-cpu 2.21)

A line reads  message Name: number name type; …  or  enum Name: NAME=number …
where a type is a scalar's name, an enum's or a message's, with `*` before it where the field is repeated, or map<key,value>.
Repeated numbers are packed on the wire. Names are without the package `tensorflow`.
"""
from google.protobuf.descriptor import FieldDescriptor as F
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, saved_model_pb2, tensor_bundle_pb2, trackable_object_graph_pb2
from tensorflow.python.training import checkpoint_state_pb2

ROOTS = [
    graph_pb2.GraphDef, config_pb2.ConfigProto, config_pb2.RunOptions, saved_model_pb2.SavedModel,
    trackable_object_graph_pb2.TrackableObjectGraph, tensor_bundle_pb2.BundleHeaderProto, tensor_bundle_pb2.BundleEntryProto,
    checkpoint_state_pb2.CheckpointState,
]
# Fields of this project, beside TensorFlow's.
OWN = {"ConfigProto.Experimental": ["1000 exact_convolutions bool", "1001 tensor_float_32_execution bool", "1002 matmul_precision string"]}
SCALARS = {getattr(F, name): name.removeprefix("TYPE_").lower() for name in dir(F) if name.startswith("TYPE_")}
messages, enums = {}, {}


def short(descriptor):
    return descriptor.full_name.removeprefix("tensorflow.")


def type_of(field):
    if field.type == F.TYPE_MESSAGE:
        if field.message_type.GetOptions().map_entry:
            key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
            return f"map<{type_of(key)},{type_of(value)}>"
        visit(field.message_type)
        name = short(field.message_type)
    elif field.type == F.TYPE_ENUM:
        enums[short(field.enum_type)] = field.enum_type
        name = short(field.enum_type)
    else:
        name = SCALARS[field.type]
    numeric = field.type not in (F.TYPE_MESSAGE, F.TYPE_STRING, F.TYPE_BYTES)
    assert not (field.is_repeated and numeric and not field.is_packed), field.full_name
    return ("*" if field.is_repeated else "") + name


def visit(descriptor):
    if short(descriptor) in messages:
        return
    messages[short(descriptor)] = None
    fields = [f"{field.number} {field.name} {type_of(field)}" for field in sorted(descriptor.fields, key=lambda field: field.number)]
    messages[short(descriptor)] = "; ".join(fields + OWN.get(short(descriptor), []))


for root in ROOTS:
    visit(root.DESCRIPTOR)
for name, fields in sorted(messages.items()):
    print(f"message {name}: {fields}".rstrip())
for name, enum in sorted(enums.items()):
    print(f"enum {name}: " + " ".join(f"{value.name}={value.number}" for value in enum.values))
