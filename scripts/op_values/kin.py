"""Scatters of small integers, and what is like other operations but for its operands."""
from .cases import *

KNOWN_OF["SparseToDense"] = {"output_shape"}
KNOWN_OF["MaxPoolV2"] = {"ksize", "strides"}
KNOWN_OF["MaxPoolGradV2"] = {"ksize", "strides"}
KNOWN_OF["MaxPoolGradGradV2"] = {"ksize", "strides"}


def scatters():
    for dtype in (np.int8, np.int16, np.uint8, np.uint16, np.uint32, np.uint64):
        low, high = (0, 250) if np.dtype(dtype).kind == "u" else (-120, 120)
        def x(*shape):
            return ints(*shape, low=low, high=high, dtype=dtype)

        if dtype is not np.uint8:
            run("ScatterNd", [i([1], [3], [1]), x(3, 2), i(4, 2)])
        for op in ("Update", "Add", "Sub", "Min", "Max"):
            run("TensorScatter" + op, [x(4, 2), i([1], [3], [1]), x(3, 2)])
        for op in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max"):
            updates = np.maximum(x(3, 2), 1).astype(dtype)
            apply("ResourceScatter" + op, [x(4, 2)], [i(1, 3, 1), updates])
        for op in ("Sum", "Prod", "Max", "Min"):
            run("UnsortedSegment" + op, [x(5, 2), i(0, 2, 0, -1, 2), n(4)])
        run("SparseToDense", [i([0, 1], [1, 1]), i(2, 2), x(2), x()])


def complex_sums():
    for dtype in (np.complex64, np.complex128):
        both("UnsortedSegmentSum", [c(5, 2, dtype=dtype), i(0, 2, 0, -1, 2), n(4)])
        for op in ("Update", "Add", "Sub"):
            record = run if op == "Update" else both
            record("TensorScatter" + op, [c(4, 2, dtype=dtype), i([1], [3], [1]), c(3, 2, dtype=dtype)])
        apply("ResourceScatterAdd", [c(4, 2, dtype=dtype)], [i(1, 3, 1), c(3, 2, dtype=dtype)])


def poolings():
    for padding in ("VALID", "SAME"):
        for size, stride in ((2, 2), (3, 1), (2, 3)):
            window, strides = i(1, size, size, 1), i(1, stride, stride, 1)
            both("MaxPoolV2", [f(2, 5, 6, 3), window, strides], padding=padding)
            x = f(1, 5, 5, 2)
            y = value_of_pool(x, size, stride, padding)
            run("MaxPoolGradV2", [x, y, f(*y.shape), window, strides], padding=padding)
            run("MaxPoolGradGradV2", [x, y, f(*x.shape), window, strides], padding=padding)


def paddings():
    for sides in ((0, 0, 1, 1, 1, 1, 0, 0), (0, 0, 0, 2, 1, 0, 0, 0)):
        both("MaxPool", [f(1, 5, 6, 2)], ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="EXPLICIT", explicit_paddings=sides)
        x = [f(1, 5, 6, 2), f(3, 2, 2, 2)]
        both("DepthwiseConv2dNative", x, strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=sides)


def value_of_pool(x, size, stride, padding):
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        return session.run(tf.raw_ops.MaxPool(input=x, ksize=[1, size, size, 1], strides=[1, stride, stride, 1], padding=padding))


def fresnel():
    inside = np.array([0, -0.0, 1e-20, 0.1, -0.5, 1.0, 1.59, 1.61, -2.7, 10.0, 123.4, 36973.0, 1e6, np.inf, -np.inf, np.nan], np.float64)
    for dtype in (np.float32, np.float64):
        for op in ("FresnelCos", "FresnelSin"):
            run(op, [inside[np.isnan(inside) | (abs(inside) < 3) | (dtype == np.float64)].astype(dtype)])
            both(op, [f(3, 2, low=-2.5, high=2.5).astype(dtype)])


ALONE = [scatters, complex_sums, poolings, paddings, fresnel]
