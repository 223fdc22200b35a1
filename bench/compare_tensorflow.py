#!/usr/bin/env python3
"""Times recorded cases here and in TensorFlow, alternating, in one run; prints medians and ratios.

    cargo build --release
    python bench/compare_tensorflow.py CASE... [--threads 2] [--runs 200] [--rounds 5]     (needs tensorflow-cpu 2.21)

A case is a folder with graph.pb and case.json (TF1 style). The last step is what is timed; variables keep changing as they do
when training. TensorFlow runs through Session.make_callable on fed arrays, Plimsoll through `plimsoll bench`.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
BINARY = os.environ.get("PLIMSOLL") or os.path.join(os.path.dirname(__file__), "..", "target", "release", "plimsoll")


class TensorFlowCase:
    def __init__(self, folder, threads):
        case = json.load(open(os.path.join(folder, "case.json")))
        graph_def = v1.GraphDef()
        graph_def.ParseFromString(open(os.path.join(folder, case["graph"]), "rb").read())
        graph = tf.Graph()
        with graph.as_default():
            v1.import_graph_def(graph_def, name="")
        config = v1.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads, allow_soft_placement=True)
        self.session = v1.Session(graph=graph, config=config)
        for op in case.get("init", []):
            self.session.run(op)
        step = case["steps"][-1]
        names = sorted(step["feeds"])
        self.feeds = [np.load(os.path.join(folder, step["feeds"][name])) for name in names]
        fetches = list(step["fetches"]) + [graph.get_operation_by_name(name) for name in step.get("targets", [])]
        self.call = self.session.make_callable(fetches, feed_list=names)

    def milliseconds(self, runs):
        for _ in range(10):
            self.call(*self.feeds)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            self.call(*self.feeds)
            times.append((time.perf_counter() - start) * 1e3)
        return statistics.median(times)


def ours(folder, threads, runs):
    command = [BINARY, "bench", folder, "--runs", str(runs), "--intra-op", str(threads), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["median_ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    for folder in args.cases:
        theirs = TensorFlowCase(folder, args.threads)
        pairs = [(ours(folder, args.threads, args.runs), theirs.milliseconds(args.runs)) for _ in range(args.rounds)]
        mine, other = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        name = os.path.basename(os.path.normpath(folder))
        print(f"{name}: plimsoll {mine:.3f} ms, tensorflow {other:.3f} ms, ratio {ratio:.2f} ({args.threads} threads, {args.rounds} rounds of {args.runs})")


if __name__ == "__main__":
    sys.exit(main())
