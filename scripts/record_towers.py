#!/usr/bin/env python3
"""Records training cases in crates/cli/tests/cases: small convolutional towers as TensorFlow's CIFAR-10 tutorial makes them.

    python scripts/record_towers.py [CASE...]     (needs tensorflow-cpu 2.21)

Variables and averaged gradients on /cpu:0, a tower on each other device; losses and learning rates are fetched while it trains,
then every variable.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

from record_cases import record

tf1 = tf.compat.v1
IMAGE, CLASSES = (8, 8, 3), 5


class Variables:
    """Variables on /cpu:0 that begin with numbers drawn from one seed."""

    def __init__(self, use_resource):
        self.use_resource, self.random = use_resource, np.random.default_rng(11)
        self.start = {}

    def __call__(self, name, shape, stddev=None):
        with tf1.device("/cpu:0"):
            if name not in self.start:
                drawn = np.full(shape, 0.1) if stddev is None else np.clip(self.random.normal(size=shape), -2, 2) * stddev
                self.start[name] = np.round(drawn, 3).astype(np.float32)
                return tf1.get_variable(name, initializer=tf.constant(self.start[name]), use_resource=self.use_resource)
            return tf1.get_variable(name, use_resource=self.use_resource)


def decayed(variable, rate):
    return tf.multiply(tf.constant(rate), tf.nn.l2_loss(variable))


def cifar(variable, x, y):
    """Two convolutions, a local layer, softmax; weight decay on the local layer. The loss."""
    with tf1.name_scope("conv1"):
        conv = tf.nn.conv2d(x, variable("conv1_w", [3, 3, 3, 4], 0.3), strides=1, padding="SAME")
        conv = tf.nn.relu(tf.nn.bias_add(conv, variable("conv1_b", [4])))
        norm = tf.nn.lrn(tf.nn.max_pool2d(conv, 3, 2, "SAME"), 4, bias=1.0, alpha=0.001 / 9, beta=0.75)
    with tf1.name_scope("conv2"):
        conv = tf.nn.conv2d(norm, variable("conv2_w", [3, 3, 4, 6], 0.3), strides=1, padding="SAME")
        conv = tf.nn.relu(tf.nn.bias_add(conv, variable("conv2_b", [6])))
        pool = tf.nn.max_pool2d(tf.nn.lrn(conv, 2, bias=1.0, alpha=0.3, beta=0.75), 2, 2, "VALID")
    flat = tf.reshape(pool, [tf.shape(x)[0], 24])
    with tf1.name_scope("local3"):
        weights = variable("local3_w", [24, 10], 0.3)
        local = tf.nn.relu(tf.matmul(flat, weights) + variable("local3_b", [10]))
        decay = decayed(weights, 0.004)
    with tf1.name_scope("softmax"):
        logits = tf.matmul(local, variable("softmax_w", [10, CLASSES], 0.3)) + variable("softmax_b", [CLASSES])
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.add_n([tf.reduce_mean(loss), decay], name="total_loss")


def separable(variable, x, y):
    """A strided convolution, a depthwise and a pointwise one, average pooling, softmax with dense labels. The loss."""
    conv = tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, variable("conv_w", [3, 3, 3, 4], 0.5), strides=2, padding="SAME"), variable("conv_b", [4])))
    deep = tf.nn.depthwise_conv2d(conv, variable("deep_w", [3, 3, 4, 2], 0.5), strides=[1, 1, 1, 1], padding="SAME")
    point = tf.nn.relu(tf.nn.conv2d(deep, variable("point_w", [1, 1, 8, 8], 0.4), strides=1, padding="VALID"))
    pool = tf.nn.avg_pool2d(point, 2, 2, "SAME")
    mean = tf.reduce_mean(pool, [1, 2])
    logits = tf1.nn.bias_add(tf.matmul(mean, variable("softmax_w", [8, CLASSES], 0.5)), variable("softmax_b", [CLASSES]))
    tf.nn.softmax(logits, name="probabilities")
    right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), y)
    tf.reduce_mean(tf.cast(right, tf.float32), name="accuracy")
    loss = tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(y, CLASSES), logits=logits)
    return tf.reduce_mean(loss, name="total_loss")


def by_concat(gradients):
    """As the tutorial averages."""
    return tf.reduce_mean(tf.concat([tf.expand_dims(gradient, 0) for gradient in gradients], 0), 0)


def by_stack(gradients):
    return tf.reduce_mean(tf.stack(gradients), axis=0)


def placeholders(suffix=""):
    return tf1.placeholder(tf.float32, [None, *IMAGE], name=f"x{suffix}"), tf1.placeholder(tf.int32, [None], name=f"y{suffix}")


def split(parts):
    """One fed batch in parts: as many as said, or of the sizes said."""
    x, y = placeholders()
    return list(zip(tf.split(x, parts), tf.split(y, parts)))


def train(parts, optimizer, use_resource, device="/gpu:{}", model=cifar, average=by_concat, averages=None):
    """A training graph: `train`, `init`, `loss_sum`, `lr`. `averages` is None for no moving averages, `with` for averages that
    `train` updates in any order, as the tutorial does, and `apart` for an operation `average`."""
    # Moving averages of ref variables begin with Switch and Merge, of resource variables with If.
    (tf1.enable_control_flow_v2 if use_resource else tf1.disable_control_flow_v2)()
    with tf1.device("/cpu:0"):
        step = tf1.train.get_or_create_global_step()
        rate = tf1.train.exponential_decay(0.1, step, 2, 0.5, staircase=True)
        chosen = optimizer(rate)
        variable, losses, gradients = Variables(use_resource), [], []
        inputs = parts()
        for tower, (x, y) in enumerate(inputs):
            with tf1.device(device.format(tower)), tf1.name_scope(f"tower_{tower}"), tf1.variable_scope("model", reuse=tower > 0):
                losses.append(model(variable, x, y))
                gradients.append(chosen.compute_gradients(losses[-1]))
        if len(gradients) > 1:
            mean = [(average([gradient for gradient, _ in pair]), pair[0][1]) for pair in zip(*gradients)]
        else:
            mean = gradients[0]
        apply = chosen.apply_gradients(mean, global_step=step)
        if averages:
            moving = tf1.train.ExponentialMovingAverage(0.9, step).apply(tf1.trainable_variables())
        tf.group(apply, *([moving] if averages == "with" else []), name="train")
        if averages == "apart":
            tf.group(moving, name="average")
        tf.add_n(losses, name="loss_sum")
        tf.identity(rate, name="lr")
        tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def batches(sizes, seed, suffixes=("",)):
    """What each step is fed: images that lean towards their labels."""
    random = np.random.default_rng(seed)
    lean = random.normal(size=(CLASSES, *IMAGE)) * 0.5
    for size in sizes:
        feeds = {}
        for suffix in suffixes:
            y = random.integers(0, CLASSES, size).astype(np.int32)
            feeds[f"x{suffix}:0"] = np.round(random.normal(size=(size, *IMAGE)) + lean[y], 2).astype(np.float32)
            feeds[f"y{suffix}:0"] = y
        yield feeds


def reads(build):
    """The names of the tensors that are the variables' values."""
    with tf.Graph().as_default():
        build()
        return [variable.value().name if "Resource" not in type(variable).__name__ else f"{variable.op.name}/Read/ReadVariableOp:0"
                for variable in tf1.global_variables()]


