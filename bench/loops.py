#!/usr/bin/env python3
"""Measures what iterations of loops cost: processor time in user mode of `plimsoll bench`, an iteration.

    cargo build --release
    python bench/loops.py                                   (needs tensorflow-cpu 2.21, which writes the graphs)

The first loop is of scalars: 10^6 iterations of `i + 1, y * 0.999 + 1`. The others multiply matrices of 4x4, so that commands cost
little but themselves. What more iterations take is divided by their number: the start of the program counts nothing.
PLIMSOLL names the program; the default is target/release/plimsoll.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("PLIMSOLL") or os.path.join(HERE, "..", "target", "release", "plimsoll")
RUNS, ROUNDS = 9, 3


def looped(step, first):
    n, x = v1.placeholder(tf.int32, [], "n"), v1.placeholder(tf.float32, first.shape, "x")
    _, y = v1.while_loop(lambda i, _: i < n, lambda i, y: (i + 1, step(y, x)), [0, x])
    tf.identity(y, "y")


def products(count):
    def step(y, x):
        for _ in range(count):
            y = tf.matmul(y, x)
        return y
    return step


def write(folder, step, first, iterations):
    graph = tf.Graph()
    with graph.as_default():
        looped(step, first)
    feeds = {"n:0": np.int32(iterations), "x:0": first}
    with v1.Session(graph=graph) as session:
        arrays = {**feeds, "y:0": session.run("y:0", feeds)}
    with open(os.path.join(folder, "graph.pb"), "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())
    for tensor, array in arrays.items():
        np.save(os.path.join(folder, f"{tensor[0]}.npy"), array)
    step = {"feeds": {"n:0": "n.npy", "x:0": "x.npy"}, "fetches": {"y:0": "y.npy"}, "targets": []}
    with open(os.path.join(folder, "case.json"), "w") as file:
        json.dump({"name": "loop", "graph": "graph.pb", "init": [], "steps": [step], "rtol": 1e-4, "atol": 1e-5}, file)


def user_seconds(folder, runs, threads):
    before = os.times().children_user
    subprocess.run([BINARY, "bench", folder, "--runs", str(runs), "--intra-op", str(threads), "--json"], check=True, stdout=subprocess.DEVNULL)
    return os.times().children_user - before


def commands(folder):
    """How many commands an iteration has."""
    plan = [BINARY, "plan", os.path.join(folder, "graph.pb"), "--fetch", "y:0", "--after", "pack"]
    lines = [line.split(" ", 3)[2] for line in subprocess.run(plan, check=True, capture_output=True, text=True).stdout.splitlines() if line.startswith("  ")]
    return lines.index("again") - lines.index("loop")


def main():
    print(f"load {os.getloadavg()[0]:.1f}; microseconds of user time an iteration, median of {ROUNDS}")
    print("| loop | iterations | commands | one thread | two threads |\n|---|---|---|---|---|")
    scalar, matrix = np.float32(2), np.eye(4, dtype=np.float32) * np.float32(0.5)
    loops = [("scalars", lambda y, _: y * 0.999 + 1.0, scalar, 10**6)]
    loops += [(f"{count} products of 4x4", products(count), matrix, 10**5) for count in (1, 4, 16)]
    for name, step, first, iterations in loops:
        with tempfile.TemporaryDirectory() as folder:
            write(folder, step, first, iterations)
            subprocess.run([BINARY, "verify", folder], check=True, stdout=subprocess.DEVNULL)
            taken = []
            for threads in (1, 2):
                once = min(user_seconds(folder, 1, threads) for _ in range(2))
                rounds = [user_seconds(folder, RUNS, threads) - once for _ in range(ROUNDS)]
                taken.append(f"{statistics.median(rounds) / (RUNS - 1) / iterations * 1e6:.2f}")
            print(f"| {name} | {iterations} | {commands(folder)} | {' | '.join(taken)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
