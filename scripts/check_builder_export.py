#!/usr/bin/env python3
"""Checks that TensorFlow loads and runs training graphs made by the builder, and learns the same as from a graph of its own.

    cargo build -p plimsoll-ops --example export_training
    python scripts/check_builder_export.py target/debug/examples/export_training        (needs tensorflow-cpu 2.21)

For each kind of variable and optimizer: losses of six steps, the learned weights, their moving averages (equal to 1e-6), and
the spread of the random initializers (within 10 % of what it should be).
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
v1.disable_eager_execution()
STEPS = 6
random = np.random.RandomState(0)
X = [random.randn(6, 4).astype(np.float32) for _ in range(2)]
Y = [random.randint(0, 3, 6) for _ in range(2)]


def initial(*shape):
    return (np.arange(np.prod(shape), dtype=np.float32) * np.float32(0.1) - np.float32(0.7)).reshape(shape)


def session():
    # Grappler merges reads of reference variables across control dependencies; without it order is what the graph says.
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return v1.Session(config=config)


def exported(path, kind):
    graph = v1.Graph()
    with graph.as_default(), session() as running:
        definition = v1.GraphDef()
        definition.ParseFromString(path.read_bytes())
        v1.import_graph_def(definition, name="")
        feeds = {f"tower_{tower}/{name}:0": values[tower] for tower in range(2) for name, values in (("x", X), ("y", Y))}
        running.run("init")
        losses = []
        for _ in range(STEPS):
            losses.append(running.run("total:0", feeds))
            running.run("train", feeds)
        suffix = "/read:0" if kind == "reference" else "/Read/ReadVariableOp:0"
        value = lambda name: running.run(name + suffix)
        spreads = {"glorot": (6 / 100 / 3) ** 0.5, "he": (2 / 144) ** 0.5, "normal": 0.5}
        for name, wanted in spreads.items():
            assert abs(np.std(value(name)) / wanted - 1) < 0.1, f"{name}: {np.std(value(name))} instead of {wanted}"
        weights = value("hidden/weights")
        return losses, weights, value("hidden/weights/ExponentialMovingAverage")


def own(optimizer):
    graph = v1.Graph()
    with graph.as_default(), session() as running:
        step = v1.train.get_or_create_global_step()
        rate = v1.train.exponential_decay(0.1, step, 2, 0.5, staircase=True)
        variable = lambda name, value: v1.get_variable(name, initializer=value, use_resource=True)
        w1, b1 = variable("w1", initial(4, 5)), variable("b1", np.full(5, 0.1, np.float32))
        w2, b2 = variable("w2", initial(5, 3)), variable("b2", np.full(3, 0.1, np.float32))
        optimizer = {
            "sgd": lambda: v1.train.GradientDescentOptimizer(rate),
            "momentum": lambda: v1.train.MomentumOptimizer(rate, 0.9),
            "nesterov": lambda: v1.train.MomentumOptimizer(rate, 0.9, use_nesterov=True),
            "adam": lambda: v1.train.AdamOptimizer(rate),
        }[optimizer]()
        losses, gradients = [], []
        for x, y in zip(X, Y):
            hidden = tf.nn.relu(v1.nn.bias_add(tf.matmul(x, w1), b1))
            logits = v1.nn.bias_add(tf.matmul(hidden, w2), b2)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)) + tf.nn.l2_loss(w1)
            losses.append(loss)
            gradients.append(optimizer.compute_gradients(loss))
        means = [(tf.reduce_mean(tf.stack([gradient for gradient, _ in pairs]), 0), pairs[0][1]) for pairs in zip(*gradients)]
        applied = optimizer.apply_gradients(means, global_step=step)
        averages = v1.train.ExponentialMovingAverage(0.99, step)
        with v1.control_dependencies([applied]):
            train = averages.apply([w1, b1, w2, b2])
        total = tf.add_n(losses)
        running.run(v1.global_variables_initializer())
        values = []
        for _ in range(STEPS):
            values.append(running.run(total))
            running.run(train)
        return values, running.run(w1), running.run(averages.average(w1))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        for path in sorted(pathlib.Path(folder).glob("*.pb")):
            kind, optimizer = path.stem.split("-")
            errors = [float(np.max(np.abs(np.subtract(a, b)))) for a, b in zip(exported(path, kind), own(optimizer))]
            fine = max(errors) <= 1e-6
            failed |= not fine
            print(f"{path.stem}: worst error of losses {errors[0]:.1e}, weights {errors[1]:.1e}, averages {errors[2]:.1e}", "OK" if fine else "FAIL")
    sys.exit(failed)


if __name__ == "__main__":
    main()
