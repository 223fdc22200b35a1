"""The networks that bench/compare.py measures, as TensorFlow 1 graphs: each function builds one in the default graph.

A network says what it is fed, what it fetches, and what it runs beside that. Networks for inference are frozen afterwards: their
variables become constants, as a served model has them.
"""
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

v1 = tf.compat.v1


class Network:
    """Feeds are names with shapes; those of integers have a limit, below which they are drawn."""

    def __init__(self, floats, integers=(), fetch="loss:0", targets=("train",), frozen=False):
        self.floats, self.integers = dict(floats), dict(integers)
        self.fetch, self.targets, self.frozen = fetch, list(targets), frozen


def variable(name, shape, initializer, trainable=True):
    return v1.get_variable(name, shape, initializer=initializer, trainable=trainable, use_resource=False)


def truncated_normal(deviation):
    return v1.truncated_normal_initializer(stddev=deviation, seed=1)


def he_normal():
    return v1.variance_scaling_initializer(2.0, "fan_in", "truncated_normal", seed=1)


def constant(value):
    return v1.constant_initializer(value)


def dense(name, x, units, deviation, bias, decay=None, activation=tf.nn.relu):
    with v1.variable_scope(name):
        w = variable("w", [x.shape[1], units], truncated_normal(deviation))
        if decay:
            v1.add_to_collection("losses", tf.multiply(tf.nn.l2_loss(w), decay, name="decay"))
        return activation(tf.matmul(x, w) + variable("b", [units], constant(bias)))


def cross_entropy(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(logits=logits, labels=labels))


def fed(shape, classes=None):
    """A placeholder `x`, and labels `y` for its rows."""
    x = v1.placeholder(tf.float32, shape, name="x")
    return (x, v1.placeholder(tf.int32, shape[:1], name="y")) if classes else x


def minimized(loss, optimizer, floats, integers):
    optimizer.minimize(tf.identity(loss, name="loss"), name="train")
    return Network(floats, integers)


def served(result, shape):
    tf.identity(result, name="result")
    return Network({"x:0": shape}, fetch="result:0", targets=(), frozen=True)


# The tutorial network of CIFAR-10 (tutorials/image/cifar10 of TensorFlow 1).


def tutorial_convolution(name, x, channels):
    with v1.variable_scope(name):
        w = variable("w", [5, 5, x.shape[3], channels], truncated_normal(5e-2))
        y = tf.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
        return tf.nn.relu(tf.nn.bias_add(y, variable("b", [channels], constant(0.0 if name == "conv1" else 0.1))))


def tutorial_network(x):
    normalize = lambda x: tf.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)
    pool = lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME")
    y = normalize(pool(tutorial_convolution("conv1", x, 64)))
    y = pool(normalize(tutorial_convolution("conv2", y, 64)))
    y = tf.reshape(y, [x.shape[0], -1])
    y = dense("local3", y, 384, 0.04, 0.1, decay=0.004)
    y = dense("local4", y, 192, 0.04, 0.1, decay=0.004)
    return dense("softmax", y, 10, 1 / 192.0, 0.0, activation=tf.identity)


def cifar10(batch, towers):
    """The tutorial's training step: towers on /cpu:0, /cpu:1, ...; variables and their updates on /cpu:0."""
    shape = [batch, 24, 24, 3]
    with v1.device("/cpu:0"):
        x, y = fed(shape, 10)
        step = variable("global_step", [], v1.zeros_initializer(), trainable=False)
        rate = v1.train.exponential_decay(0.1, step, 136718, 0.1, staircase=True)
        optimizer = v1.train.GradientDescentOptimizer(rate)
        xs, ys = tf.split(x, towers), tf.split(y, towers)
    tower_losses, tower_gradients = [], []
    for tower in range(towers):
        place = lambda op, tower=tower: "/cpu:0" if op.type in ("VariableV2", "Assign") else f"/cpu:{tower}"
        with v1.device(place), v1.name_scope(f"tower_{tower}"), v1.variable_scope("model", reuse=tower > 0):
            v1.get_default_graph().clear_collection("losses")
            entropy = cross_entropy(tutorial_network(xs[tower]), ys[tower])
            loss = tf.add_n(v1.get_collection("losses") + [entropy], name="total_loss")
            tower_losses.append(loss)
            tower_gradients.append(optimizer.compute_gradients(loss))
    with v1.device("/cpu:0"):
        averaged = tower_gradients[0]
        if towers > 1:
            mean = lambda gradients: tf.reduce_mean(tf.concat([tf.expand_dims(g, 0) for g in gradients], 0), 0)
            averaged = [(mean([g for g, _ in pairs]), pairs[0][1]) for pairs in zip(*tower_gradients)]
        train = [optimizer.apply_gradients(averaged)]
        count = tf.cast(step, tf.float32)
        decay = tf.minimum(0.9999, (1.0 + count) / (10.0 + count))
        for _, trained in averaged:
            # As ExponentialMovingAverage.apply makes it, but for the first value.
            average = variable(trained.op.name + "/average", trained.shape, v1.zeros_initializer(), trainable=False)
            train.append(v1.assign_sub(average, (average - trained) * (1.0 - decay)))
        with v1.control_dependencies(train):
            v1.assign_add(step, 1.0, name="train")
        tf.add_n(tower_losses, name="loss")
    return Network({"x:0": shape}, {"y:0": ([batch], 10)})


