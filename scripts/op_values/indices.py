"""Slices, gathers and scatters by computed places; the largest of rows; rolls and searches."""
import contextlib

from tensorflow.compiler.tf2xla.python import xla  # noqa: F401  It registers XlaDynamicSlice and XlaDynamicUpdateSlice.

from . import cases
from .cases import *


@contextlib.contextmanager
def fed(*names):
    """Operands of these names are fed in the cases inside."""
    cases.FED |= set(names)
    yield
    cases.FED -= set(names)


@contextlib.contextmanager
def known(*names):
    """Operands of these names are known in the cases inside."""
    new = set(names) - cases.KNOWN
    cases.KNOWN |= new
    yield
    cases.KNOWN -= new


def slices_by_computed_places():
    with fed("begin"):
        for dtype in (np.int32, np.int64):
            both("Slice", [f(3, 4), i(1, 2, dtype=dtype), i(2, 1, dtype=dtype)])
        run("Slice", [f(3, 4), i(0, 0), i(3, 4)])
        run("Slice", [ints(5), i(5), i(0)])
        run("Slice", [bools(3, 2, 4), i(1, 0, 3), i(1, 2, 1)])
        run("Slice", [f(2, 0), i(1, 0), i(1, 0)])
        run("Slice", [n(2.5, np.float64), i(), i()])
        run("Slice", [ints(40, 30), i(7, 13), i(21, 15)])
        run("Slice", [ints(20, 30, 5), i(7, 0, 0), i(11, 30, 5)])
    with fed("begin", "end"):
        for begin in ([1, 0], [-1, 0], [2, 0]):
            both("StridedSlice", [f(3, 4), i(*begin), i(begin[0] + 1, 0), i(1, 1)], shrink_axis_mask=1, begin_mask=2, end_mask=2)
        both("StridedSlice", [f(3, 4, 5), i(0, -2, dtype=np.int64), i(0, -1, dtype=np.int64), i(1, 1, dtype=np.int64)],
             ellipsis_mask=1, shrink_axis_mask=2)
        both("StridedSlice", [f(3, 4, 5), i(1, 0, 2), i(2, 0, 3), i(1, 1, 1)], shrink_axis_mask=5, new_axis_mask=2)
        both("StridedSlice", [f(6), i(4), i(5), i(1)], shrink_axis_mask=1)
        run("StridedSlice", [ints(6, 5), i(4, 0), i(5, 0), i(1, -1)], shrink_axis_mask=1, begin_mask=2, end_mask=2)
        run("StridedSlice", [f(0, 3), i(0, 1), i(0, 2), i(1, 1)], shrink_axis_mask=2, begin_mask=1, end_mask=1)
        run("StridedSliceGrad", [i(3, 4), i(-1, 0), i(0, 0), i(1, 1), f(4)], shrink_axis_mask=1, begin_mask=2, end_mask=2)
        run("StridedSliceGrad", [i(3, 4), i(0, 2), i(0, 3), i(1, 1), f(3)], shrink_axis_mask=2, begin_mask=1, end_mask=1)
        run("StridedSliceGrad", [i(40, 50), i(0, 2), i(0, 3), i(-1, 1), f(40)], shrink_axis_mask=2, begin_mask=1, end_mask=1)


def slices_that_are_replaced():
    for value in (f(), f(2), f(2, 1), f(1, 2), f(2, 2)):
        run("TensorStridedSliceUpdate", [f(3, 4), i(1, 0), i(3, 2), i(1, 1), value])
    both("TensorStridedSliceUpdate", [f(3, 4), i(1, 0), i(3, 2), i(1, 1), f(2, 2)])
    both("TensorStridedSliceUpdate", [f(3, 4), i(-1, 3), i(0, 0), i(1, -2), f(2)], shrink_axis_mask=1, end_mask=2)
    run("TensorStridedSliceUpdate", [ints(3, 4), i(0, 0, 1), i(0, 0, 2), i(1, 1, 1), ints(3, 1)], begin_mask=1, end_mask=1, new_axis_mask=2, shrink_axis_mask=4)
    run("TensorStridedSliceUpdate", [f(5), i(3), i(1), i(1), f(0)])
    with fed("begin", "end"):
        both("TensorStridedSliceUpdate", [f(3, 4), i(-2, 0), i(-1, 0), i(1, 1), f(4)], shrink_axis_mask=1, begin_mask=2, end_mask=2)
        run("TensorStridedSliceUpdate", [f(30, 40), i(0, 17), i(0, 18), i(1, 1), f(30)], shrink_axis_mask=2, begin_mask=1, end_mask=1)
    for value in (f(), f(1), f(2), f(2, 2)):
        apply("ResourceStridedSliceAssign", [f(3, 4)], [i(1, 0), i(3, 2), i(1, 1), value], Index=tf.int32)
    apply("ResourceStridedSliceAssign", [f(3, 4)], [i(2, 0), i(-9, 0), i(-1, 1), f(3)], begin_mask=0, shrink_axis_mask=2, Index=tf.int32)
    apply("ResourceStridedSliceAssign", [ints(6)], [i(1), i(5), i(3), ints(2)], Index=tf.int32)
    with fed("begin", "end"):
        apply("ResourceStridedSliceAssign", [f(3, 4)], [i(2, 0), i(3, 0), i(1, 1), f(4)], shrink_axis_mask=1, begin_mask=2, end_mask=2, Index=tf.int32)


