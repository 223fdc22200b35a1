#!/usr/bin/env python3
"""Records crates/cli/tests/cases: small graphs that TensorFlow ran, with what was fed and what came out.

    python scripts/record_cases.py     (needs tensorflow-cpu 2.21)

The format of a case is in CONTRIBUTING.md; `plimsoll verify FOLDER` replays it.
"""
import io
import json
import pathlib
import shutil

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, error_codes_pb2
from tensorflow.python.framework import op_def_registry

CASES = pathlib.Path(__file__).parent.parent / "crates/cli/tests/cases"
tf1 = tf.compat.v1


def record(name, build, steps, fetches=(), targets=(), note="", devices=1, rtol=2e-5, atol=1e-6, as_written=False, stripped=False):
    """`build` makes the graph and says whether it has variables, which the operation `init` then initialises. A step is what
    is fed, and fetches `fetches` and runs `targets`; or all three, one after the other, and then maybe the code with which the step
    fails. Arrays that are equal share a file.
    With `as_written`, TensorFlow's optimisers leave the graph as it is; `stripped` leaves out attributes that have their default,
    as saved models do.
    """
    folder = CASES / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        has_variables = build()
    config = tf1.ConfigProto(allow_soft_placement=True, device_count={"CPU": devices})
    def_ = graph.as_graph_def()
    if stripped:
        strip_default_attrs(def_)
    (folder / "graph.pb").write_bytes(def_.SerializeToString(deterministic=True))
    (folder / "config.pbtxt").write_text(str(config))
    case = {"name": name, "note": note, "tensorflow": tf.__version__, "rtol": rtol, "atol": atol, "graph": "graph.pb", "config": "config.pbtxt", "steps": []}
    if has_variables:
        case["init"] = ["init"]
    files = {}

    def save(array, file):
        data = io.BytesIO()
        np.save(data, array)
        if data.getvalue() not in files:
            files[data.getvalue()] = file
            (folder / file).write_bytes(data.getvalue())
        return files[data.getvalue()]

    with tf1.Session(graph=graph, config=leave_alone(config) if as_written else config) as session:
        if has_variables:
            session.run("init")
        for number, step in enumerate(steps):
            feeds, wanted, run, *error = step if isinstance(step, tuple) else (step, fetches, targets)
            assert not (error and wanted), f"{name}, step {number}: nothing says what is fetched where a step fails: it has to run targets"
            values = run_step(session, name, number, feeds, wanted, run, *error)
            case["steps"].append({
                **({"error": error[0]} if error else {}),
                "feeds": {tensor: save(array, f"step{number}_feed{index}.npy") for index, (tensor, array) in enumerate(feeds.items())},
                "targets": list(run),
                "fetches": {tensor: save(array, f"step{number}_fetch{index}.npy") for index, (tensor, array) in enumerate(zip(wanted, values))},
            })
    (folder / "case.json").write_text(json.dumps(case, indent=1) + "\n")
    print(f"{name}: {sum(file.stat().st_size for file in folder.iterdir())} bytes")


def run_step(session, name, number, feeds, wanted, run, error=None):
    """What the step fetches; nothing where it fails, which it has to do with that code."""
    try:
        values, _ = session.run([list(wanted), list(run)], feeds)
    except tf.errors.OpError as failure:
        code = error_codes_pb2.Code.Name(failure.error_code)
        assert code == error, f"{name}, step {number}: {failure}"
        return []
    assert error is None, f"{name}, step {number} does not fail"
    return values


def strip_default_attrs(def_):
    """Leaves out what the table of operations says anyway."""
    for node in [*def_.node, *(node for function in def_.library.function for node in function.node_def)]:
        op = op_def_registry.get(node.op)
        for attr in op.attr if op else []:
            if attr.HasField("default_value") and attr.name in node.attr and node.attr[attr.name] == attr.default_value:
                del node.attr[attr.name]


def leave_alone(config):
    """The configuration, with TensorFlow's optimisers off."""
    copy = tf1.ConfigProto()
    copy.CopyFrom(config)
    copy.graph_options.rewrite_options.disable_meta_optimizer = True
    copy.graph_options.optimizer_options.opt_level = config_pb2.OptimizerOptions.L0
    return copy


def scalars():
    a, x, b = (tf1.placeholder(tf.float32, [], name=name) for name in "axb")
    tf.add(a * x, b, name="y")
    return False


