"""Writes the graphs of transformers whose attention is Keras' MultiHeadAttention in bfloat16, which docs/commands.md plans.

    python scripts/write_keras_transformers.py FOLDER

Needs Python with tensorflow-cpu==2.21.0 and Keras 3.15. Weights are zeros: plans ask for shapes alone.
"""

import pathlib
import sys

import keras
import tensorflow as tf
from tensorflow.python.eager.context import eager_mode

from record_keras_cases import traced, tf1

LAYERS, HEADS, WIDTH = 12, 12, 768


def transformer(batch, length, is_causal, dropout, is_trained):
    """A graph that fetches `result`, and with a step of training has the target `train`."""
    x = tf1.placeholder(tf.float32, [batch, length, WIDTH], name="x")
    seen = tf1.placeholder(tf.bool, [batch, length], name="seen")
    with eager_mode():
        of = {"dtype": keras.DTypePolicy("mixed_bfloat16")}
        layers = keras.layers
        blocks = [
            [layers.LayerNormalization(**of), layers.MultiHeadAttention(HEADS, WIDTH // HEADS, dropout=dropout, **of),
             layers.LayerNormalization(**of), layers.Dense(4 * WIDTH, "gelu", **of), layers.Dense(WIDTH, **of)]
            for _ in range(LAYERS)
        ]

    def loss(x, seen):
        x = tf.cast(x, tf.bfloat16)
        for before, attention, behind, wide, narrow in blocks:
            read = before(x)
            mask = None if is_causal else seen[:, None, :]
            x += attention(read, read, attention_mask=mask, use_causal_mask=is_causal, training=is_trained)
            x += narrow(wide(behind(x)))
        return [tf.reduce_mean(tf.square(tf.cast(x, tf.float32)))]

    def step(x, seen):
        with tf.GradientTape() as tape:
            [value] = loss(x, seen)
        return [value, *tape.gradient(value, [variable.value for variable in variables])]

    with eager_mode():
        loss(tf.zeros([1, length, WIDTH]), tf.ones([1, length], tf.bool))
        layers = [layer for block in blocks for layer in block]
        variables = [variable for layer in layers for variable in layer.trainable_variables]
        # The states of random numbers, where shares drop out.
        states = [variable for layer in layers for variable in layer.non_trainable_variables]
    start = tf1.zeros_initializer()
    own = [
        tf1.get_variable(f"v{number}", variable.shape, variable.value.dtype, initializer=start, use_resource=True)
        for number, variable in enumerate(variables + states)
    ]
    value, *gradients = traced(step if is_trained else loss, [x, seen], list(zip(variables + states, own)))
    tf.identity(value, name="result")
    if is_trained:
        tf1.train.GradientDescentOptimizer(0.1).apply_gradients(list(zip(gradients, own)), name="train")


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, of in {
        "keras_causal_train": (16, 1024, True, 0.0, True),
        "keras_causal": (16, 1024, True, 0.0, False),
        "keras_padded_train": (64, 128, False, 0.0, True),
        "keras_padded_dropout": (64, 128, False, 0.1, False),
        "keras_padded_dropout_train": (64, 128, False, 0.1, True),
        "keras_causal_dropout_train": (16, 1024, True, 0.1, True),
    }.items():
        graph = tf.Graph()
        with graph.as_default():
            transformer(*of)
        (folder / f"{name}.pb").write_bytes(graph.as_graph_def().SerializeToString())
        print(f"{name}: {len(graph.as_graph_def().node)} nodes")


if __name__ == "__main__":
    main()
