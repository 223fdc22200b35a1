#!/usr/bin/env python3
"""Records the cases of `crates/cli/tests/cases` whose graphs Keras' layers write.

    python scripts/record_keras_cases.py [NAME...]     (needs tensorflow-cpu 2.21, with Keras 3.15)

A layer is traced as it is called. The variables of the case begin as those of the layers, with the same optimizer for all.
"""
import sys

import keras
import tensorflow as tf
from tensorflow.python.eager.context import eager_mode

from record_cases import batches, record, tf1


def traced(function, inputs, variables):
    """The results of a function of `inputs` in the graph that is built. `variables` are those of the graph, by the names of Keras' own."""
    with eager_mode():
        graph = tf.function(function).get_concrete_function(*[tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]).graph
    mapped = {tensor.name: there for tensor, there in zip(graph.inputs, inputs)}
    for captured, inside in graph.captures:
        mapped[inside.name] = next(own.handle for theirs, own in variables if theirs.value.handle is captured)
    outputs = [tensor.name for tensor in graph.structured_outputs]
    return tf1.import_graph_def(graph.as_graph_def(), mapped, outputs, name=function.__name__)


def trained_with(x, y, logits, layers, others, compared):
    """A training step of layers, and their use. `others` says which variables there are beside those that are trained, once all are built. The gradients
    by the kernels of `compared` are a result."""

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits(x, True)))
        return [loss, *tape.gradient(loss, [variable.value for variable in trained])]

    def use(x):
        return [logits(x, False)]

    with eager_mode():
        use(tf.zeros([12, 6]))
        trained = [variable for layer in layers for variable in layer.trainable_variables]
        every = trained + others()
        values = [variable.numpy() for variable in every]
    own = [tf1.get_variable(f"v{number}", initializer=value, use_resource=True) for number, value in enumerate(values)]
    variables = list(zip(every, own))
    loss, *gradients = traced(step, [x, y], variables)
    tf.identity(loss, name="loss")
    kernels = [part.kernel for layer in compared for part in (layer.query_dense, layer.key_dense, layer.value_dense)]
    of_kernels = [gradient for variable, gradient in zip(trained, gradients) if any(variable is kernel for kernel in kernels)]
    tf.concat([tf.reshape(gradient, [-1]) * 16 for gradient in of_kernels], 0, name="gradients")
    tf.identity(traced(use, [x], variables)[0], name="logits")
    tf1.train.GradientDescentOptimizer(0.05).apply_gradients(list(zip(gradients, own)), name="train")
    tf1.variables_initializer(own, name="init")
    return True


def attentions():
    """Keras' MultiHeadAttention in mixed precision, with and without masks, of which some hide all keys of a row; and with dropout that is not active."""
    x = tf1.placeholder(tf.float32, [12, 6], name="x")
    y = tf1.placeholder(tf.int32, [12], name="y")
    with eager_mode():
        keras.utils.set_random_seed(3)
        bfloat16, half = [keras.DTypePolicy(f"mixed_{name}") for name in ("bfloat16", "float16")]
        layers = keras.layers
        words, text, last = layers.Dense(12 * 16), layers.Dense(7 * 16), layers.Dense(3)
        plain = layers.MultiHeadAttention(2, 8, dtype=bfloat16)
        causal = layers.MultiHeadAttention(2, 8, value_dim=16, dtype=bfloat16)
        padded = layers.MultiHeadAttention(2, 8, dtype=bfloat16)
        across = layers.MultiHeadAttention(4, 8, dtype=half)
        both = layers.MultiHeadAttention(2, 16, dtype=half)
        dropped = layers.MultiHeadAttention(2, 8, dropout=0.3, dtype=bfloat16)
        all_layers = [words, text, last, plain, causal, padded, across, both, dropped]

    def logits(x, is_trained):
        read = tf.reshape(words(x), [12, 12, 16])
        other = tf.reshape(text(x), [12, 7, 16])
        lengths = tf.cast(tf.abs(x[:, 0]) * 4, tf.int32)
        # Of the first example nothing is seen: its shares are equal, or zeros.
        lengths = tf.concat([[0], lengths[1:]], 0)
        seen = tf.sequence_mask(lengths, 12)
        add = lambda value: tf.cast(value, tf.float32) * 0.5
        read += add(plain(read, read))
        read += add(causal(read, read, use_causal_mask=True))
        read += add(padded(read, read, attention_mask=seen[:, None, :]))
        read += add(across(read, other, attention_mask=tf.sequence_mask(lengths, 7)[:, None, :]))
        read += add(both(read, read, attention_mask=seen[:, :, None] & seen[:, None, :], use_causal_mask=True))
        if not is_trained:
            read += add(dropped(read, read, attention_mask=seen[:, None, :], training=False))
            read += add(dropped(read, read, use_causal_mask=True, training=False))
        return last(tf.reduce_mean(read, 1))

    # Rows that see nothing are a part of these. Sums for biases are rounded too often to be compared.
    return trained_with(x, y, logits, all_layers[:-1], lambda: dropped.trainable_variables, [padded, across, both])