def layers(x, use_resource):
    """6 -> 8 -> 3, the weights drawn from seeds."""
    def variable(name, shape):
        kind = tf1.truncated_normal_initializer(stddev=0.5, seed=len(name)) if len(shape) == 2 else tf1.zeros_initializer()
        return tf1.get_variable(name, shape, initializer=kind, use_resource=use_resource)
    with tf1.variable_scope("net", reuse=tf1.AUTO_REUSE):
        hidden = tf.nn.relu(tf1.nn.bias_add(tf.matmul(x, variable("w1", [6, 8])), variable("b1", [8])))
        return tf1.nn.bias_add(tf.matmul(hidden, variable("w2", [8, 3])), variable("b2", [3]))


def loss_of(x, y, use_resource, name=None):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=layers(x, use_resource)), name=name)


def inputs():
    return tf1.placeholder(tf.float32, [None, 6], name="x"), tf1.placeholder(tf.int32, [None], name="y")


def mlp(optimizer, use_resource):
    def build():
        x, y = inputs()
        loss = loss_of(x, y, use_resource, "loss")
        optimizer().minimize(loss, name="train")
        tf.identity(tf1.global_variables()[0], name="w1_now")
        tf1.variables_initializer(tf1.global_variables(), name="init")
        return True
    return build


def towers():
    """Two halves of a batch on two devices, gradients averaged, variables on the first."""
    x, y = inputs()
    optimizer = tf1.train.GradientDescentOptimizer(0.5)
    losses, gradients = [], []
    for tower, (x_part, y_part) in enumerate(zip(tf.split(x, 2), tf.split(y, 2))):
        setter = lambda op, tower=tower: "/cpu:0" if op.type in ("VariableV2", "Assign", "Identity") else f"/cpu:{tower}"
        with tf1.device(setter), tf1.name_scope(f"tower_{tower}"):
            loss = loss_of(x_part, y_part, use_resource=False)
            losses.append(loss)
            gradients.append(optimizer.compute_gradients(loss))
    with tf1.device("/cpu:0"):
        mean = [(tf.add_n([gradient for gradient, _ in pair]) / 2.0, pair[0][1]) for pair in zip(*gradients)]
        optimizer.apply_gradients(mean, name="train")
        tf.divide(tf.add_n(losses), 2.0, name="loss")
        tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def dropouts():
    """Five layers with a dropout behind each: random numbers that gradients need again."""
    x, y = inputs()
    hidden, width = x, 6
    for layer in range(5):
        start = tf1.truncated_normal_initializer(stddev=0.3, seed=layer)
        weights = tf1.get_variable(f"w{layer}", [width, 32], initializer=start, use_resource=True)
        hidden, width = tf1.nn.dropout(tf.nn.relu(tf.matmul(hidden, weights)), rate=0.2, seed=layer + 10), 32
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=hidden), name="loss")
    tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def skips():
    """Activations of images that are pooled, and joined with later ones: their gradients ask for no more than a sign."""
    x, y = inputs()

    def weights(name, *shape):
        return tf1.get_variable(name, shape, initializer=tf1.random_normal_initializer(stddev=0.2, seed=len(name) + sum(shape)), use_resource=True)

    def conv(images, name, channels):
        return tf.nn.conv2d(images, weights(name, 3, 3, images.shape[-1], channels), 1, "SAME")

    images = tf.reshape(tf.matmul(x, weights("wide", 6, 256)), [-1, 8, 8, 4])
    first = tf.nn.relu(conv(images, "first", 16))
    second = tf.nn.relu6(conv(tf.nn.avg_pool2d(first, 2, 2, "SAME"), "second", 16))
    third = tf.nn.leaky_relu(conv(tf.nn.avg_pool2d(second, 2, 2, "SAME"), "third", 16))
    for before, name in [(second, "up"), (first, "higher")]:
        third = tf.nn.conv2d_transpose(third, weights(name, 2, 2, 16, 16), tf.shape(before), 2, "SAME")
        third = tf.nn.relu(conv(tf.concat([before, third], 3), name + "_conv", 16))
    logits = tf.matmul(tf.reduce_mean(third, [1, 2]), weights("last", 16, 3))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
    tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def residuals():
    """Blocks whose sums are activated: of images of bfloat16, as with mixed precision."""
    x, y = inputs()

    def conv(images, name, channels, size=3, strides=1):
        start = tf1.random_normal_initializer(stddev=0.15, seed=len(name) + channels)
        weights = tf1.get_variable(name, [size, size, images.shape[-1], channels], initializer=start, use_resource=True)
        return tf.nn.conv2d(images, tf.cast(weights, tf.bfloat16), strides, "SAME")

    wide = tf1.get_variable("wide", [6, 256], initializer=tf1.random_normal_initializer(stddev=0.2, seed=4), use_resource=True)
    images = tf.cast(tf.reshape(tf.matmul(x, wide), [-1, 4, 4, 16]), tf.bfloat16)
    images = tf.nn.relu(conv(images, "stem", 16))
    for block, strides in enumerate([1, 1, 2]):
        channels = 16 * strides
        inside = tf.nn.relu(conv(images, f"first{block}", 16, 1))
        inside = tf.nn.relu(conv(inside, f"second{block}", 16, 3, strides))
        beside = images if strides == 1 else conv(images, f"beside{block}", channels, 1, strides)
        images = tf.nn.relu(conv(inside, f"third{block}", channels, 1) + beside)
    pooled = tf.reduce_mean(tf.cast(images, tf.float32), [1, 2])
    start = tf1.random_normal_initializer(stddev=0.2, seed=5)
    logits = tf.matmul(pooled, tf1.get_variable("last", [32, 3], initializer=start, use_resource=True))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
    tf1.train.GradientDescentOptimizer(0.1).minimize(loss, name="train")
    tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def attentions():
    """Attention of bfloat16 and half: behind each other, with masks that are added, of uneven lengths, of one head, and such as engines do not
    compute, with its gradients."""
    x, y = inputs()

    def dense(rows, name, columns):
        start = tf1.random_normal_initializer(stddev=0.15, seed=len(name) + columns)
        weights = tf1.get_variable(name, [rows.shape[-1], columns], initializer=start, use_resource=True)
        return tf.matmul(rows, tf.cast(weights, rows.dtype))

    def heads(rows, name, length, count, size, low):
        split = tf.reshape(tf.cast(dense(rows, name, count * size), low), [-1, length, count, size])
        return tf.transpose(split, [0, 2, 1, 3])

    def attend(rows, others, name, lengths, count, size, low, between=lambda scores: scores, narrow=False):
        query = heads(rows, f"{name}_query", lengths[0], count, size, low)
        key, value = [heads(others, f"{name}_{part}", lengths[1], count, size, low) for part in ("key", "value")]
        scores = tf.matmul(query, key, transpose_b=True)
        scores = between((scores if narrow else tf.cast(scores, tf.float32)) * tf.cast(size**-0.5, low if narrow else tf.float32))
        mixed = tf.matmul(tf.cast(tf.nn.softmax(scores), low), value)
        mixed = tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, count * size])
        return rows + dense(tf.cast(mixed, tf.float32), f"{name}_out", 16)

    # 12 words of 16 numbers for each example, and 7 words of another text.
    words, text = [tf.reshape(dense(x, name, length * 16), [-1, 16]) for name, length in (("words", 12), ("text", 7))]
    later = tf.constant(np.triu(np.full([12, 12], -1e9, np.float32), 1))
    words = attend(words, words, "causal", [12, 12], 2, 8, tf.bfloat16, lambda scores: scores + later)
    seen = tf.reshape(tf.cast(x[:, :1] > 0, tf.float32), [-1, 1, 1, 1]) * tf.constant([[[[0.0] * 5 + [-10000.0] * 2]]])
    words = attend(words, text, "across", [12, 7], 2, 8, tf.bfloat16, lambda scores: scores + seen)
    words = attend(words, words, "narrow", [12, 12], 1, 16, tf.bfloat16, narrow=True)
    words = attend(words, words, "halves", [12, 12], 1, 8, tf.half)
    # Its gradient stays as it is: that of the mask is wanted, too.
    worth = tf1.get_variable("worth", [12, 12], initializer=tf1.zeros_initializer(), use_resource=True)
    words = attend(words, words, "worth", [12, 12], 2, 8, tf.bfloat16, lambda scores: scores + worth)
    logits = dense(tf.reduce_mean(tf.reshape(words, [-1, 12, 16]), 1), "last", 3)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
    tf.identity(logits, name="logits")
    tf1.train.GradientDescentOptimizer(0.05).minimize(loss, name="train")


