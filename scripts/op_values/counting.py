"""Fake quantization, buckets and counts; inverses of the error function; gradients of the largest of segments."""
from .cases import *


def fake_quantization():
    edges = np.array([-7, -6, -0.03, 0.021, 3.333, 5.99, 6, 9, np.nan, np.inf, -np.inf], np.float32)
    for x in (edges, f(3, 4, low=-7, high=7), f(0, 3)):
        both("FakeQuantWithMinMaxArgs", [x])
        run("FakeQuantWithMinMaxArgsGradient", [np.ones_like(x), x])
    both("FakeQuantWithMinMaxArgs", [f(3, 4)], min=-1.5, max=0.7, num_bits=4, narrow_range=True)
    for low, high in [(-1.3, 1.1), (0.0, 0.0), (1.0, 4.0), (-4.0, -1.0), (-0.5, 6.0)]:
        for attrs in (dict(), dict(num_bits=3, narrow_range=True)):
            ends = [n(low, np.float32), n(high, np.float32)]
            both("FakeQuantWithMinMaxVars", [f(3, 4, low=-3, high=5), *ends], **attrs)
            run("FakeQuantWithMinMaxVars", [edges, *ends], **attrs)
            run("FakeQuantWithMinMaxVarsGradient", [f(2, 5), f(2, 5, low=-5, high=7), *ends], **attrs)
    low, high = np.array([-1.0, -0.3, 0.5], np.float32), np.array([1.5, 0.9, 2.0], np.float32)
    for shape in ((3,), (4, 3), (2, 2, 3), (2, 1, 2, 3)):
        both("FakeQuantWithMinMaxVarsPerChannel", [f(*shape), low, high])
        run("FakeQuantWithMinMaxVarsPerChannelGradient", [f(*shape), f(*shape), low, high], num_bits=6)


def buckets():
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 1.0, 0.999], np.float32)
    for x in (special, f(3, 4), f(0, 2), ints(7), ints(5, dtype=np.int64), np.round(RANDOM.uniform(-2, 2, 5), 3)):
        run_floats("Bucketize", [x], boundaries=[-1.0, 0.0, 1.0, 1.5])
    run_floats("Bucketize", [f(3)], boundaries=[0.5])


def run_floats(op, inputs, boundaries):
    run(op, inputs, boundaries=Floats(boundaries))


def counts():
    none = np.zeros(0, np.float32)
    for weights in (none, np.zeros(0, np.int32)):
        run("Bincount", [i(1, 5, 2, 1, 9), n(6), weights])
        run("Bincount", [i(), n(3), weights])
        for dtype in (np.int32, np.int64):
            for binary in (False, True):
                run("DenseBincount", [i(1, 5, 2, 1, 9, dtype=dtype), n(6, dtype), weights], binary_output=binary)
                run("DenseBincount", [i([1, 5, 2], [1, 1, 9], dtype=dtype), n(6, dtype), weights], binary_output=binary)
    run("Bincount", [i(1, 5, 2, 1, 9), n(6), f(5)])
    run("Bincount", [i([1, 5], [2, 1]), n(6), f(2, 2)])
    run("Bincount", [i(1, 5), n(0), none])
    run("DenseBincount", [i([1, 5, 1], [1, 1, 9]), n(6), f(2, 3)])
    run("DenseBincount", [i([1, 5, 1], [1, 1, 9]), n(6), ints(2, 3, dtype=np.int64)])
    refuse("Bincount", [i(1, -5, 2), n(6), none])
    refuse("DenseBincount", [i(1, -5, 2), n(6), none])


def inverses():
    inside = np.array([-1, -0.999, -0.7, -0.3, -1e-6, -0.0, 0, 1e-20, 0.2, 0.5, 0.9, 0.99999, 1, 1.5, np.nan], np.float32)
    for dtype in (np.float32, np.float64):
        run("Erfinv", [inside.astype(dtype)])
        run("Ndtri", [np.array([0, 1e-30, 1e-10, 1e-4, 0.1, 0.24, 0.26, 0.5, 0.7, 0.9, 0.9999, 1, 1.1, -1, np.nan], dtype)])
        both("Erfinv", [f(3, 2, low=-0.95, high=0.95).astype(dtype)])
        both("Ndtri", [f(3, 2, low=0.05, high=0.95).astype(dtype)])


def largest_of_segments():
    for op in ["UnsortedSegmentMax", "UnsortedSegmentMin"]:
        both(op, [f(5), i(0, 1, 0, -1, 1), n(2)])
        run(op, [f(5), i(0, 2, 0, -1, 2), n(4)])
        both(op, [f(4, 3), i(1, 1, 0, 1, dtype=np.int64), n(2)])
        both(op, [f(2, 2, 2), i([1, -1], [0, 1]), n(2)])


ALONE = [fake_quantization, buckets, counts, inverses, largest_of_segments]
