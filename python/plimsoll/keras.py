"""Keras models for training without TensorFlow: `export_training` writes a compiled model as a SavedModel that trains itself.

plimsoll.keras.export_training(model, "exported", batch_size=32)          # needs TensorFlow and Keras, once
plimsoll.saved_model.load("exported").fit((x, y), epochs=3)               # needs neither
"""

from __future__ import annotations

import os
from typing import Any, List, Optional, Sequence, Tuple, Union

__all__ = ["export_training"]


def export_training(
    model: Any, path: Union[str, os.PathLike[str]], batch_size: Optional[int] = None, input_signature: Optional[Sequence[Any]] = None
) -> None:
    """Writes a compiled Keras model with one input and one output as a SavedModel with four signatures.

    `train_step(x, y)` takes a step of the model's optimizer; `test_step(x, y)` computes the same and changes no weights. Both give "loss"
    and the compiled metrics of the batch. `predict(x)` gives "output". `restore(checkpoint)` reads all variables from the files with this
    prefix, a string, and gives "restored", how many there are. A checkpoint of what is trained has the keys of
    `tf.train.Checkpoint(model=model, optimizer=model.optimizer)`, which restores it into the Keras model.

    `batch_size` fixes the size of a batch; without it, each size has its own plan. `input_signature` are the `tf.TensorSpec` of `x` and `y`
    where the model's input and output do not say them (for sparse labels: `y` is int32 of one size less).

    ValueError for a model that is not compiled, has no weights yet, or has several inputs or outputs.
    """
    import keras  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import tensorflow as tf  # type: ignore[import-not-found,import-untyped,unused-ignore]

    if keras.backend.backend() != "tensorflow":
        raise ValueError(f"Keras runs on {keras.backend.backend()} here: models are exported with its backend 'tensorflow'")
    if not getattr(model, "compiled", False) or model.optimizer is None:
        raise ValueError("the model is not compiled: call model.compile with an optimizer and a loss")
    if not model.built:
        raise ValueError("the model has no weights yet: give it an Input, or call model.build")
    if input_signature is None:
        x, y = _specs(tf, model, batch_size)
    else:
        x, y = (tf.TensorSpec(spec.shape, spec.dtype, name) for spec, name in zip(input_signature, ("x", "y")))
    # Metrics make their variables when they first see a batch.
    some_x, some_y = (tf.zeros([size or batch_size or 1 for size in spec.shape], spec.dtype) for spec in (x, y))
    made = model(some_x, training=False)
    model.compute_loss(x=some_x, y=some_y, y_pred=made, training=False)
    model.compute_metrics(some_x, some_y, made, None)
    module = _module(tf, model)
    signatures = {
        "train_step": module.train_step.get_concrete_function(x, y),
        "test_step": module.test_step.get_concrete_function(x, y),
        "predict": module.predict.get_concrete_function(x),
        "restore": module.restore.get_concrete_function(tf.TensorSpec([], tf.string, "checkpoint")),
    }
    tf.saved_model.save(module, os.fspath(path), signatures=signatures)


def _specs(tf: Any, model: Any, batch_size: Optional[int]) -> Any:
    """What the model's input and output say of `x` and `y`."""
    inputs, outputs = model.inputs, model.outputs
    if len(inputs) != 1 or len(outputs) != 1:
        raise ValueError(f"the model has {len(inputs)} inputs and {len(outputs)} outputs: models with one of each are exported")
    x, y = inputs[0], outputs[0]
    kind = y.dtype
    shape = [batch_size, *y.shape[1:]]
    loss = getattr(model.loss, "name", model.loss)
    if isinstance(loss, str) and "sparse" in loss.lower():
        kind, shape = "int32", shape[:-1]
    return tf.TensorSpec([batch_size, *x.shape[1:]], x.dtype, "x"), tf.TensorSpec(shape, kind, "y")


def _module(tf: Any, model: Any) -> Any:
    """The model with its optimizer and its steps, as an object that is saved."""

    class Training(tf.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.optimizer = model, model.optimizer
            self.optimizer.build(model.trainable_variables)
            self.metrics = [variable.value for metric in model.metrics for variable in metric.variables]

        def results(self, x: Any, y: Any, made: Any, loss: Any) -> Any:
            # The metrics are those of this batch alone.
            for metric in model.metrics:
                metric.reset_state()
            found = model.compute_metrics(x, y, made, None)
            return {
                **{name: tf.cast(value, tf.float32) for name, value in found.items() if name != "loss"},
                "loss": tf.cast(loss, tf.float32),
            }

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def train_step(self, x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                made = model(x, training=True)
                loss = model.compute_loss(x=x, y=y, y_pred=made, training=True)
                scaled = model.optimizer.scale_loss(loss)
            weights = model.trainable_variables
            model.optimizer.apply(tape.gradient(scaled, weights), weights)
            return self.results(x, y, made, loss)

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def test_step(self, x: Any, y: Any) -> Any:
            made = model(x, training=False)
            return self.results(x, y, made, model.compute_loss(x=x, y=y, y_pred=made, training=False))

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def predict(self, x: Any) -> Any:
            return {"output": model(x, training=False)}

        @tf.function  # type: ignore[untyped-decorator,unused-ignore]
        def restore(self, checkpoint: Any) -> Any:
            keys, variables = zip(*_variables(tf, self))
            kinds, whole = [variable.dtype for variable in variables], [""] * len(keys)
            read = tf.raw_ops.RestoreV2(prefix=checkpoint, tensor_names=keys, shape_and_slices=whole, dtypes=kinds)
            assigned = [variable.assign(value).op for variable, value in zip(variables, read)]
            with tf.control_dependencies(assigned):
                return {"restored": tf.identity(len(keys))}

    return Training()


def _variables(tf: Any, root: Any) -> List[Tuple[str, Any]]:
    """The variables of an object, and their keys in its checkpoints: the shortest way to each, the first of several."""
    view = tf.train.TrackableView(root)
    found, reached, known = [], [(root, "")], {id(root)}
    for node, way in reached:
        if hasattr(node, "handle"):
            found.append((f"{way}.ATTRIBUTES/VARIABLE_VALUE", node if isinstance(node, tf.Variable) else node.value))
        for name, child in view.children(node).items():
            if id(child) not in known:
                known.add(id(child))
                reached.append((child, f"{way}{name.replace('.', '..').replace('/', '.S')}/"))
    return found
