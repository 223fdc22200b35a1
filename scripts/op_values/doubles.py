"""Convolutions and poolings of doubles."""
from .cases import *


def d(*shape, **kwargs):
    return f(*shape, **kwargs).astype(np.float64)


def convolutions():
    for padding in ["SAME", "VALID"]:
        for strides, dilations in [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 1)), ((1, 3), (1, 1))]:
            attrs = {"strides": [1, *strides, 1], "dilations": [1, *dilations, 1], "padding": padding}
            # TensorFlow has no gradients of dilated convolutions on CPUs.
            record = both if dilations == (1, 1) else run
            record("Conv2D", [d(2, 5, 4, 3), d(3, 2, 3, 2)], **attrs)
    run("Conv2D", [d(1, 5, 5, 4), d(3, 3, 2, 6)], strides=[1, 1, 1, 1], padding="SAME")
    both("Conv2D", [d(1, 5, 5, 2), d(3, 3, 2, 1)], strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 2, 1, 0, 1, 0, 0])
    run("Conv2D", [d(0, 5, 5, 2), d(3, 3, 2, 1)], strides=[1, 1, 1, 1], padding="SAME")
    both("Conv3D", [d(1, 4, 3, 3, 2), d(2, 2, 2, 2, 3)], strides=[1, 1, 1, 1, 1], padding="SAME")
    both("Conv3D", [d(2, 4, 3, 3, 1), d(2, 1, 3, 1, 2)], strides=[1, 2, 1, 1, 1], padding="VALID")
    for padding in ["SAME", "VALID"]:
        for stride in [1, 2]:
            both("DepthwiseConv2dNative", [d(2, 5, 6, 3), d(3, 2, 3, 2)], strides=[1, stride, stride, 1], padding=padding)
    both("DepthwiseConv2dNative", [d(1, 5, 5, 2), d(2, 2, 2, 1)], strides=[1, 1, 1, 1], padding="VALID")


def poolings():
    for op in ["MaxPool", "AvgPool"]:
        for padding in ["SAME", "VALID"]:
            for ksize, stride in [((2, 2), (2, 2)), ((3, 2), (1, 2)), ((2, 3), (3, 1))]:
                both(op, [d(2, 6, 5, 3)], ksize=[1, *ksize, 1], strides=[1, *stride, 1], padding=padding)
    run("MaxPool", [np.array([np.nan, 1, -np.inf, -np.inf, np.inf, np.nan]).reshape(1, 1, 6, 1)], ksize=[1, 1, 2, 1], strides=[1, 1, 1, 1], padding="VALID")
    run("AvgPool", [np.array([np.nan, 1, -np.inf, 4, np.inf, -np.inf]).reshape(1, 1, 6, 1)], ksize=[1, 1, 2, 1], strides=[1, 1, 1, 1], padding="VALID")


ALONE = [convolutions, poolings]
