"""Operations whose results have as many elements as those of their inputs say."""
from .cases import *


def where():
    refuse("Where", [bools()])
    for shape in [(1,), (7,), (3, 5), (2, 3, 4), (0, 4), (3, 0)]:
        run("Where", [bools(*shape)])
    special = np.array([np.nan, 0.0, -0.0, 1e-45, -3.0, np.inf], np.float32)
    run("Where", [special])
    run("Where", [special.astype(np.float64)])
    run("Where", [np.array([0, 1j, -0.0j, 2], np.complex64)])
    for dtype in [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64]:
        run("Where", [np.array([[0, 1, 0], [2, 0, 3]], dtype)])


def unique():
    vectors = [i(4, 5, 1, 2, 3, 3, 4, 5), i(), i(7), np.array([3, 3, 3], np.int64), np.array([1, 0, 1], np.int8),
               np.array([1.5, np.nan, 0.0, -0.0, np.nan, 1.5], np.float32), np.array([2.0, 1.0, 2.0], np.float64),
               np.array([True, False, True])]
    for vector in vectors:
        for out in [tf.int32, tf.int64]:
            run("Unique", [vector], out_idx=out)
            run("UniqueWithCounts", [vector], out_idx=out)
    none = np.array([], np.int32)
    run("UniqueV2", [vectors[0], none], out_idx=tf.int32)
    run("UniqueWithCountsV2", [vectors[0], np.array([], np.int64)], out_idx=tf.int64)
    matrix = np.array([[1, 0, 0], [1, 0, 0], [2, 0, 0]], np.int32)
    for axis in [0, 1, -1]:
        run("UniqueV2", [matrix, i(axis)], out_idx=tf.int32)
        run("UniqueWithCountsV2", [matrix, np.array([axis], np.int64)], out_idx=tf.int32)
    cube = ints(2, 3, 2, low=0, high=2)
    for axis in [0, 1, 2]:
        run("UniqueV2", [cube, i(axis)], out_idx=tf.int64)
    run("UniqueV2", [np.array([[0.0, 1.0], [-0.0, 1.0]], np.float32), i(0)], out_idx=tf.int32)


def differences():
    for dtype in [np.int32, np.int64, np.float32, np.uint8]:
        run("ListDiff", [np.array([1, 2, 3, 4, 5, 2, 6], dtype), np.array([1, 3, 5], dtype)], out_idx=tf.int32)
    run("ListDiff", [i(), i(1)], out_idx=tf.int64)
    run("ListDiff", [np.array([0.0, -0.0, np.nan, 1.0], np.float32), np.array([0.0, np.nan], np.float32)], out_idx=tf.int32)


def partitions():
    for shape in [(6,), (6, 2), (6, 2, 3)]:
        run("DynamicPartition", [f(*shape), i(0, 2, 0, 1, 2, 2)], num_partitions=3)
    run("DynamicPartition", [f(2, 3, 2), np.array([[0, 1, 1], [3, 1, 0]], np.int32)], num_partitions=4)
    run("DynamicPartition", [ints(3, dtype=np.int64), i(0, 0, 0)], num_partitions=2)
    run("DynamicPartition", [f(4), np.int32(1)], num_partitions=2)
    run("DynamicPartition", [f(0, 3), i()], num_partitions=2)
    run("DynamicPartition", [bools(5), i(1, 0, 1, 0, 1)], num_partitions=2)


def boxes(*shape):
    corners = np.round(RANDOM.uniform(0, 8, (*shape, 2)), 1)
    sizes = np.round(RANDOM.uniform(1, 4, (*shape, 2)), 1)
    return np.concatenate([corners, corners + sizes], axis=-1).astype(np.float32)


def suppression():
    three = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]], np.float32)
    scores = np.array([0.9, 0.75, 0.6, 0.95, 0.5, 0.3], np.float32)
    flipped = three[:, [2, 3, 0, 1]]
    many, of_many = boxes(40), np.round(RANDOM.uniform(0, 1, 40), 2).astype(np.float32)
    for data in [(three, scores), (flipped, scores), (many, of_many), (three, np.full(6, 0.5, np.float32)), (np.zeros((0, 4), np.float32), np.zeros(0, np.float32))]:
        for size in [3, 30, 0]:
            run("NonMaxSuppression", [*data, np.int32(size)], iou_threshold=0.5)
            run("NonMaxSuppressionV2", [*data, np.int32(size), np.float32(0.5)])
            run("NonMaxSuppressionV3", [*data, np.int32(size), np.float32(0.3), np.float32(0.4)])
            for pad in [False, True]:
                run("NonMaxSuppressionV4", [*data, np.int32(size), np.float32(0.5), np.float32(0.0)], pad_to_max_output_size=pad)
                run("NonMaxSuppressionV5", [*data, np.int32(size), np.float32(0.5), np.float32(0.2), np.float32(0.5)], pad_to_max_output_size=pad)
        run("NonMaxSuppressionV5", [*data, np.int32(9), np.float32(0.5), np.float32(0.0), np.float32(0.0)], pad_to_max_output_size=False)
    halves = [three.astype(np.float16), scores.astype(np.float16), np.int32(4), np.float16(0.5), np.float16(0.0)]
    run("NonMaxSuppressionV3", halves)
    run("NonMaxSuppressionV3", [three, np.array([np.nan, 0.5, np.inf, -np.inf, 0.1, 0.2], np.float32), np.int32(6), np.float32(0.5), np.float32(-1)])
    overlaps = np.array([[1, 0.6, 0.1], [0.6, 1, 0.2], [0.1, 0.2, 1]], np.float32)
    run("NonMaxSuppressionWithOverlaps", [overlaps, np.array([0.3, 0.9, 0.5], np.float32), np.int32(3), np.float32(0.5), np.float32(0.0)])


