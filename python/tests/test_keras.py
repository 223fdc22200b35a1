"""Keras models that train without TensorFlow, and go back. TensorFlow is run apart: by PLIMSOLL_TENSORFLOW, a Python that has it."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("plimsoll._native", reason="the native module is not built", exc_type=ImportError)

from plimsoll import errors, saved_model  # noqa: E402

PROJECT = Path(__file__).resolve().parent.parent.parent
SAVED = PROJECT / "crates" / "cli" / "tests" / "saved"

EXPORT = """
import json, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy as np, tensorflow as tf
import plimsoll.keras
folder, what = sys.argv[1:]
keras.utils.set_random_seed(5)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dense(4)])
optimizer = keras.optimizers.Adam(0.02)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, name="sparse_categorical_crossentropy")
if what != "not compiled":
    model.compile(optimizer, loss, metrics=["accuracy"])
x, y = np.load(folder + "/x.npy"), np.load(folder + "/y.npy")
if what == "export":
    plimsoll.keras.export_training(model, folder + "/model", batch_size=8)
elif what == "not compiled":
    try:
        plimsoll.keras.export_training(model, folder + "/model")
    except ValueError as error:
        print(error)
else:
    assert "plimsoll._native" not in sys.modules
    before = model.predict(x, verbose=0)
    made = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history
    there = model.predict(x, verbose=0)
    tf.train.Checkpoint(model=model, optimizer=optimizer).restore(folder + "/weights").expect_partial()
    back = model.predict(x, verbose=0)
    np.save(folder + "/back.npy", back)
    print(json.dumps({"loss": made["loss"], "same": float(abs(there - back).max()), "moved": float(abs(there - before).max())}))
"""


def tensorflow(folder, what):
    python = os.environ.get("PLIMSOLL_TENSORFLOW") or (sys.executable if importlib.util.find_spec("tensorflow") else None)
    if python is None:
        pytest.skip("TensorFlow is not installed: PLIMSOLL_TENSORFLOW names a Python that has it")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "python"), "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run([python, "-c", EXPORT, str(folder), what], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_model_goes_out_trains_and_comes_back(tmp_path, capsys):
    random = np.random.default_rng(1)
    x = random.normal(size=(48, 6)).astype(np.float32)
    y = (x @ random.normal(size=(6, 4))).argmax(1).astype(np.int32)
    np.save(tmp_path / "x.npy", x), np.save(tmp_path / "y.npy", y)
    tensorflow(tmp_path, "export")
    with saved_model.load(tmp_path / "model") as model:
        assert set(model.signatures) >= {"train_step", "test_step", "predict", "restore"}
        before = model.evaluate((x, y))
        history = model.fit((x, y), epochs=2, seed=None)
        after = model.evaluate({"x": x, "y": y})
        assert after["loss"] < before["loss"] and 0 <= after["accuracy"] <= 1
        made = np.concatenate([model.signatures["predict"](x=x[i : i + 8])["output"] for i in range(0, 48, 8)])
        model.save(tmp_path / "weights")
        # The signature reads what was saved: the weights, and the state of the optimizer.
        kept = {name: model.session.read_variable(name) for name, _, _ in model.variables}
        model.fit((x, y), epochs=1, seed=None, verbose=False)
        assert any((model.session.read_variable(name) != value).any() for name, value in kept.items())
        count = model.signatures["restore"](checkpoint=str(tmp_path / "weights"))
        assert count["restored"] == len(kept)
        assert all((model.session.read_variable(name) == value).all() for name, value in kept.items())
        with pytest.raises(errors.NotFoundError):
            model.signatures["restore"](checkpoint=str(tmp_path / "nothing"))
    assert "epoch 2/2" in capsys.readouterr().out
    keras = json.loads(tensorflow(tmp_path, "train").splitlines()[-1])
    # Keras takes the same steps to the same weights, and has ours when it loads them.
    np.testing.assert_allclose(history["loss"], keras["loss"], rtol=1e-4)
    assert keras["same"] < 1e-4 < keras["moved"]
    np.testing.assert_allclose(np.load(tmp_path / "back.npy"), made, rtol=1e-5, atol=1e-5)
    assert "not compiled" in tensorflow(tmp_path, "not compiled")


def test_any_signature_of_steps_trains(capsys):
    x, y = np.load(SAVED / "x.npy"), np.load(SAVED / "y.npy")
    with saved_model.load(SAVED / "model") as model:
        history = model.fit((x, y), epochs=3, batch_size=6, signature="train", verbose=False)
        assert capsys.readouterr().out == ""
        assert len(history["loss"]) == 3 and history["loss"][-1] < history["loss"][0]
        again = model.fit([(x[:6], y[:6]), {"x": x[6:12], "y": y[6:12]}], signature="train", verbose=False)
        assert len(again["loss"]) == 1
        for wrong, kind in (((x, y[:1]), ValueError), ([x], TypeError), (iter([(x, y)]), TypeError), ([], ValueError)):
            with pytest.raises(kind):
                model.fit(wrong, signature="train", verbose=False)
        with pytest.raises(ValueError, match="no signature 'train_step'"):
            model.fit((x, y))
        with pytest.raises(errors.InvalidArgumentError):
            model.fit([{"nothing": x}], signature="train", verbose=False)