SGD = tf1.train.GradientDescentOptimizer
MOMENTUM = lambda nesterov: lambda rate: tf1.train.MomentumOptimizer(rate, 0.9, use_nesterov=nesterov)
# What is fetched is read before it changes only where the training needs it too.
ADAM = lambda rate: tf1.train.AdamOptimizer(rate * 0.2)

CASES = {
    "towers3_sgd_ref": ("three towers, ref variables, gradient descent, moving averages",
                        lambda: train(lambda: split(3), SGD, False, averages="with"), lambda: batches([6, 6, 6, 9], 1), {"stripped": True}),
    "towers4_sgd_resource": ("four towers fed apart, resource variables, gradient descent, moving averages",
                             lambda: train(lambda: [placeholders(f"_{tower}") for tower in range(4)], SGD, True, averages="with"),
                             lambda: batches([2, 2, 1], 2, ["_0", "_1", "_2", "_3"]), {"stripped": True}),
    "towers2_momentum_resource": ("two towers on two logical CPUs, resource variables, momentum, moving averages on their own",
                                  lambda: train(lambda: split(2), MOMENTUM(False), True, device="/cpu:{}", averages="apart"),
                                  lambda: batches([6, 6, 6], 3), {"devices": 2, "stripped": True}),
    "towers2_nesterov_resource": ("two towers, resource variables, Nesterov's momentum", lambda: train(lambda: split(2), MOMENTUM(True), True),
                                  lambda: batches([6, 6, 6], 4), {"stripped": True}),
    "towers2_adam_ref": ("two towers, ref variables, Adam, moving averages on their own",
                         lambda: train(lambda: split(2), ADAM, False, averages="apart"), lambda: batches([4, 4, 4, 4], 5), {"stripped": True}),
    "separable_momentum_ref": ("one tower: depthwise convolution, average pooling, dense labels, momentum, ref variables",
                               lambda: train(lambda: split(1), MOMENTUM(False), False, model=separable), lambda: batches([6, 6, 6], 6), {"stripped": True}),
    "separable_adam_resource": ("one tower: depthwise convolution, average pooling, dense labels, Adam, resource variables",
                                lambda: train(lambda: split(1), ADAM, True, model=separable), lambda: batches([5, 5, 5], 7), {"stripped": True}),
    "towers3_uneven_stack": ("three towers of uneven parts of a batch, gradients averaged by Pack, ref variables",
                             lambda: train(lambda: split([3, 2, 1]), SGD, False, device="/cpu:{}", average=by_stack), lambda: batches([6, 6, 6], 8), {"devices": 3, "stripped": True}),
    "towers8_sgd_ref": ("eight towers, ref variables, gradient descent; the last step trains", lambda: train(lambda: split(8), SGD, False),
                        lambda: batches([64, 64], 9), {"stripped": True}),
}


def main():
    for name in sys.argv[1:] or CASES:
        note, build, steps, options = CASES[name]
        apart = "on their own" in note
        fetches = ["loss_sum:0", "lr:0"]
        if "one tower" in note:
            fetches += ["tower_0/model/probabilities:0", "tower_0/model/accuracy:0"]
        taken = []
        for feeds in steps():
            taken.append((feeds, fetches, ["train"]))
            if apart:
                taken.append(({}, [], ["average"]))
        values = [read for read in reads(build) if apart or "ExponentialMovingAverage" not in read]
        taken.insert(len(taken) - ("the last step trains" in note), ({}, values, []))
        record(name, build, taken, note=note, as_written=True, **options)


if __name__ == "__main__":
    main()
