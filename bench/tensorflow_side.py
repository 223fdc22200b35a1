"""TensorFlow's side of bench/compare.py, in processes of its own: builds the workloads as cases, and runs them.

    python tensorflow_side.py build FOLDER                 writes a folder for each workload: graph.pb, case.json, arrays
    python tensorflow_side.py serve CASE INTRA INTER CPUS  times a case: reads lines "WARM RUNS", answers with JSON
    python tensorflow_side.py first CASE                   runs a case once, and prints what it fetched

A case is what `plimsoll verify` and `plimsoll bench` read.
"""
import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


class Run:
    """The last step of a case, prepared with Session.make_callable; variables keep changing as they do when training."""

    def __init__(self, folder, intra=0, inter=0, cpus=1):
        case = json.load(open(os.path.join(folder, "case.json")))
        graph_def = v1.GraphDef()
        graph_def.ParseFromString(open(os.path.join(folder, case["graph"]), "rb").read())
        graph = tf.Graph()
        with graph.as_default():
            v1.import_graph_def(graph_def, name="")
        config = v1.ConfigProto(intra_op_parallelism_threads=intra, inter_op_parallelism_threads=inter, device_count={"CPU": cpus}, allow_soft_placement=True)
        self.session = v1.Session(graph=graph, config=config)
        for op in case.get("init", []):
            self.session.run(op)
        step = case["steps"][-1]
        names = sorted(step["feeds"])
        self.feeds = [np.load(os.path.join(folder, step["feeds"][name])) for name in names]
        fetches = list(step["fetches"]) + [graph.get_operation_by_name(name) for name in step.get("targets", [])]
        self.call = self.session.make_callable(fetches, feed_list=names)

    def milliseconds(self, warm, runs):
        for _ in range(warm):
            self.call(*self.feeds)
        times = []
        for _ in range(runs):
            start = time.perf_counter()
            self.call(*self.feeds)
            times.append((time.perf_counter() - start) * 1e3)
        return times


def peak_bytes():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def serve(folder, intra, inter, cpus):
    run = Run(folder, int(intra), int(inter), int(cpus))
    print(json.dumps({"tensorflow": tf.__version__, "numpy": np.__version__}), flush=True)
    for line in sys.stdin:
        times = run.milliseconds(*map(int, line.split()))
        print(json.dumps({"median_ms": float(np.median(times)), "peak_bytes": peak_bytes()}), flush=True)


def first(folder):
    run = Run(folder)
    print(run.call(*run.feeds)[0])


def variable(name, shape, initializer, trainable=True):
    return v1.get_variable(name, shape, initializer=initializer, trainable=trainable, use_resource=False)


def truncated_normal(deviation):
    return v1.truncated_normal_initializer(stddev=deviation, seed=1)


def dense(name, x, units, deviation, bias, decay=None, activation=tf.nn.relu):
    with v1.variable_scope(name):
        w = variable("w", [x.shape[1], units], truncated_normal(deviation))
        if decay:
            v1.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(w), decay, name="decay"))
        return activation(tf.matmul(x, w) + variable("b", [units], v1.constant_initializer(bias)))


def convolution(name, x, channels):
    with v1.variable_scope(name):
        w = variable("w", [5, 5, x.shape[3], channels], truncated_normal(5e-2))
        y = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
        return tf.nn.relu(tf.nn.bias_add(y, variable("b", [channels], v1.constant_initializer(0.0 if name == "conv1" else 0.1))))


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=labels))


def tutorial_network(x):
    """The CIFAR-10 tutorial's network (tutorials/image/cifar10 of TensorFlow 1)."""
    normalize = lambda x: tf.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)
    pool = lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")
    y = normalize(pool(convolution("conv1", x, 64)))
    y = pool(normalize(convolution("conv2", y, 64)))
    y = tf.reshape(y, [x.shape[0], -1])
    y = dense("local3", y, 384, 0.04, 0.1, decay=0.004)
    y = dense("local4", y, 192, 0.04, 0.1, decay=0.004)
    return dense("softmax", y, 10, 1 / 192.0, 0.0, activation=tf.identity)


