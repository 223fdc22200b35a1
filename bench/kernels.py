#!/usr/bin/env python3
"""Measures single kernels beside oneDNN, through PyTorch, and writes docs/kernels.md.

    cargo build --release
    python bench/kernels.py --torch PYTHON                 (needs tensorflow-cpu 2.21, and PyTorch in another environment)
    python bench/kernels.py --torch PYTHON --only TEXT     kernels whose name has this text; only printed

Kernels are those of networks.py: every shape of their convolutions and products, each once, as a graph of its own. Both sides run in
processes of their own, with the same number of threads, in turns. Weights of what is served are constants: each side packs
them beforehand. PyTorch computes a kernel in each way that it has (weights as they are, and packed for oneDNN); its fastest counts.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

from compare import BINARY, ENVIRONMENT, HERE, SIDE, Side, machine, plimsoll

TORCH = os.path.join(HERE, "torch_kernels.py")
NETWORKS = ("cifar10", "resnet50_1", "resnet50_8", "mobilenet_v2_1", "mobilenet_v2_8")
WARM_UP = 3


class Kernel:
    """A convolution, a gradient of one, or a product. Shapes are TensorFlow's: images NHWC, filters HWIO."""

    def __init__(self, op):
        shape = lambda tensor: [int(size) for size in tensor.shape]
        self.op = op.type
        self.inputs = [shape(tensor) for tensor in op.inputs]
        self.output = shape(op.outputs[0])
        self.packed = False
        if self.op == "MatMul":
            self.transpose = [op.get_attr("transpose_a"), op.get_attr("transpose_b")]
            self.flops = 2 * math.prod(self.output) * self.inputs[0][0 if self.transpose[0] else 1]
            self.what = " by ".join("x".join(map(str, size)) + ("^T" if turned else "") for size, turned in zip(self.inputs, self.transpose))
            return
        self.strides, self.padding = list(op.get_attr("strides")), op.get_attr("padding").decode()
        if self.op.endswith("BackpropInput"):
            filters, image, result = self.inputs[1], self.output, self.inputs[2]
        elif self.op.endswith("BackpropFilter"):
            filters, image, result = self.output, self.inputs[0], self.inputs[2]
        else:
            image, filters, result = *self.inputs, self.output
        self.image, self.filters, self.result = image, filters, result
        self.flops = 2 * math.prod(result[:3]) * math.prod(filters)
        self.what = f"{'x'.join(map(str, image))}, {filters[0]}x{filters[1]} to {result[3]}" + (f", stride {self.strides[1]}" if self.strides[1] > 1 else "")

    @property
    def name(self):
        return f"{self.op} {self.what}"

    def write(self, folder):
        """The kernel as a case of one step, which computes it and fetches nothing."""
        import numpy as np
        import tensorflow as tf

        v1, random = tf.compat.v1, np.random.default_rng(1)
        values = [random.standard_normal(shape, dtype=np.float32) for shape in self.inputs if len(shape) > 1]
        with tf.Graph().as_default() as graph:
            variable = lambda shape: v1.get_variable(f"x{len(v1.global_variables())}", initializer=v1.random_normal(shape, seed=1), use_resource=False)
            weights = (lambda shape: tf.constant(values[1])) if self.packed else variable
            if self.op == "MatMul":
                y = tf.matmul(variable(self.inputs[0]), weights(self.inputs[1]), *self.transpose)
            elif self.op.endswith("BackpropInput"):
                y = v1.nn.conv2d_backprop_input(self.image, variable(self.filters), variable(self.result), self.strides, self.padding)
            elif self.op.endswith("BackpropFilter"):
                y = v1.nn.conv2d_backprop_filter(variable(self.image), self.filters, variable(self.result), self.strides, self.padding)
            else:
                run = tf.nn.depthwise_conv2d if self.op.startswith("Depthwise") else tf.nn.conv2d
                y = run(variable(self.image), weights(self.filters), self.strides, self.padding)
            tf.group(*[value.initializer for value in v1.global_variables()], name="init")
        os.makedirs(folder)
        open(os.path.join(folder, "graph.pb"), "wb").write(graph.as_graph_def().SerializeToString())
        step = {"feeds": {}, "fetches": {}, "targets": [y.op.name]}
        json.dump({"name": self.name, "graph": "graph.pb", "init": ["init"], "steps": [step], "rtol": 0, "atol": 0}, open(os.path.join(folder, "case.json"), "w"))