def blocks_where_they_fit():
    with known("size_indices"):
        for begin in ([1, 2], [2, -5], [9, 1]):
            run("XlaDynamicSlice", [f(3, 4), i(*begin), i(2, 2)])
            run("XlaDynamicUpdateSlice", [f(3, 4), f(2, 2), i(*begin, dtype=np.int64)])
        run("XlaDynamicSlice", [ints(5), i(-1, dtype=np.int64), i(5, dtype=np.int64)])
        run("XlaDynamicUpdateSlice", [ints(90, 40), ints(50, 17), i(33, 14)])
        run("XlaDynamicUpdateSlice", [ints(5), ints(0), i(3)])


def gathers_by_vectors():
    both("GatherNd", [f(3, 4), i([0, 1], [2, 3], [0, 1])])
    both("GatherNd", [f(3, 4), i([2], [0], dtype=np.int64)])
    run("GatherNd", [f(3, 4), i(2, 1)])
    both("GatherNd", [f(2, 3, 4), ints(2, 3, 2, low=0, high=2)])
    run("GatherNd", [f(2, 3), np.zeros((2, 0), np.int32)])
    run("GatherNd", [ints(4, 2), ints(5, 1, low=0, high=4)])
    run("GatherNd", [bools(4, 2), ints(5, 2, low=0, high=2)])
    run("GatherNd", [f(0, 2), np.zeros((0, 1), np.int32)])
    run("GatherNd", [f(3, 4), i([0, 1], [5, 3], [0, -1])], bad_indices_policy="IGNORE")
    run("GatherNd", [f(20, 4, 30), ints(30, 2, low=0, high=4)])


def scatters_by_vectors():
    both("ScatterNd", [i([1], [3], [1]), f(3), i(5)])
    both("ScatterNd", [i([1, 0], [0, 2]), f(2, 2), i(2, 3, 2)])
    run("ScatterNd", [i([4], [3], dtype=np.int64), f(2, 2), i(6, 2, dtype=np.int64)])
    run("ScatterNd", [i([[0], [1]], [[1], [1]]), ints(2, 2, 3), i(3, 3)])
    run("ScatterNd", [np.zeros((0, 1), np.int32), f(0, 2), i(3, 2)])
    run("ScatterNd", [i([1], [7]), f(2), i(5)], bad_indices_policy="IGNORE")
    run("ScatterNd", [ints(60, 2, low=0, high=6), f(60, 9), i(6, 6, 9)])
    for op in ["TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub", "TensorScatterMin", "TensorScatterMax"]:
        both(op, [f(5), i([1], [3]), f(2)])
        both(op, [f(3, 2), i([2], [0], dtype=np.int64), f(2, 2)])
        both(op, [f(3, 2), i([2, 1], [0, 1]), f(2)])
        run(op, [ints(4), i([3], [0], [3]), ints(3)])
        run(op, [f(4), np.zeros((0, 1), np.int32), f(0)])
        run(op, [np.array([np.nan, 1, -0.0], np.float32), i([0], [1], [2]), np.array([1, np.nan, 0.0], np.float32)])
    both("TensorScatterMin", [np.array([1, 2, 3], np.float32), i([0], [1], [1]), np.array([1, 1, 1], np.float32)])
    both("TensorScatterMax", [np.array([1, 2, 3], np.float32), i([0], [1], [1]), np.array([0, 4, 4], np.float32)])
    both("TensorScatterAdd", [f(3), i([1], [1]), f(2)])
    run("TensorScatterUpdate", [bools(4), i([3], [0]), bools(2)])
    run("TensorScatterAdd", [f(4), i([3], [9]), f(2)], bad_indices_policy="IGNORE")
    run("ScatterNdNonAliasingAdd", [f(4, 2), i([3], [1]), f(2, 2)])
    for op in ["ResourceScatterNdUpdate", "ResourceScatterNdAdd", "ResourceScatterNdSub", "ResourceScatterNdMin", "ResourceScatterNdMax"]:
        apply(op, [f(5)], [i([1], [3], [1]), f(3)], Tindices=tf.int32)
        apply(op, [f(3, 2)], [i([2, 1], [0, 1], dtype=np.int64), f(2)], Tindices=tf.int64)
        apply(op, [f(3, 2)], [i([2], [0]), f(2, 2)], Tindices=tf.int32)


