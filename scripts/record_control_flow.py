#!/usr/bin/env python3
"""Records cases of conditional execution in crates/cli/tests/cases, and what is refused in crates/cli/tests/refused.

    python scripts/record_control_flow.py [CASE...]     (needs tensorflow-cpu 2.21)

The cases are in control_flow/. Names begin with `switch_` where the graph has Switch and Merge, with `late_` where sizes are values of
the run, with `while_` and `frame_` where there is a loop, with `if_` where it has If, Case and functions, and with `fail_arrays_` where
TensorArrays refuse something. TensorFlow's optimisers leave the graphs alone.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from control_flow import arrays, branch, counted, late, loops, random, refused, switch  # They fill the tables.
from control_flow.common import CASES, REFUSALS, tf1
from record_cases import leave_alone, record

REFUSED = pathlib.Path(__file__).parent.parent / "crates/cli/tests/refused"


def record_refusal(name, build, entry):
    graph = tf.Graph()
    with graph.as_default():
        build()
    (REFUSED / f"{name}.pbtxt").write_text(text_format.MessageToString(graph.as_graph_def()))
    with tf1.Session(graph=graph, config=leave_alone(tf1.ConfigProto(allow_soft_placement=True))) as session:
        if entry["init"]:
            session.run(entry["init"])
        try:
            session.run([entry["fetches"], entry["targets"]], {f"{key}:0": np.array(value) for key, value in entry["feeds"].items()})
        except tf.errors.OpError as error:
            code = error.__class__.__name__
            said = {"InvalidArgumentError": "INVALID_ARGUMENT", "FailedPreconditionError": "FAILED_PRECONDITION"}[code]
            assert said == entry["code"] and entry["message"] in error.message, (name, code, error.message[-600:])
        else:
            raise AssertionError(f"{name} is accepted")
    return {"name": name, **entry}


def main():
    wanted = sys.argv[1:]
    for name, (build, steps, options) in CASES.items():
        if not wanted or name in wanted:
            record(name, build, steps, note=build.__doc__, as_written=True, stripped=True, **options)
    for name, build, steps in arrays.cases():
        if not wanted or name in wanted:
            record(name, build, steps, note=f"what TensorArrays refuse: {name.split('_')[-1]}", as_written=True, stripped=True)
    if not wanted or wanted == ["refused"]:
        shutil.rmtree(REFUSED, ignore_errors=True)
        REFUSED.mkdir(parents=True)
        table = [record_refusal(name, *refused) for name, refused in REFUSALS.items()]
        (REFUSED / "refused.json").write_text(json.dumps(table, indent=1) + "\n")
        print(f"{len(table)} refusals")


if __name__ == "__main__":
    main()
