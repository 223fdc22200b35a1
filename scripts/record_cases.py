#!/usr/bin/env python3
"""Records crates/cli/tests/cases: small graphs that TensorFlow ran, with what was fed and what came out.

    python scripts/record_cases.py     (needs tensorflow-cpu 2.21)

The format of a case is in CONTRIBUTING.md; `plimsoll verify FOLDER` replays it.
"""
import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf

CASES = pathlib.Path(__file__).parent.parent / "crates/cli/tests/cases"
tf1 = tf.compat.v1


def record(name, build, steps, fetches, targets=(), note="", devices=1, rtol=2e-5, atol=1e-6):
    """`build` makes the graph; `steps` gives what each step is fed."""
    folder = CASES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        has_variables = build()
    config = tf1.ConfigProto(allow_soft_placement=True, device_count={"CPU": devices})
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString(deterministic=True))
    (folder / "config.pbtxt").write_text(str(config))
    case = {"name": name, "note": note, "tensorflow": tf.__version__, "rtol": rtol, "atol": atol, "graph": "graph.pb", "config": "config.pbtxt", "steps": []}
    if has_variables:
        case["init"] = ["init"]
    with tf1.Session(graph=graph, config=config) as session:
        if has_variables:
            session.run("init")
        for number, feeds in enumerate(steps):
            values, _ = session.run([list(fetches), list(targets)], {key: value for key, value in feeds.items()})
            step = {"feeds": {}, "targets": list(targets), "fetches": {}}
            for kind, names, arrays in (("feed", feeds.keys(), feeds.values()), ("fetch", fetches, values)):
                for index, (tensor, array) in enumerate(zip(names, arrays)):
                    file = f"step{number}_{kind}{index}.npy"
                    np.save(folder / file, array)
                    step[f"{kind}es" if kind == "fetch" else "feeds"][tensor] = file
            case["steps"].append(step)
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    print(f"{name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes")


def scalars():
    a, x, b = (tf1.placeholder(tf.float32, [], name=name) for name in "axb")
    tf.add(a * x, b, name="y")
    return False


def layers(x, use_resource):
    """6 -> 8 -> 3, the weights drawn from seeds."""
    def variable(name, shape):
        kind = tf1.truncated_normal_initializer(stddev=0.5, seed=len(name)) if len(shape) == 2 else tf1.zeros_initializer()
        return tf1.get_variable(name, shape, initializer=kind, use_resource=use_resource)
    with tf1.variable_scope("net", reuse=tf1.AUTO_REUSE):
        hidden = tf.nn.relu(tf1.nn.bias_add(tf.matmul(x, variable("w1", [6, 8])), variable("b1", [8])))
        return tf1.nn.bias_add(tf.matmul(hidden, variable("w2", [8, 3])), variable("b2", [3]))


def loss_of(x, y, use_resource, name=None):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=layers(x, use_resource)), name=name)


def inputs():
    return tf1.placeholder(tf.float32, [None, 6], name="x"), tf1.placeholder(tf.int32, [None], name="y")


def mlp(optimizer, use_resource):
    def build():
        x, y = inputs()
        loss = loss_of(x, y, use_resource, "loss")
        optimizer().minimize(loss, name="train")
        tf.identity(tf1.global_variables()[0], name="w1_now")
        tf1.variables_initializer(tf1.global_variables(), name="init")
        return True
    return build


def towers():
    """Two halves of a batch on two devices, gradients averaged, variables on the first."""
    x, y = inputs()
    optimizer = tf1.train.GradientDescentOptimizer(0.5)
    losses, gradients = [], []
    for tower, (x_part, y_part) in enumerate(zip(tf.split(x, 2), tf.split(y, 2))):
        setter = lambda op, tower=tower: "/cpu:0" if op.type in ("VariableV2", "Assign", "Identity") else f"/cpu:{tower}"
        with tf1.device(setter), tf1.name_scope(f"tower_{tower}"):
            loss = loss_of(x_part, y_part, use_resource=False)
            losses.append(loss)
            gradients.append(optimizer.compute_gradients(loss))
    with tf1.device("/cpu:0"):
        mean = [(tf.add_n([gradient for gradient, _ in pair]) / 2.0, pair[0][1]) for pair in zip(*gradients)]
        optimizer.apply_gradients(mean, name="train")
        tf.divide(tf.add_n(losses), 2.0, name="loss")
        tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def batches(count, size):
    random = np.random.default_rng(7)
    for _ in range(count):
        y = random.integers(0, 3, size).astype(np.int32)
        x = random.normal(size=(size, 6)).astype(np.float32) + np.eye(6, dtype=np.float32)[y] * 2
        yield {"x:0": x, "y:0": y}


def main():
    numbers = [{"a:0": np.float32(2), "x:0": np.float32(3.5), "b:0": np.float32(-1)}, {"a:0": np.float32(0.1), "x:0": np.float32(0.2), "b:0": np.float32(0.3)}]
    record("scalars", scalars, numbers, ["y:0"], note="a * x + b")
    record("mlp_sgd_ref", mlp(lambda: tf1.train.GradientDescentOptimizer(0.5), False), batches(3, 12), ["loss:0"], ["train"],
           note="gradient descent on ref variables")
    record("mlp_adam_resource", mlp(lambda: tf1.train.AdamOptimizer(0.05), True), batches(3, 12), ["loss:0"], ["train"], note="Adam on resource variables")
    record("towers", towers, batches(3, 12), ["loss:0"], ["train"], note="two towers on two logical devices", devices=2)


if __name__ == "__main__":
    main()
