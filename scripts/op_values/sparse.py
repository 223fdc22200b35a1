"""Sparse tensors beside dense ones, and histograms."""
from .cases import *

KNOWN_OF["SparseToDense"] = {"output_shape"}
KNOWN_OF["SparseTensorDenseMatMul"] = {"a_shape"}
KNOWN_OF["HistogramFixedWidth"] = {"nbins"}


def dense():
    for dtype in (np.int32, np.int64):
        both("SparseToDense", [i([0, 1], [2, 0], dtype=dtype), i(3, 2, dtype=dtype), f(2), n(0, np.float32)])
    run("SparseToDense", [i(1, 3), i(5), f(2), n(-1.5, np.float32)])
    run("SparseToDense", [i(1, 3), i(5), n(7, np.float32), n(-1.5, np.float32)])
    run("SparseToDense", [n(2), i(5), n(7), n(-1)])
    run("SparseToDense", [i([0, 1, 2], [1, 0, 3]), i(2, 2, 4), n(1.0, np.float64), n(0.5, np.float64)])
    run("SparseToDense", [i(3, 1, 3), i(5), f(3), n(0, np.float32)], validate_indices=False)
    run("SparseToDense", [np.zeros((0, 2), np.int32), i(2, 3), f(0), n(4, np.float32)])
    run("SparseToDense", [i([0, 1]), i(2, 2), np.array([True]), np.array(False)])
    for dtype in (np.int8, np.int16, np.uint8, np.int64, np.float16, np.complex64):
        run("SparseToDense", [i([0, 1], [1, 1]), i(2, 2), np.array([3, 4], dtype), np.array(1, dtype)])
    for validate in (True, False):
        refuse("SparseToDense", [i(1, 5), i(5), f(2), n(0, np.float32)], kind="refused", validate_indices=validate)
        refuse("SparseToDense", [i(-1, 3), i(5), f(2), n(0, np.float32)], kind="refused", validate_indices=validate)
    for places in (i(3, 1), i(3, 3)):
        refuse("SparseToDense", [places, i(5), f(2), n(0, np.float32)], kind="refused")
    for places in (i([1, 0], [0, 1]), i([0, 1], [0, 1])):
        refuse("SparseToDense", [places, i(2, 2), f(2), n(0, np.float32)], kind="refused")


def products():
    places = i([0, 1], [0, 3], [2, 0], [2, 2], dtype=np.int64)
    for attrs in (dict(), dict(adjoint_a=True), dict(adjoint_b=True), dict(adjoint_a=True, adjoint_b=True)):
        rows = 3 if attrs.get("adjoint_a") else 4
        for make in (f, c):
            b = make(*((2, rows) if attrs.get("adjoint_b") else (rows, 2)))
            both("SparseTensorDenseMatMul", [places, make(4), i(3, 4, dtype=np.int64), b], **attrs)
    run("SparseTensorDenseMatMul", [places.astype(np.int32), f(4), i(3, 4, dtype=np.int64), f(4, 40)], Tindices=tf.int32)
    run("SparseTensorDenseMatMul", [i([1, 0], [0, 0], [1, 0], dtype=np.int64), f(3), i(2, 1, dtype=np.int64), f(1, 3)])
    run("SparseTensorDenseMatMul", [np.zeros((0, 2), np.int64), f(0), i(2, 3, dtype=np.int64), f(3, 2)])
    run("SparseTensorDenseMatMul", [places, f(4), i(3, 4, dtype=np.int64), f(4, 0)])
    for dtype in (np.float64, np.int32, tf.bfloat16.as_numpy_dtype):
        run("SparseTensorDenseMatMul", [places, ints(4).astype(dtype), i(3, 4, dtype=np.int64), ints(4, 3).astype(dtype)])
    refuse("SparseTensorDenseMatMul", [i([0, 4], dtype=np.int64), f(1), i(3, 4, dtype=np.int64), f(4, 2)], kind="refused")
    refuse("SparseTensorDenseMatMul", [i([3, 0], dtype=np.int64), f(1), i(3, 4, dtype=np.int64), f(4, 2)], kind="refused")
    refuse("SparseTensorDenseMatMul", [i([-1, 0], dtype=np.int64), f(1), i(3, 4, dtype=np.int64), f(4, 2)], kind="refused")


def histograms():
    values = np.array([-1.0, 0.0, 1.5, 2.0, 5.0, 15, 4.999, np.inf, -np.inf], np.float32)
    run("HistogramFixedWidth", [values, np.array([0.0, 5.0], np.float32), n(5)])
    run("HistogramFixedWidth", [values.astype(np.float64), np.array([0.0, 5.0]), n(3)])
    run("HistogramFixedWidth", [f(3, 4), np.array([-1.0, 2.0], np.float32), n(7)], dtype=tf.int64)
    run("HistogramFixedWidth", [ints(20), i(-5, 6), n(4)])
    run("HistogramFixedWidth", [ints(20, dtype=np.int64), i(-9, 9, dtype=np.int64), n(6)], dtype=tf.int64)
    run("HistogramFixedWidth", [f(0), np.array([0.0, 1.0], np.float32), n(3)])
    run("HistogramFixedWidth", [f(5), np.array([0.0, 1.0], np.float32), n(1)])
    refuse("HistogramFixedWidth", [f(3), np.array([1.0, 1.0], np.float32), n(3)], kind="refused")
    refuse("HistogramFixedWidth", [f(3), np.array([0.0, 1.0], np.float32), n(0)])
    refuse("HistogramFixedWidth", [np.array([np.nan], np.float32), np.array([0.0, 1.0], np.float32), n(2)])


ALONE = [dense, products, histograms]
