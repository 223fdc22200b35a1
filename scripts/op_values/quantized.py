"""Floats as integers of a range, and back."""
from .cases import *

KINDS = {tf.qint8: np.int8, tf.quint8: np.uint8, tf.qint16: np.int16, tf.quint16: np.uint16, tf.qint32: np.int32}
EDGES = np.array([-7, -1.3, -0.5, -0.01, -0.0, 0.0, 0.004, 0.2, 0.5, 1.1, 2.5, np.inf, -np.inf], np.float32)
RANGES = [(-1.0, 1.0), (-0.5, 2.0), (0.5, 2.0), (0.0, 0.0), (-3.0, -1.0), (-1e-4, 1e-4)]


def ends(low, high):
    return [np.array(low, np.float32), np.array(high, np.float32)]


def levels(kind):
    """The ends of a quantized type, and numbers between."""
    info = np.iinfo(KINDS[kind])
    some = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 77, info.min // 3]
    return np.array(some, np.int64).astype(KINDS[kind]).view(kind.as_numpy_dtype)


def quantized():
    for kind in KINDS:
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            for low, high in RANGES:
                run("QuantizeV2", [EDGES, *ends(low, high)], T=kind, mode=mode)
            run("QuantizeV2", [f(2, 3, 4), *ends(-1.2, 1.7)], T=kind, mode=mode, narrow_range=True)
            run("QuantizeV2", [f(9), *ends(-1e-3, 1e-3)], T=kind, mode=mode, ensure_minimum_range=0.0)
    halves = np.arange(-10, 11).astype(np.float32) / 2
    for mode in ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"):
        run("QuantizeV2", [halves, *ends(-127.0, 127.0)], T=tf.qint8, mode="SCALED", narrow_range=True, round_mode=mode)
    run("QuantizeV2", [f(0, 3), *ends(-1, 1)], T=tf.qint8)


def of_slices():
    for kind in (tf.qint8, tf.quint8, tf.qint32):
        for mode in ("MIN_COMBINED", "SCALED"):
            for axis in (0, 1, 2):
                size = (2, 3, 4)[axis]
                low, high = f(size, low=-2, high=0), f(size, low=0, high=2)
                run("QuantizeV2", [f(2, 3, 4), low, high], T=kind, mode=mode, axis=axis)
    # One slice has a range of scalars.
    run("QuantizeV2", [f(2, 1, 4), f(1, low=-2, high=0), f(1, low=0, high=2)], T=tf.qint8, axis=1)
    run("QuantizeV2", [f(1, 4), f(1, low=-2, high=0), f(1, low=0, high=2)], T=tf.qint8, axis=0, mode="MIN_FIRST")


def dequantized():
    for kind in KINDS:
        for mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
            for low, high in RANGES:
                run("Dequantize", [levels(kind), *ends(low, high)], mode=mode)
            run("Dequantize", [levels(kind).reshape(3, 3), *ends(-1.2, 1.7)], mode=mode, narrow_range=True)
        run("Dequantize", [levels(kind), *ends(-1.2, 1.7)], dtype=tf.bfloat16)
        for mode in ("MIN_COMBINED", "SCALED"):
            for axis in (0, 1):
                run("Dequantize", [levels(kind).reshape(3, 3), f(3, low=-2, high=0), f(3, low=0, high=2)], mode=mode, axis=axis)
    run("Dequantize", [levels(tf.qint8)[:0], *ends(-1, 1)])


def refusals():
    refuse("QuantizeV2", [f(3), *ends(1.0, -1.0)], kind="refused", T=tf.qint8)
    refuse("QuantizeV2", [f(2, 3), *ends(-1.0, 1.0)], kind="refused", T=tf.qint8, round_mode="HALF_TO_EVEN")
    refuse("QuantizeV2", [f(2, 3), f(2, high=0), f(3, low=0)], kind="refused", T=tf.qint8, axis=1)
    refuse("QuantizeV2", [f(2, 3), f(2), f(2)], kind="refused", T=tf.qint8)
    refuse("Dequantize", [levels(tf.qint8), *ends(-1.0, 1.0)], kind="refused", dtype=tf.bfloat16, mode="SCALED")


ALONE = [quantized, of_slices, dequantized, refusals]