def mlp(batch):
    """784-300-100-10, SGD."""
    x, y = fed([batch, 784], 10)
    hidden = dense("hidden2", dense("hidden1", x, 300, 0.07, 0.0), 100, 0.1, 0.0)
    loss = cross_entropy(dense("softmax", hidden, 10, 0.2, 0.0, activation=tf.identity), y)
    return minimized(loss, v1.train.GradientDescentOptimizer(0.01), {"x:0": [batch, 784]}, {"y:0": ([batch], 10)})


# Residual networks and MobileNetV2 (He et al., 2015; Sandler et al., 2018).


def convolution(name, x, channels, taps, stride=1, depthwise=False):
    with v1.variable_scope(name):
        strides = [1, stride, stride, 1]
        if depthwise:
            w = variable("w", [taps, taps, x.shape[3], 1], truncated_normal(0.3))
            return tf.nn.depthwise_conv2d(x, w, strides, "SAME")
        return tf.nn.conv2d(x, variable("w", [taps, taps, x.shape[3], channels], he_normal()), strides, "SAME")


def normalized(name, x, training):
    """Batch normalization. Statistics of inference are such that values keep their size."""
    with v1.variable_scope(name):
        channels = x.shape[3]
        uniform = lambda low, high: v1.random_uniform_initializer(low, high, seed=2)
        scale, offset = variable("scale", [channels], uniform(0.8, 1.2)), variable("offset", [channels], uniform(-0.1, 0.1))
        mean, variance = (variable(name, [channels], uniform(low, high), trainable=False) for name, low, high in (("mean", -0.1, 0.1), ("variance", 0.8, 1.2)))
        if not training:
            return v1.nn.fused_batch_norm(x, scale, offset, mean, variance, 1e-3, is_training=False)[0]
        y, of_batch_mean, of_batch_variance = v1.nn.fused_batch_norm(x, scale, offset, epsilon=1e-3, is_training=True)
        for moving, value in ((mean, of_batch_mean), (variance, of_batch_variance)):
            v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_sub(moving, (moving - value) * 0.1))
        return y


def resnet20(batch):
    """For CIFAR-10: a training step with momentum, moving statistics and weight decay."""
    shape = [batch, 32, 32, 3]
    x, labels = fed(shape, 10)
    y = tf.nn.relu(normalized("first_norm", convolution("first", x, 16, 3), True))
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(3):
            name, stride = f"stage{stage}_block{block}", 2 if stage and not block else 1
            z = tf.nn.relu(normalized(f"{name}_norm1", convolution(f"{name}_conv1", y, channels, 3, stride), True))
            z = normalized(f"{name}_norm2", convolution(f"{name}_conv2", z, channels, 3), True)
            if stride > 1:
                y = normalized(f"{name}_norm0", convolution(f"{name}_conv0", y, channels, 1, stride), True)
            y = tf.nn.relu(y + z)
    loss = cross_entropy(dense("classes", tf.reduce_mean(y, [1, 2]), 10, 0.1, 0.0, activation=tf.identity), labels)
    loss += 1e-4 * tf.add_n([tf.nn.l2_loss(w) for w in v1.trainable_variables() if w.op.name.endswith("/w")])
    with v1.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
        return minimized(loss, v1.train.MomentumOptimizer(0.01, 0.9), {"x:0": shape}, {"y:0": ([batch], 10)})


