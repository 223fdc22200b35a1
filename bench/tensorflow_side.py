"""TensorFlow's side of bench/compare.py, in processes of its own: builds the workloads as cases, and runs them.

    python tensorflow_side.py build FOLDER [NAME...]       writes a folder for each network: graph.pb, case.json, arrays
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

from networks import NETWORKS

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
        before = os.times().user
        times = run.milliseconds(*map(int, line.split()))
        cpu = (os.times().user - before) * 1e3 / sum(map(int, line.split()))
        print(json.dumps({"median_ms": float(np.median(times)), "cpu_ms": cpu, "peak_bytes": peak_bytes()}), flush=True)


def first(folder):
    run = Run(folder)
    print(run.call(*run.feeds)[0])


RECORDED_STEPS = 2


def frozen(graph, session, fetch):
    """The graph with constants in place of its variables."""
    return v1.graph_util.convert_variables_to_constants(session, graph.as_graph_def(), [fetch.split(":")[0]])


def build(folder, *names):
    for name in names or NETWORKS:
        target = os.path.join(folder, name)
        os.makedirs(target)
        random = np.random.default_rng(1)
        graph = tf.Graph()
        with graph.as_default():
            v1.set_random_seed(1)
            network = NETWORKS[name]()
            v1.global_variables_initializer()
        session = v1.Session(graph=graph, config=v1.ConfigProto(allow_soft_placement=True))
        session.run("init")
        definition = frozen(graph, session, network.fetch) if network.frozen else graph.as_graph_def()
        open(os.path.join(target, "graph.pb"), "wb").write(definition.SerializeToString())
        steps = []
        for step in range(RECORDED_STEPS):
            feeds = {tensor: random.random(shape, dtype=np.float32) for tensor, shape in network.floats.items()}
            feeds.update((tensor, random.integers(0, limit, shape, dtype=np.int32)) for tensor, (shape, limit) in network.integers.items())
            fetched = session.run([network.fetch, *network.targets], feeds)[0]
            arrays = {tensor: f"{tensor.split(':')[0]}{step}.npy" for tensor in [*feeds, network.fetch]}
            for tensor, value in {**feeds, network.fetch: fetched}.items():
                np.save(os.path.join(target, arrays[tensor]), value)
            fetches = {network.fetch: arrays.pop(network.fetch)}
            steps.append({"feeds": arrays, "fetches": fetches, "targets": network.targets})
        init = [] if network.frozen else ["init"]
        tolerance = 1e-4 * float(np.abs(fetched).max()) if network.frozen else 1e-6
        case = {"name": name, "graph": "graph.pb", "init": init, "steps": steps, "rtol": 1e-4, "atol": tolerance}
        json.dump(case, open(os.path.join(target, "case.json"), "w"), indent=1)


if __name__ == "__main__":
    {"build": build, "serve": serve, "first": first}[sys.argv[1]](*sys.argv[2:])