def kernels_of(folder):
    """The kernels of a case, each once, and how often it has them."""
    import tensorflow as tf

    definition = tf.compat.v1.GraphDef()
    definition.ParseFromString(open(os.path.join(folder, "graph.pb"), "rb").read())
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
    is_served = not any(node.op in ("VariableV2", "VarHandleOp") for node in definition.node)
    kernels = {}
    for op in graph.get_operations():
        if op.type in ("Conv2D", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul"):
            kernel = Kernel(op)
            kernel.packed = is_served
            kernels.setdefault(kernel.name, [kernel, 0])[1] += 1
    return kernels.values()


class Theirs(Side):
    """PyTorch, that computes one kernel after the other."""

    def measure(self, kernel, runs):
        """Milliseconds of its fastest way, which is named."""
        self.process.stdin.write(json.dumps({**vars(kernel), "runs": runs}) + "\n")
        self.process.stdin.flush()
        ways = json.loads(self.process.stdout.readline())
        return min((time, way) for way, time in ways.items())


def measured(kernel, theirs, args, scratch):
    folder = os.path.join(scratch, "kernel%d" % len(os.listdir(scratch)))
    kernel.write(folder)
    flags = ["--intra-op", str(args.threads), "--json"]
    mine, other = [], []
    for number in range(args.rounds):
        if number == 0:
            runs = max(5, min(2000, int(args.seconds * 1e3 / max(theirs.measure(kernel, 5)[0], 1e-3))))
        mine.append(json.loads(plimsoll("bench", folder, "--runs", str(runs), *flags))["median_ms"])
        other.append(theirs.measure(kernel, runs))
    ratios = sorted(a / b[0] for a, b in zip(mine, other))
    return statistics.median(mine), statistics.median(time for time, _ in other), statistics.median(ratios), ratios, min(other)[1]


def peak(args):
    """GFLOP/s of the largest product that stays in the second cache, the most of several runs."""
    best = 0
    with tempfile.TemporaryDirectory() as scratch:
        kernel = Kernel.__new__(Kernel)
        size = 512
        vars(kernel).update(op="MatMul", inputs=[[size, size]] * 2, output=[size, size], transpose=[False, False], packed=True, what="", flops=2 * size**3)
        kernel.write(os.path.join(scratch, "peak"))
        for _ in range(5):
            printed = json.loads(plimsoll("bench", os.path.join(scratch, "peak"), "--runs", "60", "--intra-op", str(args.threads), "--json"))
            best = max(best, kernel.flops / printed["p10_ms"] / 1e6)
    return best


def mean(ratios):
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", metavar="PYTHON", required=True, help="a Python with PyTorch")
    parser.add_argument("--only", help="only kernels whose name has this text; nothing is written")
    parser.add_argument("--network", action="append", help="only those of this network (again for more)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="how long a side's runs take in a round, about")
    parser.add_argument("--folder", help="where the networks are, or are built, as cases; they are kept")
    parser.add_argument("--write", default=os.path.join(HERE, "..", "docs", "kernels.md"), metavar="FILE")
    args = parser.parse_args()
    load, began = os.getloadavg()[0], time.monotonic()
    theirs = Theirs("PyTorch", [args.torch, TORCH, str(args.threads)])
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or scratch
        names = args.network or NETWORKS
        missing = [name for name in names if not os.path.exists(os.path.join(folder, name, "case.json"))]
        if missing:
            subprocess.run([sys.executable, SIDE, "build", folder, *missing], check=True, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        cases = os.path.join(scratch, "kernels")
        os.makedirs(cases)
        most = peak(args)
        print(f"peak {most:.0f} GFLOP/s", flush=True)
        rows, ratios = [], {}
        for name in names:
            for kernel, count in kernels_of(os.path.join(folder, name)):
                if args.only and args.only not in kernel.name:
                    continue
                mine, other, ratio, spread, way = measured(kernel, theirs, args, cases)
                ratios.setdefault(name, []).append((ratio, kernel.name))
                rate = kernel.flops / mine / 1e6
                rows.append(
                    f"| {name} | {kernel.op} | {kernel.what} | {count} | {mine * 1e3:.0f} | {rate:.0f} | {rate / most:.0%} | {other * 1e3:.0f} ({way}) | **{ratio:.2f}** | {spread[0]:.2f} to {spread[-1]:.2f} |"
                )
                print(rows[-1], flush=True)
    theirs.end()
    every = [ratio for of in ratios.values() for ratio, _ in of]
    summary = [f"| {name} | {len(of)} | {mean(ratio for ratio, _ in of):.2f} | {max(of)[0]:.2f}, {max(of)[1]} |" for name, of in ratios.items()]
    summary.append(f"| all | {len(every)} | {mean(every):.2f} | {sum(ratio > 1.2 for ratio in every)} above 1.2 |")
    print("\n".join(summary))
    if args.only or args.network:
        return
    with open(args.write, "w") as file:
        file.write(
            f"""# Single kernels beside oneDNN

Written by `python bench/kernels.py --torch PYTHON` in {time.monotonic() - began:.0f} seconds; nothing here was typed by hand.

- Machine: {machine()}. Load when it began: {load:.1f}. {args.threads} threads.
- PyTorch {theirs.versions["torch"]}: images channels last; its fastest way counts: `plain` computes with weights as they are, `packed` with weights
  that oneDNN has packed beforehand.
- Every shape of the convolutions and products of these networks, each as a graph of its own. Ours is a whole step of a session. Both sides
  allocate no tensors anew but PyTorch its results. Weights of what is served are constants, and packed beforehand.
- {args.rounds} rounds in turn; times are medians, the ratio is the median of the rounds' ratios. Below 1 ours is faster.
- The peak is the best rate of a product of 512 x 512 matrices, {most:.0f} GFLOP/s; forms with fewer multiplications may be above it.

| network | shapes | geometric mean of ratios | highest |
|---|---|---|---|
"""
            + "\n".join(summary)
            + "\n\n| network | op | shape | times in it | ours, us | GFLOP/s | of peak | PyTorch, us | ratio | in rounds |\n|---|---|---|---|---|---|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )


if __name__ == "__main__":
    main()