def cifar10(batch, towers):
    """The tutorial's training step: towers on /cpu:0, /cpu:1, ...; variables and their updates on /cpu:0."""
    with v1.device("/cpu:0"):
        x = v1.placeholder(tf.float32, [batch, 24, 24, 3], name="x")
        y = v1.placeholder(tf.int32, [batch], name="y")
        step = variable("global_step", [], v1.zeros_initializer(), trainable=False)
        rate = v1.train.exponential_decay(0.1, step, 136718, 0.1, staircase=True)
        optimizer = v1.train.GradientDescentOptimizer(rate)
        xs, ys = tf.split(x, towers), tf.split(y, towers)
    tower_losses, tower_gradients = [], []
    for tower in range(towers):
        place = lambda op, tower=tower: "/cpu:0" if op.type in ("VariableV2", "Assign") else f"/cpu:{tower}"
        with v1.device(place), v1.name_scope(f"tower_{tower}"), v1.variable_scope("model", reuse=tower > 0):
            v1.get_default_graph().clear_collection("losses")
            entropy = cross_entropy(tutorial_network(xs[tower]), ys[tower])
            loss = tf.add_n(v1.get_collection("losses") + [entropy], name="total_loss")
            tower_losses.append(loss)
            tower_gradients.append(optimizer.compute_gradients(loss))
    with v1.device("/cpu:0"):
        averaged = tower_gradients[0]
        if towers > 1:
            mean = lambda gradients: tf.reduce_mean(tf.concat([tf.expand_dims(g, 0) for g in gradients], 0), 0)
            averaged = [(mean([g for g, _ in pairs]), pairs[0][1]) for pairs in zip(*tower_gradients)]
        train = [optimizer.apply_gradients(averaged)]
        count = tf.cast(step, tf.float32)
        decay = tf.minimum(0.9999, (1.0 + count) / (10.0 + count))
        for _, trained in averaged:
            # As ExponentialMovingAverage.apply makes it, but for the first value.
            average = variable(trained.op.name + "/average", trained.shape, v1.zeros_initializer(), trainable=False)
            train.append(v1.assign_sub(average, (average - trained) * (1.0 - decay)))
        with v1.control_dependencies(train):
            v1.assign_add(step, 1.0, name="train")
        tf.add_n(tower_losses, name="loss")
    return [batch, 24, 24, 3], 10


def mlp(batch):
    """784-300-100-10, SGD."""
    x = v1.placeholder(tf.float32, [batch, 784], name="x")
    y = v1.placeholder(tf.int32, [batch], name="y")
    hidden = dense("hidden2", dense("hidden1", x, 300, 0.07, 0.0), 100, 0.1, 0.0)
    loss = tf.identity(cross_entropy(dense("softmax", hidden, 10, 0.2, 0.0, activation=tf.identity), y), name="loss")
    v1.train.GradientDescentOptimizer(0.01).minimize(loss, name="train")
    return [batch, 784], 10


WORKLOADS = {
    "cifar10": lambda: cifar10(128, 1),
    "cifar10_towers2": lambda: cifar10(128, 2),
    "mlp_50": lambda: mlp(50),
    "mlp_512": lambda: mlp(512),
}
RECORDED_STEPS = 2


def build(folder):
    for name, make in WORKLOADS.items():
        target = os.path.join(folder, name)
        os.makedirs(target)
        random = np.random.default_rng(1)
        graph = tf.Graph()
        with graph.as_default():
            shape, classes = make()
            v1.global_variables_initializer()
        open(os.path.join(target, "graph.pb"), "wb").write(graph.as_graph_def().SerializeToString())
        session = v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=True))
        session.run("init")
        steps = []
        for step in range(RECORDED_STEPS):
            feeds = {"x:0": random.random(shape, dtype=np.float32), "y:0": random.integers(0, classes, shape[0], dtype=np.int32)}
            loss = session.run(["loss:0", "train"], feeds)[0]
            arrays = {"x:0": f"x{step}.npy", "y:0": f"y{step}.npy", "loss:0": f"loss{step}.npy"}
            for tensor, value in {**feeds, "loss:0": loss}.items():
                np.save(os.path.join(target, arrays[tensor]), value)
            fetches = {"loss:0": arrays.pop("loss:0")}
            steps.append({"feeds": arrays, "fetches": fetches, "targets": ["train"]})
        case = {"name": name, "graph": "graph.pb", "init": ["init"], "steps": steps, "rtol": 1e-4, "atol": 1e-6}
        json.dump(case, open(os.path.join(target, "case.json"), "w"), indent=1)


if __name__ == "__main__":
    {"build": build, "serve": serve, "first": first}[sys.argv[1]](*sys.argv[2:])
