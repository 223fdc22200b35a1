"""Towers: variables in one place, the model on several devices, gradients that are averaged and applied."""
import tensorflow as tf

from .common import add_case, case, on, tf1, variable


def towers(count, resource, optimizer, parameters="/cpu:0", tower="/cpu:{}", first=1, average_on=None):
    """Inputs are split; each tower computes a loss and gradients; the mean of those is applied."""

    def build():
        with on("/cpu:0"):
            x = tf1.random.uniform([count * 2, 3], seed=1, name="x")
            labels = tf1.random.uniform([count * 2], maxval=2, dtype=tf.int32, seed=2, name="labels")
            xs, ys = tf.split(x, count), tf.split(labels, count)
            rate = tf1.train.exponential_decay(0.1, tf1.train.get_or_create_global_step(), 10, 0.5, staircase=True)
            opt = optimizer(rate)
        all_gradients, losses = [], []
        for i in range(count):
            with on(tower.format(first + i)), tf1.name_scope(f"tower_{i}"), tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
                with on(parameters) if parameters else tf1.name_scope("model"):
                    w, b = variable("w", (3, 2), resource), variable("b", (2,), resource)
                logits = tf1.nn.bias_add(tf.matmul(xs[i], w), b)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ys[i], logits=logits))
                losses.append(loss)
                all_gradients.append(opt.compute_gradients(loss, colocate_gradients_with_ops=i % 2 == 1))
        with on(average_on) if average_on else tf1.name_scope("average"):
            averaged = []
            for pairs in zip(*all_gradients):
                averaged.append((tf.reduce_mean(tf.stack([g for g, _ in pairs]), 0), pairs[0][1]))
        step = opt.apply_gradients(averaged, tf1.train.get_or_create_global_step())
        with on("/cpu:0"):
            loss = tf.add_n(losses, name="loss")
        return [([tf1.global_variables_initializer()], [step, loss])]

    return build


SGD, MOMENTUM, ADAM = tf1.train.GradientDescentOptimizer, lambda rate: tf1.train.MomentumOptimizer(rate, 0.9), tf1.train.AdamOptimizer

for count in (2, 3, 4):
    for kind in ("ref", "resource"):
        optimizer = {2: SGD, 3: MOMENTUM, 4: ADAM}[count]
        add_case(f"towers{count}_{kind}", towers(count, kind == "resource", optimizer), cpus=count + 1, soft=False)
add_case("towers4_gpu_softened", towers(4, False, SGD, tower="/gpu:{}", first=0), cpus=2)
add_case("towers2_gpu_without_parameter_device", towers(2, True, MOMENTUM, parameters=None, tower="/gpu:{}", first=0), cpus=3)
add_case("towers3_variables_in_first_tower", towers(3, False, ADAM, parameters=None), cpus=4)
add_case("towers3_variables_in_first_tower_resource", towers(3, True, ADAM, parameters=None), cpus=4, soft=False)
add_case("towers2_average_elsewhere", towers(2, True, SGD, average_on="/cpu:3"), cpus=4, soft=False)
add_case("towers5_of_twelve_devices", towers(5, False, SGD, first=7), cpus=12, soft=False)
add_case("towers2_no_device_for_the_first", towers(2, False, MOMENTUM, tower="/device:CPU:{}", first=7), cpus=8)


@case(cpus=3, soft=False)
def towers2_convolution():
    """The shape of the CIFAR-10 tutorial: variables on cpu:0, convolution, pooling, normalisation, moving averages, a queue."""
    with on("/cpu:0"):
        step = tf1.train.get_or_create_global_step()
        queue = tf1.FIFOQueue(8, [tf.float32, tf.int32], [[2, 8, 8, 3], [2]], name="batches")
        fill = queue.enqueue([tf.ones([2, 8, 8, 3]), tf.constant([0, 1])])
        opt = tf1.train.GradientDescentOptimizer(tf1.train.exponential_decay(0.1, step, 350, 0.1, True))
    gradients = []
    for i in range(2):
        with on(f"/cpu:{i + 1}"), tf1.name_scope(f"tower_{i}"), tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
            images, labels = queue.dequeue()
            with on("/cpu:0"):
                kernel, bias = variable("kernel", (3, 3, 3, 4)), variable("bias", (4,))
                dense = variable("dense", (64, 2))
            x = tf.nn.relu(tf1.nn.bias_add(tf1.nn.conv2d(images, kernel, [1, 1, 1, 1], "SAME"), bias))
            x = tf1.nn.lrn(tf1.nn.max_pool(x, [1, 3, 3, 1], [1, 2, 2, 1], "SAME"), 4, 1.0, 0.001 / 9, 0.75)
            x = tf.matmul(tf.reshape(x, [2, -1]), dense)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
            decay = tf.multiply(tf.nn.l2_loss(dense), 0.004)
            total = tf.add_n([loss, decay])
            tf1.summary.scalar("total", total)
            gradients.append(opt.compute_gradients(total))
    average = [(tf.reduce_mean(tf.concat([tf.expand_dims(g, 0) for g, _ in pairs], 0), 0), pairs[0][1]) for pairs in zip(*gradients)]
    apply = opt.apply_gradients(average, global_step=step)
    averages = tf1.train.ExponentialMovingAverage(0.999, step).apply(tf1.trainable_variables())
    for _, v in average:
        tf1.summary.histogram(v.op.name, v)
    summary = tf1.summary.merge_all()
    train = tf.group(apply, averages, name="train")
    tf1.train.Saver(tf1.global_variables())
    return [([tf1.global_variables_initializer(), fill, fill, fill, fill], [train]), ([fill, fill], [summary])]