def normalized():
    """Convolutions of bfloat16 whose results are normalized by their own statistics: 3x3 and 1x1, by two, and with channels that are no whole words of tensor
    cores. The statistics of a layer far from 0 are fetched, too."""
    x, y = inputs()

    def conv(images, name, channels, size=3, strides=1, offset=0.0, relu=True):
        start = tf1.random_normal_initializer(mean=offset, stddev=0.15, seed=len(name) + channels)
        weights = tf1.get_variable(name, [size, size, images.shape[-1], channels], initializer=start, use_resource=True)
        images = tf.nn.conv2d(images, tf.cast(weights, tf.bfloat16), strides, "SAME")
        scale = tf1.get_variable(f"{name}_scale", [channels], initializer=tf1.ones_initializer(), use_resource=True)
        shift = tf1.get_variable(f"{name}_shift", [channels], initializer=tf1.zeros_initializer(), use_resource=True)
        images, mean, variance = tf1.nn.fused_batch_norm(images, scale, shift)
        return (tf.nn.relu(images) if relu else images), mean, variance

    wide = tf1.get_variable("wide", [6, 48], initializer=tf1.random_normal_initializer(stddev=0.2, seed=4), use_resource=True)
    images = tf.cast(tf.reshape(tf.matmul(x, wide), [-1, 4, 4, 3]), tf.bfloat16)
    images, mean, variance = conv(images + tf.cast(16, tf.bfloat16), "far", 8, 1, offset=1.0)
    tf.stack([mean, variance], name="statistics")
    images = conv(images, "stem", 16)[0]
    for block, strides in enumerate([1, 2]):
        inside = conv(images, f"first{block}", 24, 1)[0]
        inside = conv(inside, f"second{block}", 24, 3, strides)[0]
        beside = images if strides == 1 else conv(images, f"beside{block}", 16, 1, strides, relu=False)[0]
        images = tf.nn.relu(conv(inside, f"third{block}", 16, 1, relu=False)[0] + beside)
    pooled = tf.reduce_mean(tf.cast(conv(images, "narrow", 12)[0], tf.float32), [1, 2])
    start = tf1.random_normal_initializer(stddev=0.2, seed=5)
    logits = tf.matmul(pooled, tf1.get_variable("last", [12, 3], initializer=start, use_resource=True))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), name="loss")
    tf1.train.GradientDescentOptimizer(0.02).minimize(loss, name="train")
    tf1.variables_initializer(tf1.global_variables(), name="init")
    return True


