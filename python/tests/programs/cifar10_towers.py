"""A CIFAR-10 network on several GPUs, in the structure of TensorFlow 1's tutorial: a tower for each card, variables on the processor,
gradients averaged there, moving averages of what is learned. Batches are NumPy's.
"""

import os
import re
import sys
import time

import numpy as np

import plimsoll.compat.v1 as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("train_dir", "/tmp/cifar10_train", "Directory where to write event logs and checkpoints.")
tf.app.flags.DEFINE_integer("max_steps", 20, "Number of batches to run.")
tf.app.flags.DEFINE_integer("num_gpus", 2, "How many GPUs to use.")
tf.app.flags.DEFINE_integer("batch_size", 16, "Examples in a batch of a tower.")
tf.app.flags.DEFINE_boolean("log_device_placement", False, "Whether to log device placement.")
tf.app.flags.DEFINE_float("fraction", 0.0, "The share of each card's memory; all of it where 0.")

IMAGE_SIZE = 24
NUM_CLASSES = 10
NUM_EXAMPLES_PER_EPOCH = 3200
MOVING_AVERAGE_DECAY = 0.9999
NUM_EPOCHS_PER_DECAY = 3.0
LEARNING_RATE_DECAY_FACTOR = 0.1
INITIAL_LEARNING_RATE = 0.05
TOWER_NAME = "tower"


def _activation_summary(x):
    tensor_name = re.sub("%s_[0-9]*/" % TOWER_NAME, "", x.op.name)
    tf.summary.histogram(tensor_name + "/activations", x)
    tf.summary.scalar(tensor_name + "/sparsity", tf.nn.zero_fraction(x))


def _variable_on_cpu(name, shape, initializer):
    with tf.device("/cpu:0"):
        var = tf.get_variable(name, shape, initializer=initializer, dtype=tf.float32)
    return var


def _variable_with_weight_decay(name, shape, stddev, wd):
    var = _variable_on_cpu(name, shape, tf.truncated_normal_initializer(stddev=stddev, seed=1, dtype=tf.float32))
    if wd is not None:
        weight_decay = tf.multiply(tf.nn.l2_loss(var), wd, name="weight_loss")
        tf.add_to_collection("losses", weight_decay)
    return var