def resnet50(batch):
    shape = [batch, 224, 224, 3]
    y = tf.nn.relu(normalized("first_norm", convolution("first", fed(shape), 64, 7, 2), False))
    y = tf.nn.max_pool2d(y, 3, 2, "SAME")
    for stage, blocks in enumerate((3, 4, 6, 3)):
        channels = 64 << stage
        for block in range(blocks):
            name, stride = f"stage{stage}_block{block}", 2 if stage and not block else 1
            z = tf.nn.relu(normalized(f"{name}_norm1", convolution(f"{name}_conv1", y, channels, 1), False))
            z = tf.nn.relu(normalized(f"{name}_norm2", convolution(f"{name}_conv2", z, channels, 3, stride), False))
            z = 0.3 * normalized(f"{name}_norm3", convolution(f"{name}_conv3", z, 4 * channels, 1), False)
            if not block:
                y = normalized(f"{name}_norm0", convolution(f"{name}_conv0", y, 4 * channels, 1, stride), False)
            y = tf.nn.relu(y + z)
    y = dense("classes", tf.reduce_mean(y, [1, 2]), 1000, 0.02, 0.0, activation=tf.identity)
    return served(tf.nn.softmax(y), shape)


def mobilenet_v2(batch):
    shape = [batch, 224, 224, 3]
    y = tf.nn.relu6(normalized("first_norm", convolution("first", fed(shape), 32, 3, 2), False))
    number = 0
    for expand, channels, blocks, first_stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            name, z = f"block{number}", y
            if expand > 1:
                z = tf.nn.relu6(normalized(f"{name}_norm1", convolution(f"{name}_conv1", z, expand * z.shape[3], 1), False))
            stride = first_stride if not block else 1
            z = tf.nn.relu6(normalized(f"{name}_norm2", convolution(f"{name}_conv2", z, None, 3, stride, depthwise=True), False))
            z = normalized(f"{name}_norm3", convolution(f"{name}_conv3", z, channels, 1), False)
            y = y + z if block else z
            number += 1
    y = tf.nn.relu6(normalized("last_norm", convolution("last", y, 1280, 1), False))
    y = dense("classes", tf.reduce_mean(y, [1, 2]), 1000, 0.02, 0.0, activation=tf.identity)
    return served(tf.nn.softmax(y), shape)


# A Transformer's encoder (Vaswani et al., 2017), normalized before each part.

LAYERS, WIDTH, HEADS, LENGTH = 4, 256, 8, 128


def projected(name, x, units):
    with v1.variable_scope(name):
        w = variable("w", [x.shape[-1], units], truncated_normal(0.04))
        y = tf.matmul(tf.reshape(x, [-1, x.shape[-1]]), w) + variable("b", [units], constant(0.0))
        return tf.reshape(y, [*x.shape[:-1], units])


def layer_norm(name, x):
    with v1.variable_scope(name):
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        scale, offset = variable("scale", [x.shape[-1]], constant(1.0)), variable("offset", [x.shape[-1]], constant(0.0))
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-6)


