#!/usr/bin/env python3
"""Writes training steps for cards as recorded cases without recorded values: for `plimsoll bench` and bench/gpu/pack.sh.

    python scripts/write_card_cases.py FOLDER [NAME...]     (needs tensorflow-cpu 2.21)

FOLDER/NAME is resnet50_256_bf16, resnet50_256_float, gpt2_16x1024_bf16 (124M) or bert_base_64x128_bf16; all four, if none is named, or with
`_tiny` behind them small ones of the same form. As with automatic mixed precision, variables, norms, softmax and losses are floats, products and
convolutions bfloat16. The optimizer is momentum. Inputs are variables that `init` draws, so nothing is fed, and there is nothing to compare losses with.
"""
import json
import os
import pathlib
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def variable(name, shape, value=None, deviation=None):
    if value is None:
        start = tf1.random_normal_initializer(stddev=deviation or float(np.prod(shape[:-1])) ** -0.5, seed=7)
    else:
        start = tf1.constant_initializer(value)
    return tf1.get_variable(name, shape, initializer=start, use_resource=True)


def drawn(name, start):
    """A variable that is not trained."""
    return tf1.get_variable(name, initializer=start, use_resource=True, trainable=False)


def classes(name, shape, below):
    return drawn(name, lambda: tf.random.uniform(shape, 0, below, tf.int32, seed=5))


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=tf.cast(logits, tf.float32), labels=labels))


class ResNet:
    """ResNet-50, version 1.5: strides are those of the 3x3 convolutions."""

    def __init__(self, low, batch, pixels=224, blocks=(3, 4, 6, 3)):
        self.low, self.batch, self.pixels, self.blocks = low, batch, pixels, blocks

    def convolved(self, name, x, inputs, outputs, size, strides=1, relu=True):
        w = tf.cast(variable(f"{name}_w", [size, size, inputs, outputs]), self.low)
        y = tf.nn.conv2d(x, w, strides=strides, padding="SAME")
        y = tf1.nn.fused_batch_norm(y, variable(f"{name}_scale", [outputs], 1.0), variable(f"{name}_offset", [outputs], 0.0))[0]
        return tf.nn.relu(y) if relu else y

    def loss(self):
        images = drawn("images", lambda: tf.random.normal([self.batch, self.pixels, self.pixels, 3], seed=3))
        x = self.convolved("stem", tf.cast(images, self.low), 3, 64, 7, 2)
        x = tf.nn.max_pool2d(x, 3, 2, "SAME")
        channels = 64
        for stage, blocks in enumerate(self.blocks):
            width = 64 << stage
            for block in range(blocks):
                name, strides = f"stage{stage}_{block}", 2 if block == 0 and stage > 0 else 1
                short = self.convolved(f"{name}_short", x, channels, 4 * width, 1, strides, False) if block == 0 else x
                out = self.convolved(f"{name}_a", x, channels, width, 1)
                out = self.convolved(f"{name}_b", out, width, width, 3, strides)
                x = tf.nn.relu(self.convolved(f"{name}_c", out, width, 4 * width, 1, 1, False) + short)
                channels = 4 * width
        x = tf.cast(tf.reduce_mean(tf.cast(x, tf.float32), [1, 2]), self.low)
        logits = tf.matmul(x, tf.cast(variable("logits_w", [channels, 1000]), self.low))
        logits = tf.cast(logits, tf.float32) + variable("logits_b", [1000], 0.0)
        return cross_entropy(logits, classes("labels", [self.batch], 1000))


