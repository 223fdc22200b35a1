#!/usr/bin/env python3
"""Writes crates/kernels/src/random/testdata/random.txt: what TensorFlow's random operations give for fixed seeds.

    python scripts/record_random.py > crates/kernels/src/random/testdata/random.txt     (needs tensorflow-cpu 2.21)

A line is one execution:

    OP TYPE SEED SEED2 ELEMENTS RUN EXTRA HASH INDEX=BITS ...

OP is the operation's name, SEED and SEED2 its attributes (for stateless operations the two numbers of the seed), RUN counts
the executions of one node in one session, EXTRA is `minval,maxval` or `-`. BITS is the element's bit pattern in hexadecimal.
HASH is FNV-1a (64 bit, one step for each byte) over the little-endian bytes of the whole output.
"""
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

SIZES = [1, 3, 4, 5, 7, 100, 1000, 100003]
SEEDS = [(42, 7), (87654321, 1), (0, 3), (5, 0), (-3, 1 << 40)]


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def line(op, seed, seed2, run, extra, output):
    flat = np.ascontiguousarray(output).reshape(-1)
    bits = flat.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[flat.itemsize])
    count = len(flat)
    chosen = range(count) if count <= 8 else sorted({*range(6), *range(count - 6, count), *range(0, count, max(1, count // 24))})
    values = " ".join(f"{at}={bits[at]:x}" for at in chosen)
    name = tf.as_dtype(flat.dtype).name.replace("float32", "float").replace("float64", "double").replace("float16", "half") if flat.dtype != tf.bfloat16.as_numpy_dtype else "bfloat16"
    print(op, name, seed, seed2, count, run, extra, f"{fnv(flat.tobytes()):x}", values)


def stateful(op, dtype, seeds, sizes, bounds=None):
    for seed, seed2 in seeds:
        graph = tf.Graph()
        with graph.as_default():
            nodes = []
            for size in sizes:
                if bounds:
                    low, high = (tf.constant(bound, dtype) for bound in bounds)
                    node = tf.raw_ops.RandomUniformInt(shape=[size], minval=low, maxval=high, seed=seed, seed2=seed2)
                else:
                    node = getattr(tf.raw_ops, op)(shape=[size], dtype=dtype, seed=seed, seed2=seed2)
                nodes.append(node)
            with tf.compat.v1.Session(graph=graph) as session:
                runs = [session.run(nodes) for _ in range(2)]
        for number, outputs in enumerate(runs):
            for output in outputs:
                line(op, seed, seed2, number, ",".join(map(str, bounds)) if bounds else "-", output)


def stateless(op, dtype, seeds, sizes, bounds=None):
    for seed in seeds:
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
        for size in sizes:
            more = dict(zip(("minval", "maxval"), (tf.constant(bound, dtype) for bound in bounds))) if bounds else {"dtype": dtype}
            output = getattr(tf.raw_ops, op)(shape=[size], key=key, counter=counter, alg=1, **more)
            line(op, *seed, 0, ",".join(map(str, bounds)) if bounds else "-", output.numpy())


def key_counters():
    for seed in SEEDS:
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=tf.constant(seed, tf.int64))
        line("StatelessRandomGetKeyCounter", *seed, 0, "-", np.concatenate([key.numpy(), counter.numpy()]))


for kind in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
    stateful(kind, tf.float32, SEEDS, SIZES)
    stateful(kind, tf.float64, SEEDS[:2], [1, 5, 1000])
stateful("RandomUniformInt", tf.int32, SEEDS[:3], SIZES, (-5, 1000))
stateful("RandomUniformInt", tf.int32, SEEDS[:1], [100], (-2147483648, 2147483647))
stateful("RandomUniformInt", tf.int64, SEEDS[:2], [1, 5, 1000], (-5, 1 << 40))
key_counters()
stateless("StatelessRandomUniformV2", tf.float32, SEEDS, [1, 5, 1000, 100003])
stateless("StatelessRandomUniformV2", tf.float64, SEEDS[:1], [5])
stateless("StatelessRandomNormalV2", tf.float32, SEEDS[:2], [5, 1000])
stateless("StatelessTruncatedNormalV2", tf.float32, SEEDS[:2], [5, 1000])
stateless("StatelessRandomUniformIntV2", tf.int32, SEEDS[:2], [5, 1000], (-5, 1000))
for dtype in (tf.float16, tf.bfloat16):
    for kind in ("RandomUniform", "RandomStandardNormal", "TruncatedNormal"):
        stateful(kind, dtype, SEEDS[:2], [1, 5, 1000])
    for kind in ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"):
        stateless(kind, dtype, SEEDS[:1], [5, 1000])
