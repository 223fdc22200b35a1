"""Dilations of images by filters, and their gradients."""
from .cases import *


def dilations():
    for padding in ("VALID", "SAME"):
        for stride, rate, size in ((1, 1, (2, 2)), (2, 1, (3, 2)), (1, 2, (2, 3)), (2, 3, (2, 2)), (3, 1, (1, 1))):
            attrs = dict(strides=[1, stride, stride, 1], rates=[1, rate, rate, 1], padding=padding)
            both("Dilation2D", [f(2, 6, 5, 2), f(*size, 2)], **attrs)
    attrs = dict(strides=[1, 1, 2, 1], rates=[1, 1, 1, 1], padding="SAME")
    run("Dilation2D", [f(1, 3, 4, 1).astype(np.float64), f(5, 3, 1).astype(np.float64)], **attrs)
    run("Dilation2D", [f(1, 3, 4, 1).astype(np.float16), f(2, 3, 1).astype(np.float16)], **attrs)
    run("Dilation2D", [np.array([[[[np.nan], [1.0], [-np.inf]]]], np.float32), f(1, 2, 1)], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="VALID")
    for op in ("Input", "Filter"):
        run("Dilation2DBackprop" + op, [f(1, 3, 4, 2), f(2, 3, 2), f(1, 3, 2, 2)], **attrs)
        run("Dilation2DBackprop" + op, [f(1, 3, 4, 2).astype(np.float64), f(2, 3, 2).astype(np.float64), f(1, 3, 2, 2).astype(np.float64)], **attrs)


def of_integers():
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        low = 0 if np.dtype(dtype).kind == "u" else -9
        x, w = ints(2, 5, 4, 2, low=low, dtype=dtype), ints(3, 2, 2, low=low, dtype=dtype)
        for padding, stride, rate in (("VALID", 1, 1), ("SAME", 2, 1), ("SAME", 1, 2)):
            attrs = dict(strides=[1, stride, stride, 1], rates=[1, rate, rate, 1], padding=padding)
            run("Dilation2D", [x, w], **attrs)
        dy = ints(2, 5, 4, 2, low=low, dtype=dtype)
        for op in ("Input", "Filter"):
            run("Dilation2DBackprop" + op, [x, w, dy], **attrs)
    # A sum that is too large wraps, and what lies outside is no sum, however large the filter is.
    ends = np.array([[[[127], [100], [-128], [-100]]]], np.int8)
    for w in ([[[100]], [[-100]]], [[[-128]], [[-128]]]):
        for padding in ("VALID", "SAME"):
            run("Dilation2D", [ends, np.array(w, np.int8).reshape(1, 2, 1)], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=padding)
            run("Dilation2D", [ends, np.array(w, np.int8).reshape(2, 1, 1)], strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding="SAME")


ALONE = [dilations, of_integers]