def product(operands, result):
    """The product that books show: operands and result on devices, None for wherever."""
    def build():
        with tf1.device(operands):
            a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3], name="a")
            b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2], name="b")
        with tf1.device(result):
            tf.matmul(a, b, name="c")
        return False
    return build


def four_products():
    """One on each of four GPUs, and their sum on the CPU."""
    products = []
    for tower in range(4):
        with tf1.device(f"/gpu:{tower}"), tf1.name_scope(f"tower_{tower}"):
            a = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[2, 3], name="a")
            b = tf.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], shape=[3, 2], name="b")
            products.append(tf.matmul(a, b, name="c"))
    with tf1.device("/cpu:0"):
        tf.add_n(products, name="sum")
    return False


def batches(count, size):
    random = np.random.default_rng(7)
    for _ in range(count):
        y = random.integers(0, 3, size).astype(np.int32)
        x = random.normal(size=(size, 6)).astype(np.float32) + np.eye(6, dtype=np.float32)[y] * 2
        yield {"x:0": x, "y:0": y}


def main():
    numbers = [{"a:0": np.float32(2), "x:0": np.float32(3.5), "b:0": np.float32(-1)}, {"a:0": np.float32(0.1), "x:0": np.float32(0.2), "b:0": np.float32(0.3)}]
    record("scalars", scalars, numbers, ["y:0"], note="a * x + b")
    record("mlp_sgd_ref", mlp(lambda: tf1.train.GradientDescentOptimizer(0.5), False), batches(3, 12), ["loss:0"], ["train"],
           note="gradient descent on ref variables")
    record("mlp_adam_resource", mlp(lambda: tf1.train.AdamOptimizer(0.05), True), batches(3, 12), ["loss:0"], ["train"], note="Adam on resource variables")
    record("towers", towers, batches(3, 12), ["loss:0"], ["train"], note="two towers on two logical devices", devices=2)
    record("dropouts", dropouts, batches(3, 192), ["loss:0"], ["train"], note="random numbers that gradients need again")
    record("skips", skips, batches(3, 48), ["loss:0"], ["train"], note="activations that gradients ask for a sign")
    record("residuals_bf16", residuals, batches(3, 48), ["loss:0"], ["train"], note="residual blocks of bfloat16", rtol=2e-3, atol=2e-3)
    texts = list(batches(4, 12))
    record("attention_bf16", attentions, [(feed, ["loss:0"], ["train"]) for feed in texts[:3]] + [(texts[3], ["logits:0"], [])],
           note="attention of bfloat16 and half", rtol=4e-3, atol=4e-3)
    record("normalized_bf16", normalized, batches(3, 48), ["loss:0", "statistics:0"], ["train"], note="normalized convolutions of bfloat16", rtol=1e-3, atol=1e-3)
    for name, build, note in [
        ("product", product(None, None), "a product, wherever"), ("product_of_cpu", product("/cpu:0", None), "operands on /cpu:0"),
        ("product_on_gpu2", product("/gpu:2", "/gpu:2"), "all on /gpu:2"),
    ]:
        record(name, build, [{}], ["c:0"], note=note, stripped=True)
    record("products_on_gpus", four_products, [{}], ["sum:0"], note="products on four GPUs, their sum on the CPU", stripped=True)


if __name__ == "__main__":
    main()