def largest():
    with known("k"):
        for k in (0, 1, 3, 5):
            both("TopKV2", [f(2, 5), n(k)])
        run("TopKV2", [f(6), n(4, np.int64)], index_type=tf.int64)
        both("TopKV2", [f(2, 3, 4), n(2)])
        run("TopKV2", [np.array([3, 1, 3, 3, 2], np.float32), n(4)])
        run("TopKV2", [np.array([np.inf, -np.inf, 0.0, -0.0, 1], np.float32), n(5)])
        run("TopKV2", [ints(3, 8), n(8)])
        run("TopKV2", [ints(3, 8, dtype=np.int64), n(3)], index_type=tf.int64)
        run("TopKV2", [np.round(RANDOM.uniform(-2, 2, (3, 4)), 3), n(2)])
        run("TopKV2", [f(0, 4), n(2)])
        run("TopKV2", [ints(7, 90, low=0, high=250, dtype=np.uint8), n(20)])
        run("TopKV2", [f(2, 5).astype(np.float16), n(3)])


def rolls():
    for shift, axis in [(1, 0), (-2, 1), (7, -1), (0, 0)]:
        for names in ((), ("shift",)):
            with known(*names):
                both("Roll", [f(3, 4), n(shift), n(axis)])
    for names in ((), ("shift",)):
        with known(*names):
            both("Roll", [f(3, 4), i(1, -6, 2), i(0, 1, 0)])
            run("Roll", [ints(5, dtype=np.int64), n(2, np.int64), n(0, np.int64)])
            run("Roll", [f(0, 4), i(1), i(0)])
            run("Roll", [bools(3, 2, 2), i(-1, 1), i(2, 0)])


def searches():
    rows = np.sort(f(2, 5), axis=1)
    for op in ["LowerBound", "UpperBound"]:
        run(op, [rows, np.concatenate([rows[:, :2], f(2, 2)], axis=1)])
        run(op, [rows, f(2, 3)], out_type=tf.int64)
        run(op, [i([1, 1, 2, 5]), i([0, 1, 2, 3, 9])])
        run(op, [np.zeros((2, 0), np.float32), f(2, 3)])
        run(op, [np.zeros((0, 2), np.float32), f(0, 3)])


def shapes_from_shapes():
    run("BroadcastArgs", [i(2, 1, 3), i(4, 1)])
    run("BroadcastArgs", [i(dtype=np.int64), i(4, 0, dtype=np.int64)])
    run("BroadcastArgs", [i(3, 3), i(3, 3)])
    run("Empty", [i(2, 3)], dtype=tf.float32, init=True)
    run("Empty", [i(0, 3)], dtype=tf.int64, init=True)


def refusals():
    refuse("GatherNd", [f(4, 0), ints(3, 1, low=0, high=4)])
    refuse("BroadcastArgs", [i(2, 3), i(4, 2)])
    with known("k"):
        refuse("TopKV2", [f(2, 3), n(4)])
        refuse("TopKV2", [f(2, 3), n(-1)])
    with fed("begin", "end"):
        refuse("StridedSlice", [f(3), i(4), i(5), i(1)], shrink_axis_mask=1)
        refuse("StridedSlice", [f(3, 2), i(0, -3), i(1, -2), i(1, 1)], shrink_axis_mask=3)


ALONE = [
    slices_by_computed_places, slices_that_are_replaced, blocks_where_they_fit, gathers_by_vectors, scatters_by_vectors, largest, rolls,
    searches, shapes_from_shapes, refusals,
]
