"""Operations on elements and shapes."""

import numpy as np

import plimsoll.compat.v1 as tf


def build():
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    y = tf.placeholder(tf.int32, [3])
    tf.placeholder_with_default(tf.zeros([2]), [None])
    z = tf.constant(np.arange(12, dtype=np.float64).reshape(3, 4))
    tf.constant("text")
    tf.constant(7, dtype=tf.int64, shape=[2, 2])
    tf.zeros([3, 4])
    tf.ones([40, 40], tf.int32)
    tf.zeros_like(x)
    tf.zeros_like(z)
    tf.ones_like(y)
    tf.shape(x)
    tf.shape(z)
    tf.size(z)
    tf.rank(x)
    tf.reshape(x, [-1, 2, 2])
    tf.reshape(x, tf.stack([2, -1]))
    tf.expand_dims(y, -1)
    tf.squeeze(tf.expand_dims(y, 0), [0])
    tf.concat([x, x], 1)
    tf.concat([x], 0)
    tf.stack([y, y], axis=1)
    tf.unstack(z)
    tf.split(z, 2, axis=1)
    tf.split(z, [1, 3], axis=1)
    tf.transpose(z)
    tf.transpose(x, [1, 0])
    tf.gather(z, y)
    tf.one_hot(y, 5)
    tf.one_hot(y, 5, on_value=2.0, off_value=1.0, axis=0)
    tf.slice(z, [0, 1], [2, -1])
    tf.pad(z, [[1, 1], [0, 0]])
    tf.where(z > 3.0)
    tf.where(z > 3.0, z, -z)
    z[1]
    z[:, 1:3]
    z[..., None, ::2]
    z[y[0]]
    tf.cast(y, tf.float32)
    tf.cast(x, tf.float32)
    tf.to_float(y)
    tf.argmax(x, 1)
    tf.range(5)
    tf.range(1, tf.size(y), 2)
    tf.reduce_sum(x)
    tf.reduce_mean(x, 1)
    tf.reduce_max(z, [0, 1], keepdims=True)
    tf.reduce_all(z > 1.0, axis=0)
    tf.stop_gradient(x)
    tf.equal(y, 3)
    tf.logical_and(z > 1.0, z < 5.0)
    y + 1
    2 * y
    y / 2
    y // 2
    y % 2
    -y
    abs(y)
    x**2.0
    tf.maximum(x, 0.0)
    tf.minimum(1.0, x)
    tf.pow(x, 3.0)
    tf.div(y, 2)
    tf.truediv(y, y)
    tf.squared_difference(x, 1.0)
    tf.rsqrt(x)
    tf.clip_by_value(x, -1.0, 1.0)
    tf.matmul(x, x, transpose_b=True)
    tf.matmul(tf.zeros([2, 3, 4]), tf.zeros([2, 4, 5]))
    tf.reduce_logsumexp(x, 1)
    tf.nn.in_top_k(x, tf.zeros([3], tf.int32), 2)
    tf.nn.top_k(x, 2)
    tf.random_uniform([2, 3], seed=3)
    tf.random_normal([2], stddev=0.5)
    tf.truncated_normal([2, 2])
    tf.random_uniform([4], 0, 10, tf.int32)
    tf.raw_ops.Conv2D(input=tf.zeros([1, 4, 4, 1]), filter=tf.zeros([2, 2, 1, 1]), strides=[1, 1, 1, 1], padding="VALID")
    tf.raw_ops.AddN(inputs=[x, x], name="sum")
