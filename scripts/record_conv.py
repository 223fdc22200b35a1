#!/usr/bin/env python3
"""Records convolutions, pooling and LRN with their gradients as TensorFlow computes them on CPUs.

Usage: record_conv.py OUT, then record_conv.py OUT --dilated, which adds to it; OUT is crates/kernels/src/testdata/conv.txt.

Each line: the operation, its sizes, its attributes, what inputs are made of, and results of chosen elements. Inputs are made by the
formula of `made` below, so that they need not be recorded.
"""

import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
# Gradients with dilation are computed by oneDNN only.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1" if "--dilated" in sys.argv else "0"

import numpy as np
import tensorflow as tf

ops = tf.raw_ops


def made(shape, salt):
    """Numbers from -1 to 1 with many ties, exactly representable."""
    count = int(np.prod(shape))
    at = np.arange(count, dtype=np.uint64)
    mixed = (at * np.uint64(2654435761) + np.uint64(salt * 40503 + 12345)) % np.uint64(4294967296)
    mixed = (mixed >> np.uint64(13)) % np.uint64(65)
    return ((mixed.astype(np.float32) - 32) / 32).reshape(shape)


lines = []


def line(name, sizes, attributes, output):
    flat = np.ascontiguousarray(output, np.float32).reshape(-1)
    count = len(flat)
    chosen = range(count) if count <= 24 else sorted({*range(4), *range(count - 4, count), *range(0, count, max(1, count // 32))})
    words = [name, ",".join(map(str, sizes)), ",".join(map(str, attributes)) or "-", str(count), repr(float(np.sum(flat, dtype=np.float64)))]
    lines.append(" ".join(words + [f"{at}={flat[at]!r}".replace("np.float32(", "").replace(")", "") for at in chosen]))


def padded(size, taps, stride, padding, explicit):
    """Size of the result and padding before, as the sizes of a kernel say it."""
    if padding == "SAME":
        out = -(-size // stride)
        return out, max((out - 1) * stride + taps - size, 0) // 2
    before, after = explicit if padding == "EXPLICIT" else (0, 0)
    return (size + before + after - taps) // stride + 1, before


def geometry(h, w, kh, kw, sh, sw, padding, explicit):
    explicit = explicit or [(0, 0), (0, 0)]
    (oh, top), (ow, left) = padded(h, kh, sh, padding, explicit[0]), padded(w, kw, sw, padding, explicit[1])
    return oh, ow, top, left


def arguments(sh, sw, padding, explicit):
    more = {"strides": [1, sh, sw, 1], "padding": padding}
    if padding == "EXPLICIT":
        (top, bottom), (left, right) = explicit
        more["explicit_paddings"] = [0, 0, top, bottom, left, right, 0, 0]
    return more


def convolution(n, h, w, c, o, kh, kw, sh, sw, padding, explicit=None, dilations=(1, 1)):
    dh, dw = dilations
    oh, ow, top, left = geometry(h, w, (kh - 1) * dh + 1, (kw - 1) * dw + 1, sh, sw, padding, explicit)
    sizes = [n, h, w, c, oh, ow, o, kh, kw, sh, sw, top, left, dh, dw]
    x, f, g = made([n, h, w, c], 1), made([kh, kw, c, o], 2), made([n, oh, ow, o], 3)
    more = {**arguments(sh, sw, padding, explicit), "dilations": [1, dh, dw, 1]}
    line("Conv2D", sizes, [], ops.Conv2D(input=x, filter=f, **more))
    line("Conv2DBackpropInput", sizes, [], ops.Conv2DBackpropInput(input_sizes=x.shape, filter=f, out_backprop=g, **more))
    line("Conv2DBackpropFilter", sizes, [], ops.Conv2DBackpropFilter(input=x, filter_sizes=f.shape, out_backprop=g, **more))


def depthwise(n, h, w, c, m, kh, kw, s, padding, explicit=None):
    oh, ow, top, left = geometry(h, w, kh, kw, s, s, padding, explicit)
    sizes = [n, h, w, c, oh, ow, m, kh, kw, s, s, top, left]
    x, f, g = made([n, h, w, c], 1), made([kh, kw, c, m], 2), made([n, oh, ow, c * m], 3)
    more = arguments(s, s, padding, explicit)
    line("DepthwiseConv2dNative", sizes, [], ops.DepthwiseConv2dNative(input=x, filter=f, **more))
    grad = ops.DepthwiseConv2dNativeBackpropInput(input_sizes=x.shape, filter=f, out_backprop=g, **more)
    line("DepthwiseConv2dNativeBackpropInput", sizes, [], grad)
    grad = ops.DepthwiseConv2dNativeBackpropFilter(input=x, filter_sizes=f.shape, out_backprop=g, **more)
    line("DepthwiseConv2dNativeBackpropFilter", sizes, [], grad)


def pooling(n, h, w, c, kh, kw, sh, sw, padding, explicit=None):
    oh, ow, top, left = geometry(h, w, kh, kw, sh, sw, padding, explicit)
    sizes = [n, h, w, c, oh, ow, kh, kw, sh, sw, top, left]
    x, g = made([n, h, w, c], 1), made([n, oh, ow, c], 3)
    more = {"ksize": [1, kh, kw, 1], **arguments(sh, sw, padding, explicit)}
    y = ops.MaxPool(input=x, **more)
    line("MaxPool", sizes, [], y)
    line("MaxPoolGrad", sizes, [], ops.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **more))
    if padding != "EXPLICIT":
        line("AvgPool", sizes, [], ops.AvgPool(value=x, **more))
        line("AvgPoolGrad", sizes, [], ops.AvgPoolGrad(orig_input_shape=x.shape, grad=g, **more))


def lrn(rows, channels, radius, bias, alpha, beta):
    more = {"depth_radius": radius, "bias": bias, "alpha": alpha, "beta": beta}
    x, g = made([rows, 1, 1, channels], 1), made([rows, 1, 1, channels], 3)
    y = ops.LRN(input=x, **more)
    line("LRN", [rows, channels], [radius, bias, alpha, beta], y)
    grad = ops.LRNGrad(input_grads=g, input_image=x, output_image=y, **more)
    line("LRNGrad", [rows, channels], [radius, bias, alpha, beta], grad)


if "--dilated" in sys.argv:
    convolution(2, 11, 9, 5, 7, 3, 3, 1, 1, "SAME", dilations=(2, 2))
    convolution(1, 12, 12, 3, 17, 3, 2, 1, 1, "VALID", dilations=(3, 2))
    convolution(2, 13, 10, 4, 6, 3, 3, 2, 2, "SAME", dilations=(2, 2))
    convolution(1, 14, 11, 6, 33, 2, 3, 3, 2, "VALID", dilations=(2, 3))
    convolution(1, 9, 9, 16, 16, 3, 3, 1, 1, "SAME", dilations=(1, 4))
else:
    convolution(2, 24, 24, 3, 64, 5, 5, 1, 1, "SAME")
    convolution(2, 12, 12, 64, 64, 5, 5, 1, 1, "SAME")
    convolution(1, 9, 7, 5, 3, 3, 3, 2, 2, "SAME")
    convolution(3, 10, 10, 17, 33, 3, 3, 1, 1, "VALID")
    convolution(1, 15, 15, 3, 16, 7, 7, 2, 2, "SAME")
    convolution(2, 8, 8, 16, 80, 1, 1, 1, 1, "SAME")
    convolution(2, 9, 9, 6, 10, 1, 1, 2, 2, "VALID")
    convolution(1, 11, 6, 4, 9, 2, 4, 3, 1, "SAME")
    convolution(1, 8, 9, 3, 5, 3, 3, 2, 2, "EXPLICIT", [(2, 1), (0, 2)])
    depthwise(2, 14, 14, 32, 1, 3, 3, 1, "SAME")
    depthwise(1, 15, 14, 19, 1, 3, 3, 2, "SAME")
    depthwise(1, 15, 15, 24, 1, 5, 5, 2, "VALID")
    depthwise(2, 7, 6, 5, 3, 3, 2, 1, "SAME")
    depthwise(1, 9, 9, 16, 2, 3, 3, 2, "VALID")
    pooling(2, 24, 24, 16, 3, 3, 2, 2, "SAME")
    pooling(2, 12, 12, 5, 3, 3, 2, 2, "VALID")
    pooling(1, 7, 9, 3, 2, 2, 2, 2, "SAME")
    pooling(3, 8, 8, 33, 2, 3, 1, 2, "SAME")
    pooling(1, 9, 9, 4, 3, 3, 2, 2, "EXPLICIT", [(1, 1), (1, 0)])
    lrn(6, 64, 4, 1.0, 0.001 / 9.0, 0.75)
    lrn(5, 19, 5, 1.0, 1.0, 0.5)
    lrn(5, 7, 2, 2.0, 0.5, 1.0)
    lrn(4, 33, 3, 1.5, 0.25, 0.6)
    lrn(2, 4, 9, 1.0, 0.5, 0.75)
    convolution(1, 5, 5, 1, 1, 5, 5, 1, 1, "VALID")
    convolution(1, 1, 1, 7, 3, 3, 3, 1, 1, "SAME")
    convolution(1, 3, 17, 2, 4, 1, 5, 1, 3, "SAME")
    convolution(4, 6, 5, 1, 130, 3, 3, 1, 1, "EXPLICIT", [(3, 0), (1, 4)])
    pooling(1, 5, 5, 1, 5, 5, 1, 1, "VALID")
    pooling(1, 2, 3, 7, 3, 3, 2, 2, "SAME")
    pooling(4, 6, 5, 17, 2, 4, 3, 1, "EXPLICIT", [(1, 0), (2, 3)])
with open(sys.argv[1], "a" if "--dilated" in sys.argv else "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