class Transformer:
    """GPT-2, or BERT, where norms are behind the sums and every word is predicted."""

    def __init__(self, low, batch, length, causal, width=768, layers=12, heads=12, words=50257):
        self.low, self.batch, self.length, self.causal = low, batch, length, causal
        self.width, self.layers, self.heads, self.words = width, layers, heads, words

    def dense(self, name, x, inputs, outputs):
        w = tf.cast(variable(f"{name}_w", [inputs, outputs], deviation=0.02), self.low)
        return tf.matmul(tf.cast(x, self.low), w) + tf.cast(variable(f"{name}_b", [outputs], 0.0), self.low)

    def normalised(self, name, x):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        scale, offset = variable(f"{name}_scale", [self.width], 1.0), variable(f"{name}_offset", [self.width], 0.0)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * scale + offset

    def mixed(self, name, x):
        size = self.width // self.heads

        def split(part):
            x_part = self.dense(f"{name}_{part}", x, self.width, self.width)
            return tf.transpose(tf.reshape(x_part, [self.batch, self.length, self.heads, size]), [0, 2, 1, 3])

        scores = tf.cast(tf.matmul(split("query"), split("key"), transpose_b=True), tf.float32) * size**-0.5
        if self.causal:
            scores += self.later
        mixed = tf.matmul(tf.cast(tf.nn.softmax(scores), self.low), split("value"))
        mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [self.batch * self.length, self.width])
        return tf.cast(self.dense(f"{name}_out", mixed, self.width, self.width), tf.float32)

    def fed_forward(self, name, x):
        x = self.dense(f"{name}_up", x, self.width, 4 * self.width)
        x = tf.nn.gelu(x, approximate=self.causal)
        return tf.cast(self.dense(f"{name}_down", x, 4 * self.width, self.width), tf.float32)

    def loss(self):
        tokens = tf.reshape(classes("tokens", [self.batch, self.length], self.words), [-1])
        embedding = variable("embedding", [self.words, self.width], deviation=0.02)
        places = tf.tile(variable("places", [self.length, self.width], deviation=0.02), [self.batch, 1])
        x = tf.gather(embedding, tokens) + places
        # Where a word would see later ones.
        self.later = tf.constant(np.triu(np.full([self.length, self.length], -1e9, np.float32), 1)) if self.causal else None
        if not self.causal:
            x = self.normalised("first", x)
        for layer in range(self.layers):
            name = f"layer{layer}"
            for part, does in (("attention", self.mixed), ("feed", self.fed_forward)):
                if self.causal:
                    x = x + does(f"{name}_{part}", self.normalised(f"{name}_{part}", x))
                else:
                    x = self.normalised(f"{name}_{part}", x + does(f"{name}_{part}", x))
        if self.causal:
            x = self.normalised("last", x)
        logits = tf.matmul(tf.cast(x, self.low), tf.cast(embedding, self.low), transpose_b=True)
        return cross_entropy(logits, classes("labels", [self.batch * self.length], self.words))


TINY = {"width": 32, "layers": 2, "heads": 4, "words": 50}
NETWORKS = {
    "resnet50_256_bf16": lambda: ResNet(tf.bfloat16, 256),
    "resnet50_256_bf16_tiny": lambda: ResNet(tf.bfloat16, 2, 32, (1, 1, 1, 1)),
    "resnet50_256_float": lambda: ResNet(tf.float32, 256),
    "resnet50_256_float_tiny": lambda: ResNet(tf.float32, 2, 32, (1, 1, 1, 1)),
    "gpt2_16x1024_bf16": lambda: Transformer(tf.bfloat16, 16, 1024, True),
    "gpt2_16x1024_bf16_tiny": lambda: Transformer(tf.bfloat16, 2, 16, True, **TINY),
    "bert_base_64x128_bf16": lambda: Transformer(tf.bfloat16, 64, 128, False, words=30522),
    "bert_base_64x128_bf16_tiny": lambda: Transformer(tf.bfloat16, 2, 16, False, **TINY),
}


def write(folder, name):
    with tf.Graph().as_default() as graph:
        loss = tf.identity(NETWORKS[name]().loss(), name="loss")
        tf1.train.MomentumOptimizer(0.01, 0.9).minimize(loss, name="train")
        tf.group(tf1.global_variables_initializer(), name="init")
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.pb").write_bytes(graph.as_graph_def().SerializeToString())
    np.save(folder / "loss.npy", np.float32(0))
    step = {"feeds": {}, "fetches": {"loss:0": "loss.npy"}, "targets": ["train"]}
    # Any loss is near enough.
    case = {"name": name, "graph": "graph.pb", "init": ["init"], "steps": [step, step], "rtol": 0.0, "atol": 1e9}
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    print(f"{folder}: {len(graph.get_operations())} nodes")


def main():
    if len(sys.argv) < 2 or any(name not in NETWORKS for name in sys.argv[2:]):
        raise SystemExit(__doc__)
    for name in sys.argv[2:] or [name for name in NETWORKS if not name.endswith("_tiny")]:
        write(pathlib.Path(sys.argv[1]), name)


main()
