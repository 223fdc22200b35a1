#!/usr/bin/env python3
"""Checks with TensorFlow what `plimsoll train --save` writes.

    cargo build --release
    python scripts/check_training.py target/release/plimsoll      (needs tensorflow-cpu 2.21)

TensorFlow's Saver restores the checkpoint, TensorFlow loads the graph beside it, its accuracy on the held-out digits is the
one that we report, and it can go on training.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

tf1 = tf.compat.v1
tf1.disable_eager_execution()


def digits():
    path = pathlib.Path(__file__).parent.parent / "crates/train/data/digits.bin"
    records = np.fromfile(path, np.uint8).reshape(-1, 65)
    images, labels = (records[:, :64] / 16).astype(np.float32), records[:, 64].astype(np.int32)
    held_out = np.arange(len(records)) % 5 == 0
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def check(command, optimizer, folder):
    # Where towers are named, no cards are simulated: the graph names devices that TensorFlow has, too.
    run = [command, "train", "--towers", "2", "--optimizer", optimizer, "--steps", "200", "--save", folder, "--json"]
    ours = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    prefix = tf.train.latest_checkpoint(folder)
    reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    names = [name for name in shapes if not name.startswith("_PLIMSOLL_")]
    assert {"global_step", "hidden1/weights", "softmax_linear/biases"} <= set(names), names
    with tf1.Graph().as_default(), tf1.Session() as session:
        variables = {name: tf1.get_variable(name, shapes[name], types[name]) for name in names}
        tf1.train.Saver(variables).restore(session, prefix)
        assert all(np.array_equal(session.run(variable), reader.get_tensor(name)) for name, variable in variables.items())
    graph_def = text_format.Parse((pathlib.Path(folder) / "graph.pbtxt").read_text(), tf1.GraphDef())
    train, (images, labels) = digits()
    with tf1.Graph().as_default() as graph, tf1.Session(config=tf1.ConfigProto(device_count={"CPU": 2})) as session:
        tf1.import_graph_def(graph_def, name="")
        for name in names:
            assign = graph.get_operation_by_name(f"{name}/Assign")
            session.run(assign, {assign.inputs[1]: reader.get_tensor(name)})
        correct = session.run("tower_0/correct:0", {"tower_0/images:0": images, "tower_0/labels:0": labels})
        feeds = {f"tower_{t}/{part}:0": values[64 * t : 64 * t + 64] for t in range(2) for part, values in zip(("images", "labels"), train)}
        losses = [session.run(["loss:0", "train"], feeds)[0] for _ in range(20)]
        step = session.run("global_step:0")
    accuracy = correct / len(labels)
    print(f"{optimizer}: accuracy {accuracy} here, {ours['test_accuracy']} there; 20 more steps here: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return accuracy == ours["test_accuracy"] and losses[-1] < losses[0] and step == 220


def main():
    good = True
    for optimizer in ("sgd", "momentum", "adam"):
        with tempfile.TemporaryDirectory() as folder:
            good &= check(sys.argv[1], optimizer, folder)
    sys.exit(0 if good else 1)


main()
