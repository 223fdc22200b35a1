"""Layers, losses, variables and optimizers."""

import plimsoll.compat.v1 as tf


def dense(x, units, name):
    with tf.variable_scope(name, reuse=tf.AUTO_REUSE):
        w = tf.get_variable("w", [x.shape[1].value, units])
        b = tf.get_variable("b", [units], initializer=tf.zeros_initializer())
    return tf.nn.xw_plus_b(x, w, b)


def build():
    x = tf.placeholder(tf.float32, [8, 6])
    labels = tf.placeholder(tf.int32, [8])
    with tf.variable_scope("net") as net:
        hidden = tf.nn.relu(dense(x, 5, "one"))
        with tf.variable_scope(None, default_name="part"):
            tf.get_variable("v", [2], initializer=tf.ones_initializer())
        with tf.variable_scope(None, default_name="part"):
            tf.get_variable("v", [2], initializer=tf.random_normal_initializer(seed=1))
        with tf.variable_scope("kept", initializer=tf.random_uniform_initializer(-1, 1)):
            tf.get_variable("u", [2, 2])
    with tf.variable_scope(net, reuse=True):
        again = tf.nn.tanh(dense(x, 5, "one"))
    logits = dense(tf.concat([hidden, again], 1), 3, "two")
    tf.nn.softmax(logits)
    tf.nn.log_softmax(logits)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    tf.nn.softmax_cross_entropy_with_logits_v2(labels=tf.one_hot(labels, 3), logits=logits)
    tf.nn.softmax_cross_entropy_with_logits(labels=tf.one_hot(labels, 3), logits=logits)
    tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.ones([8, 3]), logits=logits)
    tf.nn.moments(x, [0])
    tf.nn.leaky_relu(x)
    tf.nn.elu(x)
    tf.nn.avg_pool(tf.zeros([1, 4, 4, 1]), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    counter = tf.Variable(0, name="counter", trainable=False)
    tf.assign_add(counter, 1)
    tf.assign(counter, 5)
    counter.assign(6)
    counter + 1
    step = tf.train.get_or_create_global_step()
    resource = tf.get_variable("resource", [3], use_resource=True, initializer=tf.constant_initializer([1, 2, 3]))
    resource.assign_add([1.0, 1.0, 1.0])
    variables = [each for each in tf.trainable_variables() if each is not resource][:4]
    optimizers = [
        tf.train.GradientDescentOptimizer(0.1),
        tf.train.MomentumOptimizer(0.1, 0.9),
        tf.train.AdamOptimizer(),
        tf.train.AdagradOptimizer(0.1),
        tf.train.RMSPropOptimizer(0.1),
    ]
    pairs = optimizers[0].compute_gradients(loss, variables)
    for optimizer in optimizers:
        optimizer.apply_gradients(pairs, global_step=step)
    tf.train.polynomial_decay(0.1, step, 100)
    tf.train.inverse_time_decay(0.1, step, 10, 0.5)
    tf.global_variables_initializer()
    tf.summary.scalar("loss", loss)
    tf.summary.merge_all()
