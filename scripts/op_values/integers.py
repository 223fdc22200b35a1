"""Integers of all widths: conversions, arithmetic that wraps, comparisons, reductions, products."""
from .cases import *
from .indices import known

SIGNED = [np.int8, np.int16]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
NEW = [np.int8, np.int16, np.uint16, np.uint32, np.uint64]
ALL = SIGNED + [np.int32, np.int64] + UNSIGNED


def dtype_of(dtype):
    return tf.as_dtype(dtype)


def edges(dtype):
    """The ends of the type, and numbers near 0."""
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 100, info.max // 2, info.max - 1, info.max]
    if info.min < 0:
        values += [-1, -2, -3, -7, -100, info.min // 2, info.min + 1, info.min]
    return np.array(values, dtype)


def conversions():
    for source in ALL:
        for target in ALL + [np.float16, np.float32, np.float64, np.bool_]:
            if source != target and (source in NEW or target in NEW or target == np.uint8):
                run("Cast", [edges(source)], DstT=dtype_of(target))
    run("Cast", [bools(5)], DstT=tf.int8)
    run("Cast", [bools(5)], DstT=tf.uint64)
    # TensorFlow gives the same for each of these wherever it is in a tensor.
    floats_ = np.array([0, -0.0, 0.5, -0.5, 1.5, -1.5, 126.9, 127, 100, -100], np.float32)
    beyond = np.array([128, 200, 300, -129, -1, 65536.5, -40000, 2147483520, -2147483648, 2147483648, 3e9, -3e9, 1e10, 1e19, 2e19, -1e19, np.nan, np.inf, -np.inf], np.float32)
    for target in ALL:
        for source in [np.float16, np.float32, np.float64]:
            run("Cast", [floats_.astype(source)[:7] if target in UNSIGNED else floats_.astype(source)], DstT=dtype_of(target))
        # The last double before -2^31 is truncated to it.
        if target in (np.int32, np.int64):
            run("Cast", [np.append(beyond.astype(np.float64), -2147483648.5)], DstT=dtype_of(target))
        for value in beyond[:11] if target == np.uint32 else beyond:
            run("Cast", [np.array([value], np.float32)], DstT=dtype_of(target))


def pairs(dtype):
    x, y = np.meshgrid(edges(dtype), edges(dtype))
    return x.reshape(-1), y.reshape(-1)


def arithmetic():
    for dtype in NEW:
        signed = np.iinfo(dtype).min < 0
        x, y = pairs(dtype)
        for op in ["AddV2", "Sub", "Mul", "Minimum", "Maximum"]:
            run(op, [x, y])
        for op in ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]:
            run(op, [edges(dtype)[:, None][:4], edges(dtype)])
        # The lowest number divided by -1 is a fault of the processor in TensorFlow.
        safe = (y != 0) & ~((x == np.iinfo(dtype).min) & (y == np.array(-1).astype(dtype)))
        for op in ["Div", "TruncateDiv", "FloorDiv", "FloorMod"]:
            run(op, [x[safe], y[safe]])
            if op != "TruncateDiv":
                refuse(op, [edges(dtype), edges(dtype)])
        for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
            run(op, [x, y])
        for op in ["LeftShift", "RightShift"]:
            run(op, [np.repeat(edges(dtype), 3), np.tile(np.array([0, 1, 5], dtype), len(edges(dtype)))])
        for op in ["Square", "Invert", "Relu", "Relu6", "OnesLike", "ZerosLike"] + (["Neg", "Abs", "Sign"] if signed else []):
            run(op, [edges(dtype)])
        if signed:
            run("Pow", [ints(3, 4, dtype=dtype), ints(4, low=0, high=5, dtype=dtype)])
            refuse("Pow", [ints(3, dtype=dtype), i(1, -1, 2, dtype=dtype)])
        run("SelectV2", [bools(3, 1), ints(3, 4, low=0, dtype=dtype), ints(4, low=0, dtype=dtype)])
        run("AddN", [[ints(3, low=0, high=90, dtype=dtype), ints(3, low=0, high=90, dtype=dtype)]])
        run("BiasAdd", [ints(2, 3, low=0, high=90, dtype=dtype), ints(3, low=0, high=90, dtype=dtype)])


def reductions():
    for dtype in NEW + [np.uint8]:
        info = np.iinfo(dtype)
        x = RANDOM.randint(max(info.min, -(2**31)), min(info.max, 2**31), (3, 4, 5)).astype(dtype)
        for op in ["Sum", "Prod", "Max", "Min", "Mean"]:
            run(op, [ints(3, 4, 5, low=0, high=4, dtype=dtype) if op == "Mean" else x, i(1)])
            run(op, [ints(3, 4, 5, low=0, high=4, dtype=dtype) if op == "Mean" else x, i(0, 2)], keep_dims=True)
            if op != "Mean":
                run(op, [np.zeros((0, 2), dtype), i(0)])
        run("Cumsum", [x, n(1)])
        run("Cumsum", [x, n(0)], reverse=True, exclusive=True)
        run("UnsortedSegmentSum", [x, i(0, 2, 0), n(3)])
        for op in ["ArgMax", "ArgMin"]:
            run(op, [x, n(1)])
        with known("k"):
            run("TopKV2", [x, n(2)])
    run("Cumprod", [ints(3, 4, dtype=np.int8), n(1)])
    # Numbers that have a sign where others have a bit.
    x = np.array([[0, 1, 2**63], [2**64 - 1, 2**63 - 1, 5]], np.uint64)
    for op in ["Max", "Min", "Mean", "Sum"]:
        for axes in [i(0), i(1), i(0, 1)]:
            run(op, [x, axes])
    run("Mean", [np.zeros((0, 2), np.uint64), i(0)])
    for op in ["ArgMax", "ArgMin"]:
        for axis in [0, 1]:
            run(op, [x, n(axis)])
    with known("k"):
        run("TopKV2", [x, n(2)])
    for op in ["LowerBound", "UpperBound"]:
        run(op, [np.sort(x, 1), x])


def shapes():
    for dtype in NEW:
        x = ints(2, 3, low=0, dtype=dtype)
        run("GatherV2", [x, i(1, 0), n(1)])
        run("ConcatV2", [[x, x], n(1)])
        run("Transpose", [x, i(1, 0)])
        run("PadV2", [x, i([1, 0], [0, 2]), n(7, dtype)])
        if dtype in SIGNED:
            run("Tile", [x, i(2, 1)])
        run("OneHot", [i(0, 2, 1), n(3), n(5, dtype), n(1, dtype)])
        run("Fill", [i(2, 3), n(9, dtype)])


def products():
    for shape_x, shape_y in [((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5))]:
        run("BatchMatMulV3", [ints(*shape_x, low=-128, high=128, dtype=np.int8), ints(*shape_y, low=-128, high=128, dtype=np.int8)], Tout=tf.int32)
        run("BatchMatMulV3", [ints(*shape_x, low=0, high=256, dtype=np.uint8), ints(*shape_y, low=-128, high=128, dtype=np.int8)], Tout=tf.int32)
    run("BatchMatMulV3", [ints(3, 4, dtype=np.int8), ints(5, 4, dtype=np.int8)], Tout=tf.int32, adj_y=True)


ALONE = [conversions, arithmetic, reductions, shapes, products]
