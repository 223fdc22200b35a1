#!/usr/bin/env python3
"""Records crates/cli/tests/cases/sparse_*: embeddings that are trained by the rows that a batch names, with sampled losses.

    python scripts/record_sparse.py     (needs tensorflow-cpu 2.21)
"""
import numpy as np
import tensorflow as tf

from record_cases import record

tf1 = tf.compat.v1
CLASSES, WIDTH = 20, 4


def variable(name, value, use_resource):
    return tf1.get_variable(name, initializer=np.full([CLASSES, WIDTH], value, np.float32) if np.isscalar(value) else value, use_resource=use_resource)


def handle(slot, use_resource):
    return slot.handle if use_resource else slot._ref()


def update(form, slots, gradient, use_resource):
    """The sparse update of `form`; its numbers are those of the optimizer's defaults, more or less."""
    gradient = dict(grad=gradient.values, indices=gradient.indices)
    names = {
        "Adagrad": (["accum"], dict(lr=0.1)),
        "Momentum": (["accum"], dict(lr=0.1, momentum=0.9)),
        "RMSProp": (["ms", "mom"], dict(lr=0.1, rho=0.9, momentum=0.5, epsilon=1e-3)),
        "Ftrl": (["accum", "linear"], dict(lr=0.1, l1=0.01, l2=0.01, lr_power=-0.5)),
    }
    slot_names, numbers = names[form]
    operands = dict(zip(["var", *slot_names], [handle(slot, use_resource) for slot in slots]))
    return getattr(tf.raw_ops, ("ResourceSparseApply" if use_resource else "SparseApply") + form)(**operands, **gradient, **numbers)


def embeddings(form, sampler, use_resource):
    """Words, each with the one that follows: a table of words, weights of classes, and a loss by sampled classes."""
    def build():
        random = np.random.default_rng(3)
        words, next_words = tf1.placeholder(tf.int32, [None], name="words"), tf1.placeholder(tf.int64, [None, 1], name="next")
        table = variable("table", random.normal(size=(CLASSES, WIDTH)).astype(np.float32), use_resource)
        weights = variable("weights", random.normal(size=(CLASSES, WIDTH)).astype(np.float32), use_resource)
        kinds = {"Adagrad": [0.1], "Momentum": [0.0], "RMSProp": [0.1, 0.0], "Ftrl": [0.1, 0.0]}[form]
        slots = [[owner, *(variable(f"{name}_{number}", value, use_resource) for number, value in enumerate(kinds))]
                 for name, owner in [("table", table), ("weights", weights)]]
        sampled = sampler(next_words)
        loss = tf1.nn.sampled_softmax_loss(
            weights, tf.zeros([CLASSES]), next_words, tf.nn.embedding_lookup(table, words), num_sampled=6, num_classes=CLASSES,
            sampled_values=sampled, remove_accidental_hits=False)
        loss = tf.reduce_mean(loss, name="loss")
        gradients = tf.gradients(loss, [table, weights])
        assert all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients)
        updates = [update(form, own, gradient, use_resource) for own, gradient in zip(slots, gradients)]
        tf.group(*(getattr(change, "op", change) for change in updates), name="train")
        tf.identity(table.read_value(), name="table_now")
        tf.identity(sampled[0], name="sampled")
        tf1.variables_initializer(tf1.global_variables(), name="init")
        return True
    return build


def main():
    def steps():
        random = np.random.default_rng(5)
        for count in (6, 6, 3, 6):
            feeds = {"words:0": random.integers(0, CLASSES, count).astype(np.int32), "next:0": random.integers(0, CLASSES, (count, 1))}
            yield feeds, ["loss:0", "sampled:0"], ["train"]
            yield {}, ["table_now:0"], []

    def log_uniform(true):
        return tf.random.log_uniform_candidate_sampler(true, 1, 6, True, CLASSES, seed=4)

    def learned(true):
        return tf.random.learned_unigram_candidate_sampler(true, 1, 6, False, CLASSES, seed=4)

    for form, sampler, use_resource in [
        ("Adagrad", log_uniform, True), ("Momentum", learned, False), ("RMSProp", log_uniform, False), ("Ftrl", learned, True),
    ]:
        record(f"sparse_{form.lower()}_{'resource' if use_resource else 'ref'}", embeddings(form, sampler, use_resource), steps(),
               note=f"{form} on the rows of embeddings, candidates by {sampler.__name__}")


if __name__ == "__main__":
    main()
