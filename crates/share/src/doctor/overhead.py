"""Opens the first card with a framework, does a product and a convolution, says how much the allocator has of the card, and keeps all
of it until standard input ends. What cannot be done is said, too."""

import os
import sys


def pytorch():
    import torch

    card = torch.device("cuda", 0)
    matrix = torch.ones(64, 64, device=card)
    torch.nn.functional.conv2d(torch.ones(1, 3, 16, 16, device=card), torch.ones(4, 3, 3, 3, device=card))
    (matrix @ matrix).sum().item()
    return torch.cuda.memory_reserved(0)


def tensorflow():
    # It does not say what its allocator has; without growth, that is the limit.
    size = 256
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "false"
    import tensorflow as tf

    card = tf.config.list_physical_devices("GPU")[0]
    tf.config.set_logical_device_configuration(card, [tf.config.LogicalDeviceConfiguration(memory_limit=size)])
    with tf.device("GPU:0"):
        matrix = tf.ones([64, 64])
        tf.nn.conv2d(tf.ones([1, 16, 16, 3]), tf.ones([3, 3, 3, 4]), 1, "SAME")
        float(tf.reduce_sum(matrix @ matrix))
    return size << 20


def jax():
    import jax
    from jax import numpy

    card = [device for device in jax.local_devices() if device.platform in ("gpu", "cuda")][0]
    with jax.default_device(card):
        matrix = numpy.ones((64, 64))
        jax.lax.conv(numpy.ones((1, 3, 16, 16)), numpy.ones((4, 3, 3, 3)), (1, 1), "SAME").block_until_ready()
        float((matrix @ matrix).sum())
    return card.memory_stats()["pool_bytes"]


try:
    said = str(int(globals()[sys.argv[1]]()))
except Exception as error:
    said = "%s: %s" % (type(error).__name__, error)
print("\nplimsoll-overhead " + " ".join(said.split()), flush=True)
sys.stdin.read()