def inference(images):
    with tf.variable_scope("conv1") as scope:
        kernel = _variable_with_weight_decay("weights", shape=[5, 5, 3, 16], stddev=5e-2, wd=0.0)
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding="SAME")
        biases = _variable_on_cpu("biases", [16], tf.constant_initializer(0.0))
        pre_activation = tf.nn.bias_add(conv, biases)
        conv1 = tf.nn.relu(pre_activation, name=scope.name)
        _activation_summary(conv1)
    pool1 = tf.nn.max_pool(conv1, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME", name="pool1")
    norm1 = tf.nn.lrn(pool1, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm1")
    with tf.variable_scope("conv2") as scope:
        kernel = _variable_with_weight_decay("weights", shape=[5, 5, 16, 16], stddev=5e-2, wd=0.0)
        conv = tf.nn.conv2d(norm1, kernel, [1, 1, 1, 1], padding="SAME")
        biases = _variable_on_cpu("biases", [16], tf.constant_initializer(0.1))
        pre_activation = tf.nn.bias_add(conv, biases)
        conv2 = tf.nn.relu(pre_activation, name=scope.name)
        _activation_summary(conv2)
    norm2 = tf.nn.lrn(conv2, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name="norm2")
    pool2 = tf.nn.max_pool(norm2, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME", name="pool2")
    with tf.variable_scope("local3") as scope:
        reshape = tf.reshape(pool2, [images.get_shape().as_list()[0], -1])
        dim = reshape.get_shape()[1].value
        weights = _variable_with_weight_decay("weights", shape=[dim, 48], stddev=0.04, wd=0.004)
        biases = _variable_on_cpu("biases", [48], tf.constant_initializer(0.1))
        local3 = tf.nn.relu(tf.matmul(reshape, weights) + biases, name=scope.name)
        _activation_summary(local3)
    with tf.variable_scope("softmax_linear") as scope:
        weights = _variable_with_weight_decay("weights", [48, NUM_CLASSES], stddev=1 / 48.0, wd=None)
        biases = _variable_on_cpu("biases", [NUM_CLASSES], tf.constant_initializer(0.0))
        softmax_linear = tf.add(tf.matmul(local3, weights), biases, name=scope.name)
        _activation_summary(softmax_linear)
    return softmax_linear


def loss(logits, labels):
    labels = tf.cast(labels, tf.int64)
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits, name="cross_entropy_per_example")
    cross_entropy_mean = tf.reduce_mean(cross_entropy, name="cross_entropy")
    tf.add_to_collection("losses", cross_entropy_mean)
    return tf.add_n(tf.get_collection("losses"), name="total_loss")


def tower_loss(scope, images, labels):
    logits = inference(images)
    _ = loss(logits, labels)
    losses = tf.get_collection("losses", scope)
    total_loss = tf.add_n(losses, name="total_loss")
    for one in losses + [total_loss]:
        loss_name = re.sub("%s_[0-9]*/" % TOWER_NAME, "", one.op.name)
        tf.summary.scalar(loss_name, one)
    return total_loss


def average_gradients(tower_grads):
    average_grads = []
    for grad_and_vars in zip(*tower_grads):
        grads = [tf.expand_dims(g, 0) for g, _ in grad_and_vars]
        grad = tf.reduce_mean(tf.concat(axis=0, values=grads), 0)
        average_grads.append((grad, grad_and_vars[0][1]))
    return average_grads


def build():
    """The graph: what is fed, and what is run."""
    global_step = tf.get_variable("global_step", [], initializer=tf.constant_initializer(0), trainable=False, dtype=tf.int32)
    num_batches_per_epoch = NUM_EXAMPLES_PER_EPOCH / FLAGS.batch_size / FLAGS.num_gpus
    decay_steps = int(num_batches_per_epoch * NUM_EPOCHS_PER_DECAY)
    lr = tf.train.exponential_decay(INITIAL_LEARNING_RATE, global_step, decay_steps, LEARNING_RATE_DECAY_FACTOR, staircase=True)
    opt = tf.train.GradientDescentOptimizer(lr)
    images = [tf.placeholder(tf.float32, [FLAGS.batch_size, IMAGE_SIZE, IMAGE_SIZE, 3]) for _ in range(FLAGS.num_gpus)]
    labels = [tf.placeholder(tf.int32, [FLAGS.batch_size]) for _ in range(FLAGS.num_gpus)]
    tower_grads = []
    with tf.variable_scope(tf.get_variable_scope()):
        for i in range(FLAGS.num_gpus):
            with tf.device("/gpu:%d" % i):
                with tf.name_scope("%s_%d" % (TOWER_NAME, i)) as scope:
                    total_loss = tower_loss(scope, images[i], labels[i])
                    tf.get_variable_scope().reuse_variables()
                    summaries = tf.get_collection(tf.GraphKeys.SUMMARIES, scope)
                    grads = opt.compute_gradients(total_loss)
                    tower_grads.append(grads)
    grads = average_gradients(tower_grads)
    summaries.append(tf.summary.scalar("learning_rate", lr))
    for grad, var in grads:
        if grad is not None:
            summaries.append(tf.summary.histogram(var.op.name + "/gradients", grad))
    apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
    for var in tf.trainable_variables():
        summaries.append(tf.summary.histogram(var.op.name, var))
    variable_averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY, global_step)
    variables_averages_op = variable_averages.apply(tf.trainable_variables())
    train_op = tf.group(apply_gradient_op, variables_averages_op)
    return images, labels, train_op, total_loss, summaries, variable_averages


def batch(random):
    """Pictures whose class shows in their colours."""
    labels = random.integers(0, NUM_CLASSES, FLAGS.batch_size).astype(np.int32)
    images = random.normal(0, 0.5, (FLAGS.batch_size, IMAGE_SIZE, IMAGE_SIZE, 3)).astype(np.float32)
    images[..., 0] += (labels[:, None, None] % 4) - 1.5
    images[..., 1] += (labels[:, None, None] // 4) - 1
    return images, labels


def train():
    with tf.Graph().as_default(), tf.device("/cpu:0"):
        tf.set_random_seed(7)
        images, labels, train_op, total_loss, summaries, _ = build()
        saver = tf.train.Saver(tf.global_variables())
        summary_op = tf.summary.merge(summaries)
        init = tf.global_variables_initializer()
        options = tf.GPUOptions(per_process_gpu_memory_fraction=FLAGS.fraction) if FLAGS.fraction else None
        config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=FLAGS.log_device_placement, gpu_options=options)
        sess = tf.Session(config=config)
        sess.run(init)
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        summary_writer = tf.summary.FileWriter(FLAGS.train_dir, sess.graph)
        random = np.random.default_rng(3)
        for step in range(FLAGS.max_steps):
            if coord.should_stop():
                break
            start_time = time.time()
            feed = {}
            for i in range(FLAGS.num_gpus):
                feed[images[i]], feed[labels[i]] = batch(random)
            _, loss_value = sess.run([train_op, total_loss], feed_dict=feed)
            duration = time.time() - start_time
            assert not np.isnan(loss_value), "Model diverged with loss = NaN"
            if step % 10 == 0 or step + 1 == FLAGS.max_steps:
                rate = FLAGS.batch_size * FLAGS.num_gpus / duration
                print("step %d, loss = %.2f (%.1f examples/sec)" % (step, loss_value, rate))
            if step % 10 == 0:
                summary_writer.add_summary(sess.run(summary_op, feed), step)
            if step + 1 == FLAGS.max_steps:
                saver.save(sess, os.path.join(FLAGS.train_dir, "model.ckpt"), global_step=step)
        coord.request_stop()
        coord.join(threads)
        sess.close()


def main(argv=None):
    if tf.gfile.Exists(FLAGS.train_dir):
        tf.gfile.DeleteRecursively(FLAGS.train_dir)
    tf.gfile.MakeDirs(FLAGS.train_dir)
    train()


if __name__ == "__main__":
    tf.app.run()
    sys.exit(0)