def dropping():
    """Keras' MultiHeadAttention of which shares drop out, with masks, of which one hides all keys of a row; and such attention by hand, in floats."""
    x = tf1.placeholder(tf.float32, [12, 6], name="x")
    y = tf1.placeholder(tf.int32, [12], name="y")
    with eager_mode():
        keras.utils.set_random_seed(5)
        bfloat16, half = [keras.DTypePolicy(f"mixed_{name}") for name in ("bfloat16", "float16")]
        layers = keras.layers
        words, text, last = layers.Dense(12 * 16), layers.Dense(7 * 16), layers.Dense(3)
        padded = layers.MultiHeadAttention(2, 8, dropout=0.3, dtype=bfloat16)
        causal = layers.MultiHeadAttention(2, 8, value_dim=16, dropout=0.25, dtype=half)
        across = layers.MultiHeadAttention(4, 8, dropout=0.5, dtype=bfloat16)
        all_layers = [words, text, last, padded, causal, across]

    def by_hand(read):
        q, k, v = (tf.transpose(tf.reshape(tf.cast(read * by, tf.bfloat16), [12, 12, 2, 8]), [0, 2, 1, 3]) for by in (1.0, 0.5, 0.25))
        scores = tf.cast(tf.matmul(q, k, transpose_b=True), tf.float32) * 8**-0.5
        shares = tf.nn.experimental.stateless_dropout(tf.nn.softmax(scores), 0.1, seed=[3, 4])
        mixed = tf.transpose(tf.matmul(tf.cast(shares, tf.bfloat16), v), [0, 2, 1, 3])
        return tf.reshape(mixed, [12, 12, 16])

    def logits(x, is_trained):
        read = tf.reshape(words(x), [12, 12, 16])
        other = tf.reshape(text(x), [12, 7, 16])
        lengths = tf.cast(tf.abs(x[:, 0]) * 4, tf.int32)
        # Of the first example nothing is seen: its shares are zeros.
        lengths = tf.concat([[0], lengths[1:]], 0)
        seen = tf.sequence_mask(lengths, 12)
        add = lambda value: tf.cast(value, tf.float32) * 0.5
        read += add(padded(read, read, attention_mask=seen[:, None, :], training=is_trained))
        read += add(causal(read, read, use_causal_mask=True, training=is_trained))
        read += add(across(read, other, training=is_trained))
        if is_trained:
            read += add(by_hand(read))
        return last(tf.reduce_mean(read, 1))

    # The states of random numbers stay as they are: each step drops the same shares.
    states = lambda: [variable for layer in all_layers for variable in layer.non_trainable_variables]
    return trained_with(x, y, logits, all_layers, states, [padded, causal, across])


def main():
    texts = list(batches(4, 12))
    steps = [(feed, ["loss:0", "gradients:0"], ["train"]) for feed in texts[:3]] + [({"x:0": texts[3]["x:0"]}, ["logits:0"], [])]
    for name, build, note in [
        ("keras_attention_bf16", attentions, "Keras' attention of bfloat16 and half"),
        ("keras_dropout_bf16", dropping, "Keras' attention of bfloat16 and half, of which shares drop out"),
    ]:
        if name in (sys.argv[1:] or [name]):
            # Layers are named as if there were no other case.
            keras.utils.clear_session()
            record(name, build, steps, note=note, rtol=4e-3, atol=4e-3)


if __name__ == "__main__":
    main()