def combined():
    for q, classes, pad, clip in [(1, 1, False, True), (1, 3, True, True), (3, 3, False, False), (3, 3, True, True)]:
        data = [boxes(2, 12, q) / 8, np.round(RANDOM.uniform(0, 1, (2, 12, classes)), 3).astype(np.float32)]
        for per_class, total in [(4, 5), (2, 20)]:
            run("CombinedNonMaxSuppression", [*data, np.int32(per_class), np.int32(total), np.float32(0.3), np.float32(0.2)], pad_per_class=pad, clip_boxes=clip)




def stitches():
    for op in ["DynamicStitch", "ParallelDynamicStitch"]:
        run(op, [[i(0, 2), i(1, 3, 4)], [f(2, 2), f(3, 2)]])
        run(op, [[n(1), np.array([[0, 2], [3, 4]], np.int32)], [f(3), f(2, 2, 3)]])
    run("DynamicStitch", [[i(0, 1), i(1, 0)], [f(2), f(2)]])
    run("DynamicStitch", [[i(), i(0)], [ints(0, 2), ints(1, 2)]])


def ragged():
    for split in [tf.int32, tf.int64]:
        run("RaggedRange", [i(2, 5, 8), i(3, 5, 12), i(1, 1, 1)], Tsplits=split)
        run("RaggedRange", [n(0), i(3, 0, 5), n(2)], Tsplits=split)
        run("RaggedRange", [n(5), n(0), n(-2)], Tsplits=split)
    run("RaggedRange", [f(2), np.float32([3.5, -4]), np.float32([0.5, -1.5])], Tsplits=tf.int64)
    run("RaggedRange", [np.float64([0, 1]), np.float64([0.3, 1]), np.float64([0.1, 0.1])], Tsplits=tf.int64)
    for dtype in [np.int32, np.int64]:
        splits = np.array([0, 2, 2, 5], dtype)
        run("RaggedGather", [[splits], f(5, 2), i(2, 0, 2)], OUTPUT_RAGGED_RANK=1)
        run("RaggedGather", [[splits], f(5), np.array([[2, 0], [1, 1]], np.int64)], OUTPUT_RAGGED_RANK=2)
        run("RaggedGather", [[np.array([0, 1, 3], dtype), splits[[0, 1, 2, 3]]], ints(5), i(1, 0)], OUTPUT_RAGGED_RANK=2)
    for shape in [(5,), (5, 2)]:
        run("RaggedTensorToSparse", [[np.array([0, 2, 2, 5], np.int64)], f(*shape)])
    run("RaggedTensorToSparse", [[np.array([0, 1, 3], np.int64), np.array([0, 2, 2, 5], np.int64)], ints(5)])
    rows = np.array([0, 2, 2, 5], np.int64)
    for shape in [i(-1, -1), i(4, 2), i(2, 6), n(-1)]:
        run("RaggedTensorToTensor", [shape, f(5), np.float32(9), [rows]], row_partition_types=["ROW_SPLITS"])
        run("RaggedTensorToTensor", [shape.astype(np.int64), f(4), np.float32(0), [np.int64(3), np.array([0, 0, 2, 2], np.int64)]], row_partition_types=["FIRST_DIM_SIZE", "VALUE_ROWIDS"])
    run("RaggedTensorToTensor", [i(-1, -1, 2), f(5, 2), f(2), [rows]], row_partition_types=["ROW_SPLITS"])
    run("RaggedTensorToTensor", [n(-1), ints(5), n(7), [np.array([0, 1, 3], np.int64), rows]], row_partition_types=["ROW_SPLITS", "ROW_SPLITS"])


def sparse():
    places = np.array([[3, 0], [0, 1], [0, 3], [3, 2]], np.int64)
    for dtype in [np.float32, np.float64, np.int32, np.int64, np.bool_]:
        values, default = np.array([1, 0, 3, 1], dtype), dtype(1)
        run("SparseFillEmptyRows", [places, values, np.array([5, 6], np.int64), default], gradient=dtype == np.float32)
    run("SparseFillEmptyRows", [places[[1, 2]], f(2), np.array([1, 4], np.int64), np.float32(-1)])
    run("SparseFillEmptyRows", [np.zeros((0, 3), np.int64), f(0), np.array([2, 1, 4], np.int64), np.float32(7)])
    run("SparseFillEmptyRows", [np.zeros((0, 2), np.int64), f(0), np.array([0, 4], np.int64), np.float32(7)])
    for dtype in [np.float32, np.float64, np.int32, np.int64]:
        run("SparseFillEmptyRowsGrad", [np.array([2, 0, 5], np.int64), np.arange(6).astype(dtype)])
    run("SparseFillEmptyRowsGrad", [np.zeros(0, np.int64), f(3)])
    run("SparseFillEmptyRowsGrad", [np.zeros(0, np.int64), f(0)])
    cube = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [1, 2, 3]], np.int64)
    for shape in [(9, 4), (3, -1), (36,), (2, 3, 6), (1, 36, 1), (2, 1, 3, 6)]:
        run("SparseReshape", [cube, np.array([2, 3, 6], np.int64), np.array(shape, np.int64)])
    run("SparseReshape", [np.zeros((0, 2), np.int64), np.array([4, 0], np.int64), np.array([0, 3], np.int64)])


ALONE = [sparse, where, unique, differences, partitions, suppression, combined, stitches, ragged]
