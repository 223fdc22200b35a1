"""Special functions: Bessel functions, integrals, incomplete gamma functions."""
from .cases import *

ENDS = [0, -0.0, np.inf, -np.inf, np.nan]


def bessel():
    for op in ["BesselI0", "BesselI0e", "BesselI1", "BesselI1e"]:
        for dtype in [np.float32, np.float64]:
            both(op, [f(9, low=-8, high=8).astype(dtype)])
            run(op, [np.array([1, -1, 12.5, 19.9, 20.1, 50, -80] + ENDS, dtype)])
        run(op, [f(5).astype(np.float16)])
        # TensorFlow's gradient of BesselI1 at 0 is 1, and not 1/2; BesselI1e has two slopes there.
        if op in ("BesselI0", "BesselI0e"):
            both(op, [np.array([0.0])])
    for op in ["BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1"]:
        for dtype in [np.float32, np.float64]:
            both(op, [f(9, low=0.3, high=8).astype(dtype)])
            run(op, [np.array([1, 1.9, 2, 2.1, 12.5, 60], dtype)])
        # Of floats BesselY1 is NaN at 0, of doubles infinite.
        run(op, [np.array([-1] + ENDS)])
        run(op, [f(5, low=0.5, high=4).astype(np.float16)])
    for op in ["BesselJ0", "BesselJ1"]:
        for dtype in [np.float32, np.float64]:
            both(op, [f(9, low=-8, high=8).astype(dtype)])
            run(op, [np.array([1, -1, 4.9, 5.1, 12.5] + ENDS, dtype)])
        both(op, [np.array([0.0])])


def integrals():
    for dtype in [np.float32, np.float64]:
        both("Dawsn", [f(9, low=-6, high=6).astype(dtype)])
        run("Dawsn", [np.array([0.1, 0.19, 0.21, -0.05, 11.9, 12.1, 30, -100] + ENDS, dtype)])
        both("Expint", [f(7, low=0.2, high=6).astype(dtype)])
        run("Expint", [np.array([0.01, 1, 12, 44, 46, 80, -1, 0, np.nan], dtype)])
        both("Spence", [f(7, low=0.05, high=6).astype(dtype)])
        run("Spence", [np.array([0, 0.1, 0.49, 0.51, 1, 1.99, 2.01, 100, -1, np.nan], dtype)])
    both("Spence", [np.array([1.0])])


def gamma():
    for dtype in [np.float32, np.float64]:
        for op in ["Igamma", "Igammac"]:
            both(op, [f(7, low=0.2, high=6).astype(dtype), f(7, low=0.2, high=8).astype(dtype)])
            both(op, [f(3, 1, low=0.2, high=6).astype(dtype), f(2, low=0.2, high=8).astype(dtype)])
            run(op, [np.array([1, 1, 0, -1, 2, 0.5, np.nan, 1, np.inf, 0], dtype), np.array([0, 1, 1, 1, -1, np.inf, 1, np.nan, 1, 0], dtype)])
            run(op, [np.array([30, 0.01, 5], dtype), np.array([31, 3, 1e4], dtype)])
        run("Igamma", [np.array([100.0, 100, 1000]), np.array([90.0, 110, 1010])])
        run("IgammaGradA", [f(7, low=0.2, high=6).astype(dtype), f(7, low=0.2, high=8).astype(dtype)])
        run("IgammaGradA", [np.array([1, 1, 0, -1, 2, np.nan, 1], dtype), np.array([0, 1, 1, 1, -1, 1, np.nan], dtype)])


def next_after():
    for dtype in [np.float32, np.float64]:
        info = np.finfo(dtype)
        ends = np.array([0, -0.0, 1, -1, info.max, info.min, info.tiny, -info.tiny, np.inf, -np.inf, np.nan, 0.5], dtype)
        x, y = np.meshgrid(ends, ends)
        run("NextAfter", [x.reshape(-1), y.reshape(-1)])
        both("NextAfter", [f(3, 1).astype(dtype), f(4).astype(dtype)])


ALONE = [bessel, integrals, gamma, next_after]
