#!/usr/bin/env python3
"""Records programs of loops, lists, conditions and functions: those that are made at random (control_flow/programs.py), and some that
are written down (control_flow/named.py).

    python scripts/record_programs.py                       those of crates/cli/tests/programs (needs tensorflow-cpu 2.21)
    python scripts/record_programs.py COUNT FOLDER [FIRST]  the programs FIRST to FIRST + COUNT, in FOLDER/programs.jsonl

A line is a program, in the form of scripts/record_placements.py (where nodes are, what goes from device to device) and with

    lowered       "node operation number of the CPU": the rest of that log, nodes of conditions and loops that TensorFlow lowers
    init, steps   operations that run first; what is fed, fetched and run, with the code with which a step fails. A tensor is
                  "type dimensions bytes", dimensions with commas between them, bytes in hexadecimal digits

What TensorFlow refuses, what differs between two runs, and graphs of more than MOST_NODES nodes are left out.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import contextlib
import json
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow.python.framework.meta_graph import strip_graph_default_valued_attrs

from control_flow import defuns  # It fills the table.
from control_flow.common import tf1
from control_flow.named import NAMED
from control_flow.programs import Program, feeds
from placements import bodies
from record_placements import LINE, Printed, configuration, partitions, placed

FOLDER = pathlib.Path(__file__).parent.parent / "crates/cli/tests/programs"
# Lists that differ, a loop on two devices in a condition, a second write, stacks that go from stage to stage. Then small ones that
# have each of the operations, and few others. Then a value that is read before a loop which writes the variable; a flow that is popped,
# and says only how long an array is.
KEPT = [
    212, 421, 857, 3173,
    100002, 100010, 100013, 100016, 100044, 100054, 100055, 100068, 100078, 100093, 100107, 100129,
    100139, 100141, 100154, 100191, 100195, 100196, 100200, 100213, 100225, 100255, 100260, 100268, 100278,
    100307, 100348, 100366, 100370, 100391, 100410, 100426, 100474, 100486, 100489,
    500088, 113,
]
MOST_NODES = 1500


def text(array):
    array = np.asarray(array)
    return f"{array.dtype.name} {','.join(map(str, array.shape))} {array.tobytes().hex()}"


def steps(program):
    for feed in feeds(program.number, program.inputs):
        yield feed, program.fetches, ["end"]
        if program.variables:
            yield {}, [f"now{at}:0" for at in range(len(program.variables))], []


def run(session, program, has_variables):
    """What the steps give; a step that fails ends the program."""
    found = []
    if has_variables:
        session.run("init")
    for feed, fetches, targets in steps(program):
        step = dict(feeds={name: text(value) for name, value in feed.items()}, targets=targets)
        try:
            values, _ = session.run([fetches, targets], feed)
        except tf.errors.OpError as error:
            found.append(step | dict(fetches={name: "" for name in fetches}, error=error_codes_pb2.Code.Name(error.error_code)))
            break
        found.append(step | dict(fetches={name: text(value) for name, value in zip(fetches, values)}))
    return found


def record(program, name):
    """A program as a value for JSON; nothing where it is of no use."""
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        try:
            has_variables = program.build()
        except (ValueError, TypeError, LookupError, tf.errors.OpError) as error:
            why = " ".join(str(error).split())[-150:]
            return None, f"cannot be built: {why}"
    definition = graph.as_graph_def()
    if sum(len(function.node_def) for function in definition.library.function) + len(definition.node) > MOST_NODES:
        return None, "too large"
    config = configuration(program.cpus, True, False)
    with tf1.Session(graph=graph, config=config) as session, Printed():
        first = run(session, program, has_variables)
    for _ in range(4 if has_variables else 1):
        with tf1.Session(graph=graph, config=config) as session, Printed():
            again = run(session, program, has_variables)
        if first != again:
            return None, "differs between two runs"
    names, ops = {node.name for node in definition.node}, {node.name: node.op for node in definition.node}
    # Functions are placed when they run: a run that ends before any does shows the graph alone.
    with tf1.Session(graph=graph, config=config) as session, Printed() as alone, contextlib.suppress(tf.errors.InvalidArgumentError):
        session.run(program.inputs[0].op)
    log = placed(alone.lines)
    found = dict(name=name, cpus=program.cpus, soft=True, pruned=False, init=["init"] if has_variables else [], steps=first)
    if all("error" not in step for step in first):
        options, metadata = tf1.RunOptions(output_partition_graphs=True), tf1.RunMetadata()
        feed, fetches, targets = next(steps(program))
        with tf1.Session(graph=graph, config=config) as session, Printed():
            if has_variables:
                session.run("init")
            session.run([fetches, targets], feed, options=options, run_metadata=metadata)
        found["runs"] = [dict(fetches=fetches, targets=targets) | partitions(definition, metadata, log)]
    found["log"] = [f"{n} {at}" for n, at in log.items() if n in names]
    found["lowered"] = [f"{m[1]} {m[2]} {m[3]}" for m in map(LINE.match, alone.lines) if m and m[1] not in names or m and m[2] != ops[m[1]]]
    whole = tf1.MetaGraphDef(graph_def=definition)
    strip_graph_default_valued_attrs(whole)
    found["graph"] = text_format.MessageToString(whole.graph_def, as_one_line=True).strip()
    return found, None


def main():
    count, folder, first = (int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0) if len(sys.argv) > 2 else (0, FOLDER, 0)
    numbers = range(first, first + count) if count else KEPT
    programs = [(Program(number), f"program_{number}") for number in numbers] + [(named, named.name) for named in NAMED if not count]
    folder.mkdir(parents=True, exist_ok=True)
    reasons = {}
    with open(folder / "programs.jsonl", "w") as file:
        for program, name in programs:
            found, why = record(program, name)
            if found:
                file.write(json.dumps(found) + "\n")
            else:
                reasons.setdefault(why, []).append(name)
    for why, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"{len(names)} of them: {why} ({names[:5]})")


if __name__ == "__main__":
    main()
