#!/usr/bin/env python3
"""Trains with each optimizer of Keras 3, and lets plimsoll repeat the steps.

    cargo build --release
    python scripts/check_optimizers.py target/release/plimsoll [NAME...]      (needs tensorflow-cpu 2.21)

A small network with batch normalization is saved with a training step and a prediction as signatures. TensorFlow takes six steps
and predicts; `plimsoll verify` has to agree with every loss and with the prediction.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import numpy as np
import tensorflow as tf
from keras import optimizers

STEPS = 6
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.05),
    "sgd_nesterov": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "rmsprop": lambda: optimizers.RMSprop(0.01),
    "rmsprop_centered": lambda: optimizers.RMSprop(0.01, centered=True, momentum=0.5),
    "adam": lambda: optimizers.Adam(0.01),
    "adam_amsgrad": lambda: optimizers.Adam(0.01, amsgrad=True, global_clipnorm=1.0),
    "adamw": lambda: optimizers.AdamW(0.01, clipnorm=1.0),
    "adadelta": lambda: optimizers.Adadelta(0.5),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adamax": lambda: optimizers.Adamax(0.01),
    "adafactor": lambda: optimizers.Adafactor(0.01),
    "nadam": lambda: optimizers.Nadam(0.01, clipvalue=0.5),
    "ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "lion": lambda: optimizers.Lion(0.01),
    "lamb": lambda: optimizers.Lamb(0.01),
    "muon": lambda: optimizers.Muon(0.01),
    "loss_scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=1024.0, dynamic_growth_steps=2),
    "averages": lambda: optimizers.Adam(
        optimizers.schedules.ExponentialDecay(0.01, 2, 0.9), use_ema=True, ema_overwrite_frequency=2
    ),
    "accumulation": lambda: optimizers.SGD(
        optimizers.schedules.CosineDecay(0.1, 10, warmup_target=0.2, warmup_steps=3), gradient_accumulation_steps=2
    ),
}


class Trained(tf.Module):
    """A network, its optimizer, and the functions that are saved."""

    def __init__(self, optimizer):
        super().__init__()
        inputs = keras.Input((6,))
        hidden = keras.layers.Dense(8, activation="relu")(inputs)
        outputs = keras.layers.Dense(3)(keras.layers.BatchNormalization()(hidden))
        self.model, self.optimizer = keras.Model(inputs, outputs), optimizer
        optimizer.build(self.model.trainable_variables)
        self.kept = [variable.value for variable in self.model.variables + optimizer.variables]
        self.loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, "x"), tf.TensorSpec([None], tf.int32, "y")])
    def train(self, x, y):
        variables = self.model.trainable_variables
        with tf.GradientTape() as tape:
            loss = self.loss(y, self.model(x, training=True))
            scaled = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        self.optimizer.apply(gradients, variables)
        return {"loss": loss}

    @tf.function(input_signature=[tf.TensorSpec([None, 6], tf.float32, "x")])
    def predict(self, x):
        return {"output": self.model(x, training=False)}


def record(name, folder):
    keras.utils.set_random_seed(3)
    trained = Trained(OPTIMIZERS[name]())
    signatures = {"train": trained.train.get_concrete_function(), "predict": trained.predict.get_concrete_function()}
    tf.saved_model.save(trained, str(folder / "model"), signatures=signatures)
    x = np.random.RandomState(0).randn(16, 6).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32) + (x[:, 1] > 0.5).astype(np.int32)
    steps = []
    for number in range(STEPS + 1):
        signature = "train" if number < STEPS else "predict"
        feeds = {"x": x, "y": y} if signature == "train" else {"x": x}
        result = getattr(trained, signature)(**{key: tf.constant(value) for key, value in feeds.items()})
        step = {"signature": signature, "targets": []}
        for kind, values in (("feeds", feeds), ("fetches", result)):
            step[kind] = {key: f"{kind}_{number}_{key}.npy" for key in values}
            for key, value in values.items():
                np.save(folder / step[kind][key], np.asarray(value))
        steps.append(step)
    case = {"name": name, "tensorflow": tf.__version__, "rtol": 1e-4, "atol": 1e-5, "steps": steps, "saved_model": "model"}
    (folder / "case.json").write_text(json.dumps(case, indent=1))


if __name__ == "__main__":
    command, names = sys.argv[1], sys.argv[2:] or OPTIMIZERS
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            record(name, pathlib.Path(folder))
            result = subprocess.run([command, "verify", folder], capture_output=True, text=True)
            print((result.stdout.splitlines() or [name])[0], result.stderr.strip())
            assert result.returncode == 0, name
