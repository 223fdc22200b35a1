#!/usr/bin/env python3
"""Writes training graphs of towers, as TensorFlow's multi-GPU tutorial makes them, and the same graphs without device requests.

    python scripts/write_tower_graphs.py FOLDER [TOWERS]     (needs tensorflow-cpu 2.21)

FOLDER/NAME.pb and FOLDER/NAME_free.pb, where NAME is cifar, resnet50 or transformer with the number of towers behind it (8, if it is
left out). Each tower reads its own part of the batch, x and y; variables, averages of gradients and updates are on /cpu:0. `train` is the
step, `init` sets variables. The last line for each says which shapes fit what it feeds.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def variable(name, shape, value=None):
    """A variable on /cpu:0; without a value it begins with numbers of a size that suits its inputs."""
    with tf1.device("/cpu:0"):
        if value is None:
            start = tf1.truncated_normal_initializer(stddev=np.prod(shape[:-1]) ** -0.5, seed=7)
        else:
            start = tf1.constant_initializer(value)
        return tf1.get_variable(name, shape, initializer=start, use_resource=True)


def dense(name, x, inputs, outputs):
    return tf.matmul(x, variable(f"{name}_w", [inputs, outputs])) + variable(f"{name}_b", [outputs], 0.0)


def cifar(x):
    """The tutorial's network for images of 24x24: two convolutions with normalisation, two local layers, softmax."""
    for layer, (inputs, outputs) in enumerate([(3, 64), (64, 64)]):
        conv = tf.nn.conv2d(x, variable(f"conv{layer}_w", [5, 5, inputs, outputs]), strides=1, padding="SAME")
        conv = tf.nn.relu(tf.nn.bias_add(conv, variable(f"conv{layer}_b", [outputs], 0.1)))
        if layer == 0:
            x = tf.nn.lrn(tf.nn.max_pool2d(conv, 3, 2, "SAME"), 4, bias=1.0, alpha=0.001 / 9, beta=0.75)
        else:
            x = tf.nn.max_pool2d(tf.nn.lrn(conv, 4, bias=1.0, alpha=0.001 / 9, beta=0.75), 3, 2, "SAME")
    x = tf.reshape(x, [-1, 6 * 6 * 64])
    x = tf.nn.relu(dense("local3", x, 6 * 6 * 64, 384))
    x = tf.nn.relu(dense("local4", x, 384, 192))
    return dense("softmax", x, 192, 10)


def normalised(name, conv, channels):
    out = tf1.nn.fused_batch_norm(conv, variable(f"{name}_scale", [channels], 1.0), variable(f"{name}_offset", [channels], 0.0))
    return out[0]


def convolved(name, x, inputs, outputs, size, strides=1):
    conv = tf.nn.conv2d(x, variable(f"{name}_w", [size, size, inputs, outputs]), strides=strides, padding="SAME")
    return normalised(name, conv, outputs)


def resnet50(x):
    x = tf.nn.relu(convolved("stem", x, 3, 64, 7, 2))
    x = tf.nn.max_pool2d(x, 3, 2, "SAME")
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(blocks):
            name = f"stage{stage}_{block}"
            strides = 2 if block == 0 and stage > 0 else 1
            short = convolved(f"{name}_short", x, channels, 4 * width, 1, strides) if block == 0 else x
            out = tf.nn.relu(convolved(f"{name}_a", x, channels, width, 1, strides))
            out = tf.nn.relu(convolved(f"{name}_b", out, width, width, 3))
            x = tf.nn.relu(convolved(f"{name}_c", out, width, 4 * width, 1) + short)
            channels = 4 * width
    return dense("logits", tf.reduce_mean(x, [1, 2]), channels, 1000)


def transformer(x, width=256, heads=4, layers=4, length=64, words=1000):
    """An encoder; the mean of its states is classified."""

    def normal(name, x):
        mean, spread = tf.nn.moments(x, [-1], keepdims=True)
        return (x - mean) * tf1.rsqrt(spread + 1e-6) * variable(f"{name}_scale", [width], 1.0) + variable(f"{name}_offset", [width], 0.0)

    def split(x):
        return tf.transpose(tf.reshape(x, [-1, length, heads, width // heads]), [0, 2, 1, 3])

    x = tf.reshape(tf.gather(variable("words", [words, width]), tf.reshape(x, [-1])), [-1, width])
    for layer in range(layers):
        name = f"layer{layer}"
        query, key, value = (split(dense(f"{name}_{part}", x, width, width)) for part in ("query", "key", "value"))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) * (width // heads) ** -0.5)
        mixed = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [-1, width])
        x = normal(f"{name}_first", x + dense(f"{name}_mixed", mixed, width, width))
        x = normal(f"{name}_second", x + dense(f"{name}_down", tf.nn.relu(dense(f"{name}_up", x, width, 4 * width)), 4 * width, width))
    return dense("logits", tf.reduce_mean(tf.reshape(x, [-1, length, width]), 1), width, 10)


# The network, what one tower is fed, and its type.
GRAPHS = {
    "cifar": (cifar, [128, 24, 24, 3], tf.float32),
    "resnet50": (resnet50, [4, 224, 224, 3], tf.float32),
    "transformer": (transformer, [16, 64], tf.int32),
}


def build(network, shape, dtype, towers):
    with tf1.device("/cpu:0"):
        optimizer = tf1.train.MomentumOptimizer(0.1, 0.9)
        x = tf1.placeholder(dtype, [None, *shape[1:]], name="x")
        y = tf1.placeholder(tf.int32, [None], name="y")
        gradients = []
        for tower, (images, labels) in enumerate(zip(tf.split(x, towers), tf.split(y, towers))):
            with tf1.device(f"/gpu:{tower}"), tf1.name_scope(f"tower_{tower}"), tf1.variable_scope("model", reuse=tower > 0):
                logits = network(images)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
                gradients.append(optimizer.compute_gradients(loss))
        mean = [(tf.add_n([tf.convert_to_tensor(gradient) for gradient, _ in pair]) / towers, pair[0][1]) for pair in zip(*gradients)]
        tf.group(optimizer.apply_gradients(mean), name="train")
        tf1.variables_initializer(tf1.global_variables(), name="init")


def main():
    folder, towers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8
    os.makedirs(folder, exist_ok=True)
    for name, (network, shape, dtype) in GRAPHS.items():
        with tf.Graph().as_default() as graph:
            build(network, shape, dtype, towers)
            written = graph.as_graph_def()
        for ending in ("", "_free"):
            for node in written.node:
                if ending:
                    node.device = ""
            path = os.path.join(folder, f"{name}{towers}{ending}.pb")
            with open(path, "wb") as file:
                file.write(written.SerializeToString())
        batch = shape[0] * towers
        fed = "x".join(str(size) for size in [batch, *shape[1:]])
        print(f"{name}{towers}: {len(written.node)} nodes, --feed-shape x={fed} --feed-shape y={batch}")


if __name__ == "__main__":
    main()
