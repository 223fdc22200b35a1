#!/usr/bin/env python3
"""Checks that Plimsoll trains what Keras exports, and that Keras loads the checkpoint.

    cargo build --release
    python scripts/check_keras_training.py [--program target/release/plimsoll] [NAME...]      (needs tensorflow-cpu 2.21)

For each network: Keras exports a training step, `plimsoll train` takes 20 steps, TensorFlow takes the same steps, and Keras restores
Plimsoll's checkpoint with tf.train.Checkpoint. Losses agree, and so do the predictions of both.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf

STEPS, BATCH = 20, 8


def mlp():
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])


def cnn():
    layers = keras.layers
    return keras.Sequential([
        keras.Input((8, 8, 3)), layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(),
        layers.MaxPooling2D(), layers.Conv2D(8, 3), layers.GlobalAveragePooling2D(), layers.Dense(4),
    ])


def transformer():
    layers = keras.layers
    tokens = keras.Input((7,), dtype="int32")
    x = layers.Embedding(11, 8)(tokens)
    attended = layers.MultiHeadAttention(2, 4)(x, x)
    x = layers.LayerNormalization()(x + attended)
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    return keras.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def floats(*shape):
    return lambda random: random.normal(size=shape).astype(np.float32)


NETWORKS = {
    "mlp_sgd_momentum": ("float32", mlp, lambda: keras.optimizers.SGD(0.05, momentum=0.9), floats(BATCH * STEPS, 6)),
    "mlp_lion": ("float32", mlp, lambda: keras.optimizers.Lion(0.001), floats(BATCH * STEPS, 6)),
    "mlp_lamb": ("float32", mlp, lambda: keras.optimizers.Lamb(0.01), floats(BATCH * STEPS, 6)),
    "cnn_adam": ("float32", cnn, lambda: keras.optimizers.Adam(0.01), floats(BATCH * STEPS, 8, 8, 3)),
    "cnn_mixed_float16": ("mixed_float16", cnn, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01)), floats(BATCH * STEPS, 8, 8, 3)),
    "cnn_mixed_bfloat16": ("mixed_bfloat16", cnn, lambda: keras.optimizers.Adam(0.01), floats(BATCH * STEPS, 8, 8, 3)),
    "transformer_adamw": ("float32", transformer, lambda: keras.optimizers.AdamW(0.01), lambda random: random.integers(0, 11, (BATCH * STEPS, 7)).astype(np.int32)),
}


class Training(tf.Module):
    """A network with its optimizer, as people export them."""

    def __init__(self, model, optimizer):
        super().__init__()
        self.model, self.optimizer = model, optimizer
        optimizer.build(model.trainable_variables)
        self.losses = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def score(self, y, logits):
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, -1, tf.int32), y), tf.float32))
        return {"loss": self.losses(y, logits), "accuracy": right}

    @tf.function
    def train(self, x, y):
        with tf.GradientTape() as tape:
            logits = self.model(x, training=True)
            scores = self.score(y, logits)
            scaled = self.optimizer.scale_loss(scores["loss"])
        gradients = tape.gradient(scaled, self.model.trainable_variables)
        self.optimizer.apply(gradients, self.model.trainable_variables)
        return scores

    @tf.function
    def evaluate(self, x, y):
        return self.score(y, self.model(x, training=False))

    @tf.function
    def predict(self, x):
        return {"logits": tf.cast(self.model(x, training=False), tf.float32)}


def make(name):
    policy, network, optimizer, _ = NETWORKS[name]
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    keras.config.set_dtype_policy(policy)
    return Training(network(), optimizer())


def export(training, x, y, folder):
    specs = [tf.TensorSpec([None, *array.shape[1:]], array.dtype, name) for name, array in [("x", x), ("y", y)]]
    functions = {name: getattr(training, name).get_concrete_function(*specs) for name in ["train", "evaluate"]}
    functions["predict"] = training.predict.get_concrete_function(specs[0])
    tf.saved_model.save(training, str(folder), signatures=functions)


def check(name, program, folder):
    random = np.random.default_rng(3)
    x = NETWORKS[name][3](random)
    y = random.integers(0, 4, len(x)).astype(np.int32)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    # Batches of all examples: then their order is no matter.
    training = make(name)
    export(training, x, y, folder / "model")
    said = subprocess.run(
        [program, "train", folder / "model", "--signature", "train", "--data", f"x={folder}/x.npy", "--data", f"y={folder}/y.npy",
         "--batch-size", str(len(x)), "--steps", str(STEPS), "--save", folder / "saved", "--json"],
        capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return f"plimsoll train: {said.stderr.strip()[-400:]}"
    document = json.loads(said.stdout)
    losses = [float(training.train(tf.constant(x), tf.constant(y))["loss"]) for _ in range(STEPS)]
    tolerance = 2e-2 if "mixed" in NETWORKS[name][0] else 1e-3
    if not np.isclose(document["final_loss"], losses[-1], rtol=tolerance, atol=tolerance):
        return f"loss {document['final_loss']}, TensorFlow's {losses[-1]}"
    restored = make(name)
    before = restored.predict(tf.constant(x))["logits"].numpy()
    tf.train.Checkpoint(model=restored.model, optimizer=restored.optimizer).restore(str(folder / f"saved/model.ckpt-{STEPS}")).expect_partial()
    after = restored.predict(tf.constant(x))["logits"].numpy()
    if np.allclose(before, after, rtol=1e-4, atol=1e-4):
        return "Keras restored nothing"
    said = subprocess.run(
        [program, "eval", folder / "model", "--signature", "predict", "--restore", folder / "saved", "--feed", f"x={folder}/x.npy",
         "--fetch", f"logits={folder}/logits.npy"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        return f"plimsoll eval: {said.stderr.strip()[-400:]}"
    if not np.allclose(np.load(folder / "logits.npy"), after, rtol=tolerance, atol=tolerance):
        return f"predictions differ by {np.abs(np.load(folder / 'logits.npy') - after).max()}"
    if int(restored.optimizer.iterations.numpy()) not in (STEPS, 0):
        return f"the optimizer counts {int(restored.optimizer.iterations.numpy())} steps"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="target/release/plimsoll")
    parser.add_argument("names", nargs="*", default=[])
    options = parser.parse_args()
    failed = 0
    for name in options.names or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            why = check(name, str(pathlib.Path(options.program).resolve()), pathlib.Path(folder))
        failed += why is not None
        print(f"{name}: {'OK' if why is None else why}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
