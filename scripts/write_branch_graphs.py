#!/usr/bin/env python3
"""Writes graphs of networks with branches, for one image: Keras's Inception v3, and a U-Net. docs/placement.md measures them.

    python scripts/write_branch_graphs.py FOLDER     (needs tensorflow-cpu 2.21)

FOLDER/inception.pb and FOLDER/unet.pb; weights are constants of random values. `x` is fed, `y` is the result. The number of nodes depends
on Keras's version.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2


def unet(size=256, width=64, depth=4):
    """Two convolutions for each level on the way down and up; what a level had on the way down comes back on the way up."""
    layers = tf.keras.layers

    def level(x, channels):
        for _ in range(2):
            x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        return x

    x = start = layers.Input([size, size, 3])
    kept = []
    for step in range(depth):
        kept.append(level(x, width << step))
        x = layers.MaxPooling2D()(kept[-1])
    x = level(x, width << depth)
    for step in reversed(range(depth)):
        x = layers.Conv2DTranspose(width << step, 2, strides=2)(x)
        x = level(layers.Concatenate()([kept[step], x]), width << step)
    return tf.keras.Model(start, layers.Conv2D(2, 1)(x))


NETWORKS = {"inception": lambda: tf.keras.applications.InceptionV3(weights=None), "unet": unet}


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, network in NETWORKS.items():
        tf.keras.utils.set_random_seed(1)
        model = network()

        @tf.function
        def infer(x):
            return tf.identity(model(x, training=False), name="y")

        shape = [1, *model.input_shape[1:]]
        frozen = convert_variables_to_constants_v2(infer.get_concrete_function(tf.TensorSpec(shape, tf.float32, name="x")))
        graph = frozen.graph.as_graph_def()
        with open(os.path.join(folder, f"{name}.pb"), "wb") as file:
            file.write(graph.SerializeToString())
        print(f"{name}: {len(graph.node)} nodes, --fetch y --feed-shape x={'x'.join(map(str, shape))}")


if __name__ == "__main__":
    main()