def encoder(x):
    heads = lambda name, y: tf.transpose(tf.reshape(projected(name, y, WIDTH), [y.shape[0], LENGTH, HEADS, WIDTH // HEADS]), [0, 2, 1, 3])
    for layer in range(LAYERS):
        with v1.variable_scope(f"layer{layer}"):
            y = layer_norm("norm1", x)
            q, k, v = (heads(name, y) for name in ("q", "k", "v"))
            scores = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) * (WIDTH // HEADS) ** -0.5)
            y = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), x.shape)
            x = x + projected("o", y, WIDTH)
            y = tf.nn.gelu(projected("wide", layer_norm("norm2", x), 4 * WIDTH))
            x = x + projected("narrow", y, WIDTH)
    return layer_norm("norm", x)


def transformer(batch):
    shape = [batch, LENGTH, WIDTH]
    return served(encoder(fed(shape)), shape)


def transformer_training(batch):
    shape = [batch, LENGTH, WIDTH]
    x, labels = fed(shape, 10)
    y = dense("classes", tf.reduce_mean(encoder(x), 1), 10, 0.05, 0.0, activation=tf.identity)
    return minimized(cross_entropy(y, labels), v1.train.AdamOptimizer(1e-4), {"x:0": shape}, {"y:0": ([batch], 10)})


# Two LSTMs (Hochreiter and Schmidhuber, 1997) or GRUs over a sequence, by a loop each.

STEPS, UNITS, FEATURES = 50, 128, 64


def lstm(name, x):
    """Of [steps, batch, features]: the outputs, as [steps, batch, units]."""
    steps, batch, features = x.shape
    with v1.variable_scope(name):
        w, u = variable("w", [features, 4 * UNITS], truncated_normal(0.1)), variable("u", [UNITS, 4 * UNITS], truncated_normal(0.08))
        b = variable("b", [4 * UNITS], constant(0.1))
        gates = tf.reshape(tf.matmul(tf.reshape(x, [-1, features]), w) + b, [steps, batch, 4 * UNITS])
        inputs = tf.TensorArray(tf.float32, steps).unstack(gates)

        def step(time, h, c, outputs):
            i, f, g, o = tf.split(inputs.read(time) + tf.matmul(h, u), 4, 1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
            h = tf.sigmoid(o) * tf.tanh(c)
            return time + 1, h, c, outputs.write(time, h)

        zeros = tf.zeros([batch, UNITS])
        state = (0, zeros, zeros, tf.TensorArray(tf.float32, steps, element_shape=[batch, UNITS]))
        outputs = tf.while_loop(lambda time, *_: time < steps, step, state, maximum_iterations=steps)[3].stack()
        outputs.set_shape([steps, batch, UNITS])
        return outputs


def gru(name, x):
    """As `lstm`, by gated recurrent units (Cho and others, 2014), the reset gate behind the product as Keras has it."""
    steps, batch, features = x.shape
    with v1.variable_scope(name):
        w, u = variable("w", [features, 3 * UNITS], truncated_normal(0.1)), variable("u", [UNITS, 3 * UNITS], truncated_normal(0.08))
        b, r = variable("b", [3 * UNITS], constant(0.1)), variable("r", [3 * UNITS], constant(0.1))
        gates = tf.reshape(tf.matmul(tf.reshape(x, [-1, features]), w) + b, [steps, batch, 3 * UNITS])
        inputs = tf.TensorArray(tf.float32, steps).unstack(gates)

        def step(time, h, outputs):
            xz, xr, xn = tf.split(inputs.read(time), 3, 1)
            hz, hr, hn = tf.split(tf.matmul(h, u) + r, 3, 1)
            z = tf.sigmoid(xz + hz)
            h = z * h + (1 - z) * tf.tanh(xn + tf.sigmoid(xr + hr) * hn)
            return time + 1, h, outputs.write(time, h)

        state = (0, tf.zeros([batch, UNITS]), tf.TensorArray(tf.float32, steps, element_shape=[batch, UNITS]))
        outputs = tf.while_loop(lambda time, *_: time < steps, step, state, maximum_iterations=steps)[2].stack()
        outputs.set_shape([steps, batch, UNITS])
        return outputs


def recurrent(cell, x):
    y = tf.transpose(x, [1, 0, 2])
    return dense("classes", cell("second", cell("first", y))[-1], 10, 0.1, 0.0, activation=tf.identity)


def recurrent_served(cell, batch):
    shape = [batch, STEPS, FEATURES]
    return served(recurrent(cell, fed(shape)), shape)


def recurrent_training(cell, batch):
    shape = [batch, STEPS, FEATURES]
    x, labels = fed(shape, 10)
    return minimized(cross_entropy(recurrent(cell, x), labels), v1.train.AdamOptimizer(1e-3), {"x:0": shape}, {"y:0": ([batch], 10)})


NETWORKS = {
    "cifar10": lambda: cifar10(128, 1),
    "cifar10_towers2": lambda: cifar10(128, 2),
    "resnet20": lambda: resnet20(128),
    "mlp_50": lambda: mlp(50),
    "mlp_512": lambda: mlp(512),
    "resnet50_1": lambda: resnet50(1),
    "resnet50_8": lambda: resnet50(8),
    "mobilenet_v2_1": lambda: mobilenet_v2(1),
    "mobilenet_v2_8": lambda: mobilenet_v2(8),
    "transformer": lambda: transformer(8),
    "transformer_training": lambda: transformer_training(8),
    "lstm": lambda: recurrent_served(lstm, 32),
    "lstm_training": lambda: recurrent_training(lstm, 32),
    "gru": lambda: recurrent_served(gru, 32),
    "gru_training": lambda: recurrent_training(gru, 32),
}
