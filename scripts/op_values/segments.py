"""Segments in ascending order, dense and sparse."""
import contextlib

from . import cases
from .cases import *


@contextlib.contextmanager
def known(*names):
    """Operands of these names are known in the cases inside."""
    new = set(names) - cases.KNOWN
    cases.KNOWN |= new
    yield
    cases.KNOWN -= new


def dense_segments():
    with known("segment_ids"):
        for op in ["SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"]:
            record = run if op == "SegmentProd" else both
            record(op, [f(4, 3), i(0, 0, 2, 2)])
            record(op, [f(5), i(0, 1, 1, 1, 2, dtype=np.int64)])
            record(op, [f(3, 2, 2), i(1, 1, 2)])
            run(op, [ints(4, 2), i(0, 0, 0, 3)])
            run(op, [f(0, 3), i()])
            refuse(op, [f(3), i(1, 0, 2)])


def sparse_segments():
    for op in ["SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"]:
        with known("segment_ids"):
            both(op, [f(4, 3), i(2, 0, 2), i(0, 0, 1)])
            both(op, [f(4), i(2, 0, 2, 1), i(0, 2, 2, 2)])
            run(op, [f(4, 3).astype(np.float64), i(dtype=np.int64), i()])
        both(op + "WithNumSegments", [f(4, 3), i(2, 0, 2), i(0, 0, 1), n(3)])
        both(op + "WithNumSegments", [f(4), i(2, 3, 1, 1), i(0, 2, 2, 4), n(6)])
        run(op + "WithNumSegments", [f(4, 2), i(), i(), n(2)])
        with known("output_dim0"):
            run(op + "Grad", [f(2, 3), i(2, 0, 2), i(0, 0, 1), n(4)])
            run(op + "Grad", [f(3), i(2, 0, 2, 1), i(0, 2, 2, 2), n(5)])


ALONE = [dense_segments, sparse_segments]
