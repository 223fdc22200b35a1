#!/usr/bin/env python3
"""Checks with TensorFlow's own protobuf classes that what plimsoll-formats writes says what it read.

    cargo build -p plimsoll-formats --example transcode
    python scripts/check_graphs.py target/debug/examples/transcode GRAPH.pb…        (needs tensorflow-cpu 2.21)

Each graph is transcoded to binary and to text, parsed by TensorFlow and compared, after every TensorProto has been brought
to one form (the same values can be written in several).
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from google.protobuf import text_format
from tensorflow.core.framework import graph_pb2, tensor_pb2, types_pb2
from tensorflow.python.framework import tensor_util


def normalise(message):
    if isinstance(message, tensor_pb2.TensorProto):
        if message.dtype in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT):
            return
        elements = int(np.prod([dim.size for dim in message.tensor_shape.dim] or [1]))
        if elements > 1 << 20:
            return
        array = tensor_util.MakeNdarray(message)
        for field, _ in message.ListFields():
            if field.name not in ("dtype", "tensor_shape"):
                message.ClearField(field.name)
        if message.dtype == types_pb2.DT_STRING:
            message.string_val.extend(array.reshape(-1).tolist())
        else:
            message.tensor_content = array.tobytes()
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in value:
                    normalise(value[key])
        elif field.is_repeated:
            for item in value:
                normalise(item)
        else:
            normalise(value)


def main():
    transcode, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        for path in map(pathlib.Path, sys.argv[2:]):
            original = graph_pb2.GraphDef.FromString(path.read_bytes())
            normalise(original)
            for name in ("out.pb", "out.pbtxt"):
                out = pathlib.Path(folder, name)
                subprocess.run([transcode, path, out], check=True)
                written = graph_pb2.GraphDef()
                if name.endswith("txt"):
                    text_format.Parse(out.read_text(), written)
                else:
                    written.ParseFromString(out.read_bytes())
                normalise(written)
                same = written == original
                failed += not same
                print(f"{path.parent.name}/{path.name} {name} {'same' if same else 'DIFFERENT'}")
                if same and name.endswith("txt"):
                    # TensorFlow's own text must be read as well.
                    theirs = pathlib.Path(folder, "theirs.pbtxt")
                    theirs.write_text(text_format.MessageToString(original))
                    subprocess.run([transcode, theirs, pathlib.Path(folder, "again.pb")], check=True)
                    again = graph_pb2.GraphDef.FromString(pathlib.Path(folder, "again.pb").read_bytes())
                    normalise(again)
                    if again != original:
                        failed += 1
                        print(f"{path.parent.name}/{path.name} TensorFlow's text DIFFERENT")
    sys.exit(1 if failed else 0)


main()
