#!/usr/bin/env python3
"""Writes crates/cli/tests/saved: a SavedModel of TensorFlow 2 with a signature that trains, twelve examples, and the losses of
three steps on all of them; a Keras model as tf.saved_model.save writes it, whose functions use other variables than those that its
own restoring gives values to, and what it gives for the examples; a model of Keras variables without names, or with one name.

    python scripts/record_saved_model.py     (needs tensorflow-cpu 2.21)
"""
import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import keras
import tensorflow as tf

FOLDER = os.path.join(os.path.dirname(__file__), "..", "crates", "cli", "tests", "saved")


class Model(tf.Module):
    def __init__(self):
        values = np.random.default_rng(1)
        self.w = tf.Variable(values.normal(size=(4, 3)).astype(np.float32), name="w")
        self.b = tf.Variable(np.zeros(3, np.float32), name="b")
        self.velocity = tf.Variable(np.zeros((4, 3), np.float32), trainable=False, name="velocity")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x"), tf.TensorSpec([None], tf.int32, "y")])
    def train(self, x, y):
        with tf.GradientTape() as tape:
            logits = tf.matmul(x, self.w) + self.b
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
        dw, db = tape.gradient(loss, [self.w, self.b])
        self.velocity.assign(0.9 * self.velocity + dw)
        self.w.assign_sub(0.1 * self.velocity)
        self.b.assign_sub(0.1 * db)
        return {"loss": loss}


class Nameless(tf.Module):
    def __init__(self):
        self.parts = [keras.Variable(2.0), keras.Variable(3.0, name="part"), keras.Variable(5.0, name="part")]

    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, "x")])
    def serve(self, x):
        factor, *terms = (part.value for part in self.parts)
        for term in terms:
            x = x * factor + term
        return {"y": x}


def clean(model):
    shutil.rmtree(os.path.join(FOLDER, model, "assets"), ignore_errors=True)
    os.remove(os.path.join(FOLDER, model, "fingerprint.pb"))


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    model = Model()
    tf.saved_model.save(model, os.path.join(FOLDER, "model"), signatures={"train": model.train})
    clean("model")
    values = np.random.default_rng(2)
    x, y = values.normal(size=(12, 4)).astype(np.float32), values.integers(0, 3, size=12).astype(np.int32)
    losses = [float(model.train(x, y)["loss"]) for _ in range(3)]
    tf.random.set_seed(1)
    layers = [keras.layers.Input((4,)), keras.layers.Dense(5, activation="relu"), keras.layers.Dense(3, activation="softmax")]
    network = keras.Sequential(layers)
    tf.saved_model.save(network, os.path.join(FOLDER, "keras"))
    clean("keras")
    nameless = Nameless()
    tf.saved_model.save(nameless, os.path.join(FOLDER, "nameless"), signatures=nameless.serve)
    clean("nameless")
    for name, array in [("x", x), ("y", y), ("losses", np.array(losses, np.float32)), ("keras_y", network(x).numpy())]:
        np.save(os.path.join(FOLDER, f"{name}.npy"), array)


if __name__ == "__main__":
    main()
