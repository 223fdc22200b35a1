"""The operations of the first networks."""
from .cases import *


def unary():
    shapes = [(), (1,), (7,), (3, 5), (0, 4)]
    anywhere = ["Neg", "Abs", "Sign", "Square", "Exp", "Expm1", "Tanh", "Sigmoid", "Erf", "Erfc", "Sin", "Cos", "Relu", "Relu6", "Elu", "Softplus"]
    for op in anywhere:
        for shape in shapes:
            both(op, [f(*shape, low=-3, high=8 if op == "Relu6" else 3)])
    for op in ["Sqrt", "Rsqrt", "Reciprocal", "Inv", "Log", "Log1p"]:
        for shape in shapes:
            both(op, [f(*shape, low=0.1, high=4)])
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 88.0, -88.0], np.float32)
    for op in anywhere[:10] + ["Sqrt", "Rsqrt", "Reciprocal", "Log", "Log1p", "Floor", "Ceil", "Rint", "Round", "IsNan", "IsFinite", "IsInf", "Relu", "Relu6"]:
        run(op, [special])
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49, -0.51, 3.0], np.float32)
    for op in ["Floor", "Ceil", "Rint", "Round"]:
        both(op, [halves])
    both("LeakyRelu", [f(3, 5)], alpha=0.2)
    # Not Round: its kernel gives 0 for every integer, which Python's front end never asks it.
    for op in ["Neg", "Abs", "Sign", "Square"]:
        run(op, [ints(2, 3)])
        run(op, [ints(5, dtype=np.int64)])
    for op in ["Tanh", "Exp", "Sqrt", "Log", "Square"]:
        both(op, [np.round(RANDOM.uniform(0.2, 2, (4,)), 3)])
    run("LogicalNot", [bools(2, 3)])
    for op in ["TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad", "InvGrad"]:
        for shape in [(), (3, 4)]:
            both(op, [f(*shape, low=0.1, high=0.9), f(*shape)])
    run("SqrtGrad", [np.zeros(2, np.float32), np.array([0, 1], np.float32)])
    features = np.array([[-1.5, 0.0, 0.5], [6.0, 7.5, 5.9]], np.float32)
    for op in ["ReluGrad", "Relu6Grad"]:
        both(op, [f(2, 3), features])
    both("LeakyReluGrad", [f(2, 3), features], alpha=0.1)
    run("EluGrad", [f(2, 3), f(2, 3)])
    run("SoftplusGrad", [f(2, 3), f(2, 3)])


def binary():
    pairs = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 3), ()), ((2, 1), (1, 3)), ((4, 1, 3), (5, 1)), ((1,), (4,)), ((0, 3), (3,)), ((1, 3), (2, 3))]
    for op in ["Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "DivNoNan", "Minimum", "Maximum", "SquaredDifference", "FloorMod", "MulNoNan"]:
        for a, b in pairs:
            both(op, [f(*a, low=-3, high=3), f(*b, low=0.3, high=3)])
    for a, b in pairs:
        both("Pow", [f(*a, low=0.2, high=2), f(*b)])
        run("FloorDiv", [f(*a, low=-5, high=5), f(*b, low=0.3, high=3)])
        run("FloorDiv", [ints(*a), ints(*b, low=1, high=5)])
    both("Maximum", [np.array([1, 2, 3], np.float32), np.array([1, 3, 2], np.float32)])
    both("Minimum", [np.array([1, 2, 3], np.float32), np.array([1, 3, 2], np.float32)])
    run("Maximum", [np.array([np.nan, 1, np.inf], np.float32), np.array([1, np.nan, 2], np.float32)])
    run("Pow", [np.array([-2, -2, 0, 0, 2], np.float32), np.array([2, 3, 0, 2, -1], np.float32)])
    both("Pow", [np.array([0, -1.5], np.float32), np.array([2, 2], np.float32)])
    both("DivNoNan", [f(4), np.array([0, 1, 2, 0], np.float32)])
    for dtype in [np.int32, np.int64]:
        for op in ["Add", "AddV2", "Sub", "Mul", "Minimum", "Maximum", "SquaredDifference"]:
            run(op, [ints(2, 3, dtype=dtype), ints(3, dtype=dtype)])
        for op in ["FloorDiv", "FloorMod", "Div", "TruncateDiv"]:
            run(op, [i(-7, 7, -7, 7, 0, 6, dtype=dtype), i(2, 2, -2, -2, 3, -3, dtype=dtype)])
        run("Pow", [ints(4, dtype=dtype), ints(4, low=0, high=4, dtype=dtype)])
        for op in ["BitwiseAnd", "BitwiseOr", "BitwiseXor"]:
            run(op, [ints(2, 3, dtype=dtype), ints(3, dtype=dtype)])
    run("AddV2", [ints(5, low=0, high=250, dtype=np.uint8), ints(5, low=0, high=250, dtype=np.uint8)])
    run("FloorMod", [np.array([-7.5, 7.5, -7.5, 7.5], np.float32), np.array([2, 2, -2, -2], np.float32)])
    for op in ["Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual"]:
        run(op, [np.array([1, 2, np.nan, 3], np.float32), np.array([1, 3, np.nan, 2], np.float32)])
        run(op, [f(2, 3), f(3)])
        run(op, [ints(2, 1, low=0, high=3), ints(3, low=0, high=3)])
        run(op, [ints(4, low=0, high=3, dtype=np.int64), ints(low=0, high=3, dtype=np.int64)])
    for op in ["Equal", "NotEqual", "LogicalAnd", "LogicalOr"]:
        run(op, [bools(2, 3), bools(3)])
    for c, a, b in [((3,), (3,), (3,)), ((2, 1), (2, 3), (3,)), ((), (2,), (2,)), ((2, 3), (), (3,))]:
        both("SelectV2", [bools(*c), f(*a), f(*b)])
    both("Select", [bools(2, 3), f(2, 3), f(2, 3)])
    both("Select", [bools(), f(2, 3), f(2, 3)])
    for count in [1, 2, 3, 8, 9, 10, 17, 19]:
        both("AddN", [[f(2, 3) for _ in range(count)]])
    for source in [f(5, low=-3.9, high=3.9), ints(5), ints(5, dtype=np.int64), bools(5), ints(5, low=0, high=200, dtype=np.uint8), f(3).astype(np.float64)]:
        for target in [tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.uint8]:
            if target == tf.uint8 and source.min() < 0:
                continue
            run("Cast", [source], gradient=source.dtype.kind == "f" and target.is_floating, DstT=target)
    both("BiasAdd", [f(2, 3), f(3)])
    both("BiasAdd", [f(2, 1, 3, 5), f(5)])
    for shape in [(4, 3), (2, 3, 5), (1, 7), (2, 2, 3, 9), (0, 3)]:
        run("BiasAddGrad", [f(*shape)])
    both("BiasAddGrad", [f(2, 3, 4)])
    run("BiasAddGrad", [f(2, 3, 4, 5)], data_format="NCHW")


def reductions():
    cases = [((), []), ((7,), [0]), ((3, 5), [0]), ((3, 5), [1]), ((3, 5), [0, 1]), ((3, 5), [-1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [1]), ((3, 5), []), ((1, 5), [0]), ((33, 65), [1]), ((65, 33), [0])]
    for shape, axes in cases:
        for keep in [False, True]:
            for op in ["Sum", "Mean", "Max", "Min"]:
                if np.prod(shape) > 100 and (keep or op in ("Max", "Min")):
                    continue
                run(op, [f(*shape), i(*axes)], gradient=np.prod(shape) < 100, keep_dims=keep)
    for op in ["Sum", "Mean", "Prod", "Max", "Min"]:
        run(op, [f(2, 3), n(1)], keep_dims=False)
        run(op, [ints(2, 3), i(1)], keep_dims=False)
        run(op, [ints(2, 3, dtype=np.int64), i(0)], keep_dims=True)
        run(op, [f(0, 3), i(0)], keep_dims=False)
        run(op, [f(2, 3), i(0, 1)], keep_dims=False)
    both("Max", [np.array([[1, 3, 3], [2, 2, 2]], np.float32), i(1)], keep_dims=False)
    both("Sum", [f(0, 3), i(0)], keep_dims=False)
    both("Sum", [f(2, 3), np.array([1], np.int64)], keep_dims=False)
    for op in ["All", "Any"]:
        run(op, [bools(3, 4), i(1)], keep_dims=False)
        run(op, [bools(3, 4), i(0, 1)], keep_dims=True)
        run(op, [bools(0, 2), i(0)], keep_dims=False)
    for op in ["ArgMax", "ArgMin"]:
        run(op, [f(3, 5), n(1)], output_type=tf.int64)
        run(op, [f(3, 5), n(0)], output_type=tf.int32)
        run(op, [f(2, 3, 4), n(-2)], output_type=tf.int64)
        run(op, [i(3, 1, 3, 1), n(0)], output_type=tf.int64)
        run(op, [f(1, 1), n(1)], output_type=tf.int64)
    for shape in [(5,), (3, 4), (), (0,)]:
        both("L2Loss", [f(*shape)])
    run("InTopKV2", [f(4, 5), ints(4, low=0, high=5), n(2)])
    run("InTopKV2", [np.array([[1, 1, 0], [np.nan, 1, 2], [1, 2, 3]], np.float32), i(1, 1, 7, dtype=np.int64), n(1, np.int64)])
    run("InTopK", [f(4, 5), ints(4, low=0, high=5)], k=3)
    for shape in [(4,), (2, 3), (1, 10), (2, 2, 5), (0, 3)]:
        both("Softmax", [f(*shape, low=-5, high=5)])
        both("LogSoftmax", [f(*shape, low=-5, high=5)])
    for batch, classes in [(1, 2), (3, 10), (5, 1), (0, 4)]:
        labels = np.abs(f(batch, classes))
        both("SoftmaxCrossEntropyWithLogits", [f(batch, classes, low=-4, high=4), labels])
        both("SparseSoftmaxCrossEntropyWithLogits", [f(batch, classes, low=-4, high=4), ints(batch, low=0, high=classes, dtype=np.int64)])
    both("SparseSoftmaxCrossEntropyWithLogits", [f(3, 4), ints(3, low=0, high=4)])


def arrays():
    both("Identity", [f(2, 3)])
    run("Snapshot", [f(2)])
    both("StopGradient", [f(2)])
    both("Reshape", [f(2, 6), i(3, -1)])
    both("Reshape", [f(2, 6), i(12, dtype=np.int64)])
    both("Reshape", [f(1), i()])
    both("Reshape", [f(0, 3), i(-1, 3)])
    run("Reshape", [f(0, 3), i(0, -1)])
    run("Reshape", [bools(2, 2), i(4)])
    for axis in [0, 1, -1]:
        both("ExpandDims", [f(2, 3), n(axis)])
    both("Squeeze", [f(1, 3, 1)], squeeze_dims=[])
    both("Squeeze", [f(1, 3, 1)], squeeze_dims=[-1])
    run("Shape", [f(2, 0, 3)], out_type=tf.int32)
    run("Shape", [f()], out_type=tf.int64)
    run("ShapeN", [[f(2), f(3, 1)]], out_type=tf.int32)
    run("Size", [f(2, 3)], out_type=tf.int32)
    run("Rank", [f(2, 3)])
    for a, b in [([2, 3], [3]), ([2, 3], [2, 3]), ([2, 1], [1, 3]), ([1], [1, 1]), ([], [2]), ([1, 3], [1, 1]), ([2, 1, 3], [4, 1])]:
        run("BroadcastGradientArgs", [i(*a), i(*b)])
    run("Fill", [i(2, 3), np.float32(1.5)])
    run("Fill", [i(), n(7)])
    run("Fill", [i(2, dtype=np.int64), np.array(True)])
    both("Fill", [i(2, 0), np.float32(1.5)])
    both("Fill", [i(2, 3), np.float32(-1.5)])
    for value in [f(2, 3), ints(2), bools(3), ints(3, low=0, dtype=np.uint8), f(0, 2), f(2).astype(np.float64)]:
        run("ZerosLike", [value])
        run("OnesLike", [value])
    both("Tile", [f(2, 3), i(1, 2)])
    both("Tile", [f(2, 3), i(3, 1, dtype=np.int64)])
    both("Tile", [f(1, 1, 2), i(2, 3, 1)])
    both("Tile", [f(3), i(0)])
    run("Tile", [bools(2), i(3)])
    both("BroadcastTo", [f(3), i(2, 3)])
    both("BroadcastTo", [f(2, 1), i(2, 3)])
    both("BroadcastTo", [f(), i(2, 2)])
    both("BroadcastTo", [f(1, 3), i(4, 2, 3, dtype=np.int64)])
    both("BroadcastTo", [f(2, 3), i(2, 3)])
    run("BroadcastTo", [ints(1), i(3)])
    both("GatherV2", [f(5, 3), i(0, 4, 4), n(0)])
    both("GatherV2", [f(5, 3), i(2, 0, dtype=np.int64), n(1)])
    both("GatherV2", [f(5, 3), n(2), n(0)])
    both("GatherV2", [f(2, 4, 3), ints(2, 2, low=0, high=4), n(1)])
    both("GatherV2", [f(2, 4, 3), ints(2, 2, low=0, high=4), n(1)], batch_dims=1)
    both("GatherV2", [f(2, 3, 4), ints(2, 2, low=0, high=4), n(2)], batch_dims=1)
    both("GatherV2", [f(2, 3, 4), ints(2, low=0, high=4), n(-1)])
    both("GatherV2", [f(3, 2), i(), n(0)])
    both("Gather", [f(4, 2), i(3, 1, 1)])
    run("GatherV2", [i(5, 6, 7), i(2, 0), n(0)])
    run("GatherV2", [bools(4), i(2, 0), n(0)])
    both("ConcatV2", [[f(2, 3), f(1, 3)], n(0)])
    both("ConcatV2", [[f(2, 3), f(2, 1), f(2, 2)], n(-1)])
    both("ConcatV2", [[f(2, 0), f(2, 2)], n(1)])
    both("ConcatV2", [[f(2), f(3)], n(0)])
    both("Concat", [n(1), [f(2, 3), f(2, 1)]])
    run("ConcatV2", [[ints(2), ints(3)], n(0)])
    run("ConcatV2", [[f(1, 1) for _ in range(18)], n(1)])
    both("ConcatV2", [[f(1, 2) for _ in range(18)], n(1)])
    run("ConcatOffset", [n(1), [i(2, 3), i(2, 1), i(2, 2)]])
    run("ConcatOffset", [n(-1), [i(2, 3), i(2, 1)]])
    for axis in [0, 1, -1]:
        both("Pack", [[f(2), f(2), f(2)]], axis=axis)
    both("Pack", [[f(), f()]], axis=0)
    run("Pack", [[n(2), n(3)]], axis=0)
    both("Unpack", [f(2, 3)], axis=0, num=2)
    both("Unpack", [f(2, 3)], axis=-1, num=3)
    both("Unpack", [f(3)], axis=0, num=3)
    both("Split", [n(0), f(4, 3)], num_split=2)
    both("Split", [n(-1), f(2, 6)], num_split=3)
    both("Split", [n(1), f(2, 6)], num_split=1)
    both("SplitV", [f(2, 6), i(1, 3, 2), n(1)], num_split=3)
    both("SplitV", [f(5), i(2, -1, dtype=np.int64), n(0)], num_split=2)
    both("Slice", [f(3, 4), i(1, 0), i(2, 3)])
    both("Slice", [f(3, 4), i(1, 2), i(-1, -1)])
    both("Slice", [f(3), i(1, dtype=np.int64), i(0, dtype=np.int64)])
    both("Slice", [f(), i(), i()])
    run("Slice", [ints(4), i(1), i(2)])
    masks = [
        ((5,), [1], [4], [1], {}),
        ((5,), [1], [4], [2], {}),
        ((5,), [-1], [-6], [-1], {}),
        ((5,), [0], [0], [-1], dict(begin_mask=1, end_mask=1)),
        ((3, 4), [0, 1], [2, 3], [1, 1], {}),
        ((3, 4), [1], [2], [1], dict(shrink_axis_mask=1)),
        ((3, 4), [0, -1], [0, 0], [1, 1], dict(begin_mask=1, end_mask=1, shrink_axis_mask=2)),
        ((2, 3, 4), [0, 1], [0, 3], [1, 1], dict(ellipsis_mask=1)),
        ((2, 3, 4), [0, 0, 1], [0, 0, 4], [1, 1, 2], dict(ellipsis_mask=1, new_axis_mask=2)),
        ((2, 3), [0, 0, 0], [0, 0, 0], [1, 1, 1], dict(new_axis_mask=2, begin_mask=5, end_mask=5)),
        ((2, 3), [1, 1], [2, 2], [1, 1], dict(shrink_axis_mask=3)),
        ((4,), [3], [1], [1], {}),
        ((4, 2), [10], [-10], [-3], {}),
    ]
    for shape, begin, end, strides, attrs in masks:
        both("StridedSlice", [f(*shape), i(*begin), i(*end), i(*strides)], **attrs)
    run("StridedSlice", [i(5, 6, 7), i(0), i(1), i(1)], shrink_axis_mask=1)
    both("StridedSliceGrad", [i(5), i(1), i(5), i(2), f(2)])
    both("StridedSliceGrad", [i(3, 4), i(1), i(2), i(1), f(4)], shrink_axis_mask=1)
    both("Pad", [f(2, 3), np.array([[1, 0], [0, 2]], np.int32)])
    both("Pad", [f(2), np.array([[0, 0]], np.int32)])
    both("Pad", [f(2, 1, 2), np.array([[1, 1], [0, 0], [2, 1]], np.int64)])
    run("PadV2", [f(2, 3), np.array([[1, 0], [0, 2]], np.int32), np.float32(7.5)])
    run("Pad", [ints(2), np.array([[1, 1]], np.int32)])
    for shape, perm in [((2, 3), [1, 0]), ((2, 3, 4), [2, 0, 1]), ((2, 3, 4), [0, 2, 1]), ((5,), [0]), ((2, 3, 4, 2), [0, 3, 1, 2]), ((0, 3), [1, 0]), ((), []), ((33, 17), [1, 0])]:
        run("Transpose", [f(*shape), i(*perm)], gradient=np.prod(shape) < 100)
    run("Transpose", [ints(2, 3), i(-1, 0)])
    run("Transpose", [bools(2, 3), i(1, 0)])
    run("Bitcast", [f(2, 3)], type=tf.int32)
    run("Bitcast", [ints(3, dtype=np.int64)], type=tf.int32)
    run("Bitcast", [ints(3, 2)], type=tf.int64)
    run("DynamicStitch", [[i(0, 1, 2), i(1)], [i(5, 6, 7), i(1)]])
    run("DynamicStitch", [[i(3), n(0)], [ints(1, 2), ints(2)]])
    run("InvertPermutation", [i(2, 0, 1)])
    run("InvertPermutation", [i(dtype=np.int64)])
    both("ReverseV2", [f(2, 3), i(1)])
    both("ReverseV2", [f(2, 3), i(0, -1)])
    both("ReverseV2", [f(2, 3), i()])
    run("ReverseV2", [bools(4), i(0, dtype=np.int64)])
    run("OneHot", [i(0, 2, -1, 5), n(3), np.float32(1), np.float32(0)])
    run("OneHot", [ints(2, 3, low=0, high=4, dtype=np.int64), n(4), np.float32(5), np.float32(-1)], axis=1)
    run("OneHot", [i(1, 0), n(2), n(1), n(0)], axis=0)
    run("OneHot", [i(1, 0, dtype=np.uint8), n(2), np.array(True), np.array(False)], axis=-1)
    run("OneHot", [n(1), n(3), np.float32(1), np.float32(0)])
    for start, limit, delta in [(0, 5, 1), (3, 18, 4), (5, 0, -2), (2, 2, 1)]:
        run("Range", [n(start), n(limit), n(delta)])
        run("Range", [n(start, np.int64), n(limit, np.int64), n(delta, np.int64)])
    run("Range", [np.float32(0), np.float32(1), np.float32(0.1)])
    run("Range", [np.float32(3), np.float32(1), np.float32(-0.7)])


def products():
    for a, b, ta, tb in [((2, 3), (3, 4), False, False), ((3, 2), (3, 4), True, False), ((2, 3), (4, 3), False, True), ((3, 2), (4, 3), True, True), ((1, 1), (1, 1), False, False), ((5, 7), (7, 1), False, False), ((0, 3), (3, 2), False, False), ((2, 0), (0, 3), False, False), ((17, 19), (19, 33), False, False)]:
        run("MatMul", [f(*a), f(*b)], gradient=np.prod(a) < 100, transpose_a=ta, transpose_b=tb)
    run("MatMul", [ints(2, 3), ints(3, 2)])
    for a, b, x, y in [((2, 2, 3), (2, 3, 4), False, False), ((2, 3, 2), (2, 3, 4), True, False), ((1, 2, 2, 3), (1, 2, 4, 3), False, True), ((3, 2), (4, 3), True, True)]:
        both("BatchMatMulV2", [f(*a), f(*b)], adj_x=x, adj_y=y)
    both("UnsortedSegmentSum", [f(4, 2), i(2, 0, 2, -1), n(3)])
    both("UnsortedSegmentSum", [f(2, 3, 2), ints(2, 3, low=0, high=4, dtype=np.int64), n(4)])
    run("UnsortedSegmentSum", [ints(3), i(1, 1, 0), n(2)])
    run("UnsortedSegmentSum", [f(0, 2), i(), n(2)])
    for op in ["UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"]:
        run(op, [f(4, 2), i(2, 0, 2, 0), n(3)])


def updates():
    s = np.float32
    for shape in [(), (7,), (2, 3)]:
        grad, var = f(*shape), f(*shape)
        apply("ResourceApplyGradientDescent", [var], [s(0.1), grad])
        for nesterov in [False, True]:
            apply("ResourceApplyMomentum", [var, f(*shape)], [s(0.1), grad, s(0.9)], use_nesterov=nesterov)
            apply("ResourceApplyKerasMomentum", [var, f(*shape)], [s(0.1), grad, s(0.9)], use_nesterov=nesterov)
            apply("ResourceApplyAdam", [var, f(*shape), np.abs(f(*shape))], [s(0.729), s(0.997), s(0.01), s(0.9), s(0.999), s(1e-7), grad], use_nesterov=nesterov)
        apply("ResourceApplyAdagrad", [var, np.abs(f(*shape)) + s(0.1)], [s(0.1), grad])
        apply("ResourceApplyAdagradV2", [var, np.abs(f(*shape)) + s(0.1)], [s(0.1), s(1e-7), grad])
        apply("ResourceApplyAdagradV2", [var, np.abs(f(*shape)) + s(0.1)], [s(0.1), s(1e-7), grad], update_slots=False)
        apply("ResourceApplyRMSProp", [var, np.abs(f(*shape)), f(*shape)], [s(0.1), s(0.9), s(0.5), s(1e-7), grad])
        apply("ResourceApplyCenteredRMSProp", [var, f(*shape, low=-0.1, high=0.1), np.abs(f(*shape)) + s(0.5), f(*shape)], [s(0.1), s(0.9), s(0.5), s(1e-7), grad])
        apply("AssignAddVariableOp", [var], [grad])
        apply("AssignSubVariableOp", [var], [grad])
    apply("AssignAddVariableOp", [n(5, np.int64)], [n(1, np.int64)])
    for op in ["Add", "Sub", "Mul", "Div", "Min", "Max", "Update"]:
        apply(f"ResourceScatter{op}", [f(4, 3)], [i(2, 0, 2), f(3, 3)])
    apply("ResourceScatterAdd", [f(4)], [ints(2, 2, low=0, high=4, dtype=np.int64), f(2, 2)])
    apply("ResourceScatterAdd", [f(4, 3)], [i(1, 3), s(0.5)])


def randoms():
    seeds = dict(seed=87654321, seed2=5)
    for shape in [i(7), i(2, 3), i(), i(0, 2)]:
        for op in ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"]:
            run(op, [shape], kind="random", dtype=tf.float32, **seeds)
        run("RandomUniformInt", [shape, n(-3), n(11)], kind="random", **seeds)
    run("RandomUniform", [i(3, dtype=np.int64)], kind="random", dtype=tf.float64, **seeds)
    key, counter = np.array([1234567], np.uint64), np.array([3, 5], np.uint64)
    for op in ["StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2"]:
        run(op, [i(2, 3), key, counter, n(1)])
    run("StatelessRandomUniformIntV2", [i(5), key, counter, n(1), n(0), n(100)])
    run("StatelessRandomGetKeyCounter", [i(7, 9)])
    run("StatelessRandomGetKeyCounter", [i(7, -9, dtype=np.int64)])
    run("StatelessRandomGetAlg", [])


def refusals():
    refuse("Reshape", [f(2, 3), i(4)])
    refuse("Reshape", [f(2, 3), i(4, -1)])
    refuse("Reshape", [f(2, 3), i(-1, -1)])
    refuse("Reshape", [f(2, 3), i(-2, 3)])
    refuse("ExpandDims", [f(2, 3), n(5)])
    refuse("Squeeze", [f(2, 3)], squeeze_dims=[0])
    refuse("Squeeze", [f(2, 3)], squeeze_dims=[5])
    for op in ["AddV2", "RealDiv", "Less", "SquaredDifference"]:
        refuse(op, [f(2, 3), f(4)])
    refuse("Select", [bools(1), f(2, 3), f(2, 3)])
    refuse("Select", [bools(2), f(2, 3), f(2, 1)])
    refuse("SelectV2", [bools(2), f(2, 3), f(2, 1)])
    refuse("MatMul", [f(2, 3), f(2, 3)])
    refuse("BatchMatMulV2", [f(4, 2, 3), f(3, 3, 3)])
    refuse("BiasAdd", [f(2, 3), f(4)])
    refuse("BiasAdd", [f(2), f(4)])
    refuse("BiasAdd", [f(2, 3), f(1, 3)])
    refuse("BiasAddGrad", [f(2)])
    refuse("Sum", [f(2, 3), i(2)])
    refuse("Sum", [f(2, 3), i(1, -1)])
    refuse("ArgMax", [f(2, 3), n(2)])
    refuse("ArgMax", [f(2, 0), n(1)])
    refuse("ConcatV2", [[f(2, 3), f(3, 4)], n(0)])
    refuse("ConcatV2", [[f(2, 3), f(3)], n(0)])
    refuse("ConcatV2", [[f(2, 3), f(2, 3)], n(2)])
    refuse("ConcatOffset", [n(0), [i(2, 3), i(2, 4)]])
    refuse("ConcatOffset", [n(3), [i(2, 3), i(2, 3)]])
    refuse("Pack", [[f(2, 3), f(3, 4)]], axis=0)
    refuse("Pack", [[f(2, 3), f(2, 3)]], axis=4)
    refuse("Unpack", [f(2, 3)], axis=0, num=3)
    refuse("Unpack", [f(2, 3)], axis=4, num=3)
    refuse("Split", [n(0), f(3, 2)], num_split=2)
    refuse("Split", [n(4), f(3, 2)], num_split=2)
    refuse("SplitV", [f(3, 2), i(1, 1), n(0)], num_split=2)
    refuse("SplitV", [f(3, 2), i(4, -1), n(0)], num_split=2)
    refuse("SplitV", [f(3, 2), i(-1, -1), n(0)], num_split=2)
    refuse("Slice", [f(3, 2), i(1, 0), i(3, 1)])
    refuse("Slice", [f(3, 2), i(4, 0), i(-1, 1)])
    refuse("Slice", [f(3, 2), i(4), i(-1)])
    refuse("StridedSlice", [f(3, 2), i(0, 0, 0), i(1, 1, 1), i(1, 1, 1)])
    refuse("StridedSlice", [f(3, 2), i(0), i(1), i(0)])
    refuse("StridedSlice", [f(3, 2), i(5), i(6), i(1)], shrink_axis_mask=1)
    refuse("StridedSlice", [f(3, 2), i(1), i(6), i(-1)], shrink_axis_mask=1)
    refuse("StridedSlice", [f(3, 2), i(1, 1), i(6, 1), i(1, 1)], ellipsis_mask=3)
    refuse("StridedSlice", [f(3, 2), i(1, 1), i(6), i(1, 1)])
    refuse("Pad", [f(3, 2), np.array([[1, 1]], np.int32)])
    refuse("Pad", [f(3, 2), np.array([[1, 1], [-1, 0]], np.int32)])
    refuse("Tile", [f(3, 2), i(1)])
    refuse("Tile", [f(3, 2), i(1, -1)])
    refuse("Transpose", [f(3, 2), i(0)])
    refuse("Transpose", [f(3, 2), i(0, 0)])
    refuse("Transpose", [f(3, 2), i(0, 2)])
    refuse("InvertPermutation", [i(0, 0)])
    refuse("InvertPermutation", [i(0, 2)])
    refuse("ReverseV2", [f(3, 2), i(0, -2)])
    refuse("BroadcastTo", [f(3, 2), i(2)])
    refuse("BroadcastTo", [f(3, 2), i(3, 4)])
    refuse("BroadcastTo", [f(3, 1), i(-1, 4)])
    refuse("BroadcastGradientArgs", [i(2), i(3)])
    refuse("OneHot", [i(1), n(-1), np.float32(1), np.float32(0)])
    refuse("OneHot", [i(1), n(2), np.float32(1), np.float32(0)], axis=3)
    refuse("GatherV2", [f(3, 2), i(1), n(2)])
    refuse("GatherV2", [f(3, 2), i(1), n(0)], batch_dims=1)
    refuse("GatherV2", [f(3, 2), i(1), n(1)], batch_dims=1)
    refuse("GatherV2", [f(3, 2), i(1, 3), n(0)])
    refuse("Fill", [i(-1), np.float32(1)])
    refuse("RandomUniform", [i(-2)], dtype=tf.float32, seed=1, seed2=1)
    refuse("Range", [n(0), n(5), n(0)])
    refuse("Range", [n(0), n(5), n(-1)])
    refuse("SoftmaxCrossEntropyWithLogits", [f(2, 3), f(2, 4)])
    refuse("SoftmaxCrossEntropyWithLogits", [f(2, 3, 1), f(2, 3, 1)])
    refuse("SparseSoftmaxCrossEntropyWithLogits", [f(2, 3), i(1)])
    refuse("SparseSoftmaxCrossEntropyWithLogits", [f(2, 3, 1), i(1, 2)])
    refuse("SparseSoftmaxCrossEntropyWithLogits", [f(2, 3), np.array([[1], [2]], np.int32)])
    refuse("UnsortedSegmentSum", [f(2, 3), i(0), n(2)])
    refuse("UnsortedSegmentSum", [f(2, 3), i(0, 1), n(-2)])
    refuse("UnsortedSegmentSum", [f(2, 3), i(0, 3), n(2)])
    refuse("InTopKV2", [f(2, 3), i(0), n(1)])
    refuse("InTopKV2", [f(2), i(0, 1), n(1)])
    refuse("FloorDiv", [i(1), i(0)])
    refuse("FloorMod", [i(1), i(0)])
    refuse("Pow", [i(2), i(-1)])


def unit(*shape):
    """Float32 numbers up to one, so that sums of many products stay small."""
    return f(*shape, low=-1.0, high=1.0)


def windows():
    """Convolutions and pooling, channels last: strides, paddings, odd sizes, channels that fit no vector."""
    convolutions = [
        ((1, 5, 5, 1), (3, 3, 1, 2), (1, 1), "SAME", None),
        ((1, 5, 4, 3), (3, 2, 3, 5), (1, 1), "VALID", None),
        ((2, 5, 7, 2), (3, 3, 2, 3), (2, 2), "SAME", None),
        ((1, 6, 5, 2), (2, 3, 2, 3), (2, 1), "VALID", None),
        ((1, 3, 3, 17), (1, 1, 17, 3), (1, 1), "SAME", None),
        ((1, 4, 4, 3), (1, 1, 3, 2), (3, 2), "SAME", None),
        ((1, 4, 3, 2), (3, 3, 2, 3), (1, 2), "EXPLICIT", (2, 0, 1, 3)),
        ((1, 2, 2, 1), (5, 5, 1, 1), (1, 1), "SAME", None),
        ((1, 2, 2, 3), (2, 2, 3, 19), (1, 1), "VALID", None),
        ((0, 3, 3, 2), (2, 2, 2, 2), (1, 1), "SAME", None),
    ]
    for depthwise in [False, True]:
        op, stem = ("DepthwiseConv2dNative",) * 2 if depthwise else ("Conv2D", "Conv2D")
        for shape, filter_shape, strides, padding, sides in convolutions:
            if depthwise and strides[0] != strides[1]:
                strides = (strides[0], strides[0])
            if depthwise and shape[3] == 17:
                filter_shape = (2, 2, 17, 1)
            if depthwise and filter_shape[3] == 19:
                filter_shape = (2, 2, 3, 3)
            attrs = dict(strides=[1, *strides, 1], padding=padding)
            if sides:
                attrs["explicit_paddings"] = [0, 0, *sides, 0, 0]
            x, w = unit(*shape), unit(*filter_shape)
            run(op, [x, w], gradient=x.size > 0, **attrs)
            if x.size > 36 and strides != (2, 2):
                continue  # Its gradients are those recorded with it.
            with tf.Graph().as_default():
                call = tf.raw_ops.DepthwiseConv2dNative if depthwise else tf.raw_ops.Conv2D
                out = tuple(call(input=x, filter=w, **attrs).shape)
            small = 0 < x.size <= 36 and np.prod(out) <= 60
            run(f"{stem}BackpropInput", [i(*shape), w, unit(*out)], gradient=small, **attrs)
            if depthwise and x.size == 0:
                continue  # TensorFlow leaves the gradient by the filter unwritten.
            run(f"{stem}BackpropFilter", [x, i(*filter_shape), unit(*out)], gradient=small, **attrs)
    pools = [
        ((1, 4, 4, 1), (2, 2), (2, 2), "VALID"),
        ((2, 5, 3, 3), (3, 3), (2, 2), "SAME"),
        ((1, 5, 5, 2), (3, 2), (1, 2), "VALID"),
        ((1, 2, 3, 17), (2, 2), (1, 1), "SAME"),
        ((1, 2, 3, 2), (1, 1), (2, 2), "SAME"),
        ((0, 3, 3, 1), (2, 2), (1, 1), "VALID"),
    ]
    for shape, size, strides, padding in pools:
        attrs = dict(ksize=[1, *size, 1], strides=[1, *strides, 1], padding=padding)
        for op in ["MaxPool", "AvgPool"]:
            x = unit(*shape)
            run(op, [x], gradient=x.size > 0, **attrs)
            if x.size > 50:
                continue
            with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
                call = tf.raw_ops.MaxPool(input=x, **attrs) if op == "MaxPool" else tf.raw_ops.AvgPool(value=x, **attrs)
                out = session.run(call)
            if op == "MaxPool":
                run("MaxPoolGrad", [x, out, unit(*out.shape)], **attrs)
            else:
                run("AvgPoolGrad", [i(*shape), unit(*out.shape)], gradient=x.size > 0, **attrs)
    ties = np.array([[[[1], [1], [2]], [[1], [2], [2]], [[0], [2], [1]]]], np.float32)
    attrs = dict(ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID")
    run("MaxPoolGrad", [ties, ties[:, :2, :2] * 0 + 2, unit(1, 2, 2, 1)], **attrs)
    run("MaxPool", [f(1, 3, 3, 1)], ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="EXPLICIT", explicit_paddings=[0, 0, 1, 0, 0, 1, 0, 0])
    for shape, attrs in [
        ((1, 2, 2, 5), dict(depth_radius=2)),
        ((2, 1, 2, 3), dict(depth_radius=4, bias=1.0, alpha=0.00011111111, beta=0.75)),
        ((1, 1, 2, 19), dict(depth_radius=3, bias=2.0, alpha=0.5, beta=0.6)),
        ((1, 1, 3, 4), dict(depth_radius=0, alpha=2.0)),
    ]:
        both("LRN", [f(*shape)], **attrs)
        run("LRNGrad", [f(*shape), f(*shape), f(*shape)], **attrs)
    valid = dict(strides=[1, 1, 1, 1], padding="VALID")
    zeros = lambda *shape: np.zeros(shape, np.float32)
    refuse("Conv2D", [zeros(2, 3, 3), zeros(1, 1, 1, 1)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 2), zeros(1, 1, 2)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 3), zeros(1, 1, 2, 2)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 4), zeros(1, 1, 2, 3)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 2), zeros(5, 1, 2, 2)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 2), zeros(0, 1, 2, 2)], **valid)
    refuse("Conv2D", [zeros(1, 3, 3, 2), zeros(1, 1, 0, 2)], **valid)
    refuse("Conv2DBackpropInput", [i(1, 3, 3, 2), zeros(2, 2, 2, 3), zeros(1, 3, 2, 3)], **valid)
    refuse("Conv2DBackpropInput", [i(1, 3, 3, 2), zeros(2, 2, 2, 3), zeros(1, 2, 2, 4)], **valid)
    refuse("Conv2DBackpropInput", [i(1, 3, 3, 3), zeros(2, 2, 2, 3), zeros(1, 2, 2, 3)], **valid)
    refuse("Conv2DBackpropInput", [i(2, 3, 3, 2), zeros(2, 2, 2, 3), zeros(1, 2, 2, 3)], **valid)
    refuse("Conv2DBackpropInput", [i(1, 3, 3), zeros(2, 2, 2, 3), zeros(1, 2, 2, 3)], **valid)
    refuse("Conv2DBackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 2, 3), zeros(1, 3, 2, 3)], **valid)
    refuse("Conv2DBackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 2, 4), zeros(1, 2, 2, 3)], **valid)
    refuse("Conv2DBackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 3, 3), zeros(1, 2, 2, 3)], **valid)
    refuse("Conv2DBackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 3), zeros(1, 2, 2, 3)], **valid)
    depthwise = "DepthwiseConv2dNative"
    refuse(depthwise, [zeros(3, 3, 1), zeros(1, 1, 1, 1)], **valid)
    refuse(depthwise, [zeros(1, 3, 3, 2), zeros(1, 1, 2)], **valid)
    refuse(depthwise, [zeros(1, 3, 3, 2), zeros(1, 1, 3, 2)], **valid)
    refuse(f"{depthwise}BackpropInput", [i(1, 3, 3, 2), zeros(2, 2, 2, 2), zeros(1, 2, 3, 4)], **valid)
    refuse(f"{depthwise}BackpropInput", [i(1, 3, 3, 2), zeros(2, 2, 2, 2), zeros(1, 2, 2, 3)], **valid)
    refuse(f"{depthwise}BackpropInput", [i(1, 3, 3), zeros(2, 2, 2, 2), zeros(1, 2, 2, 4)], **valid)
    refuse(f"{depthwise}BackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 2, 2), zeros(1, 2, 3, 4)], **valid)
    refuse(f"{depthwise}BackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 2), zeros(1, 2, 2, 4)], **valid)
    refuse(f"{depthwise}BackpropFilter", [zeros(1, 3, 3, 2), i(2, 2, 3, 2), zeros(1, 2, 2, 4)], **valid)
    pool = dict(ksize=[1, 2, 2, 1], **valid)
    for op in ["MaxPool", "AvgPool"]:
        refuse(op, [zeros(3, 3, 1)], **pool)
        refuse(op, [zeros(1, 3, 3, 4)], ksize=[1, 0, 1, 1], **valid)
    refuse("MaxPoolGrad", [zeros(1, 3, 3, 1), zeros(1, 2, 2, 1), zeros(1, 2, 3, 1)], **pool)
    refuse("MaxPoolGrad", [zeros(1, 3, 3, 1), zeros(1, 2, 3, 1), zeros(1, 2, 2, 1)], **pool)
    refuse("AvgPoolGrad", [i(1, 3, 3), zeros(1, 2, 2, 1)], **pool)
    refuse("LRN", [zeros(3, 3, 1)])
    refuse("LRNGrad", [zeros(1, 3, 3, 1), zeros(1, 3, 2, 1), zeros(1, 3, 3, 1)])
    refuse("LRNGrad", [zeros(3, 3, 1), zeros(3, 3, 1), zeros(3, 3, 1)])


def dilated():
    """What these kernels compute with dilation: results, not gradients."""
    for shape, filter_shape, strides, padding, dilations in [
        ((1, 6, 5, 2), (3, 2, 2, 3), (1, 1), "SAME", (2, 3)),
        ((1, 7, 6, 3), (2, 3, 3, 2), (1, 1), "VALID", (3, 2)),
        ((2, 5, 6, 1), (3, 3, 1, 2), (2, 2), "SAME", (2, 2)),
    ]:
        run("Conv2D", [unit(*shape), unit(*filter_shape)], strides=[1, *strides, 1], padding=padding, dilations=[1, *dilations, 1])
    wide = dict(strides=[1, 1, 1, 1], padding="VALID", dilations=[1, 2, 2, 1])
    zeros = lambda *shape: np.zeros(shape, np.float32)
    refuse("Conv2D", [zeros(1, 3, 3, 2), zeros(3, 3, 2, 2)], **wide)


def control():
    for number in [0, 2.5, -0.0, -1]:
        run("ToBool", [n(number, np.float32)])
    for number in [0, 7]:
        run("ToBool", [n(number)])
        run("ToBool", [n(number, np.int64)])
        run("ToBool", [n(number, np.bool_)])
    for shape in [(0,), (2, 0), (1,), (2, 3)]:
        run("ToBool", [np.zeros(shape, np.float32)])
        run("ToBool", [np.zeros(shape, np.bool_)])


def scans():
    """Running sums and products, and the gradient of Prod, which is made of them."""
    for shape, axis in [((5,), 0), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), 1), ((0, 3), 1), ((3, 0), 0), ((1,), 0)]:
        for exclusive in [False, True]:
            for reverse in [False, True]:
                for op in ["Cumsum", "Cumprod"]:
                    # TensorFlow's gradient of Cumprod is 0 at zeros, which is not its derivative.
                    both(op, [f(*shape, low=0.2), n(axis)], exclusive=exclusive, reverse=reverse)
    for op in ["Cumsum", "Cumprod"]:
        run(op, [ints(2, 5), n(1)], exclusive=False, reverse=False)
        run(op, [ints(7, dtype=np.int64), n(0, np.int64)], exclusive=True, reverse=False)
        run(op, [np.round(RANDOM.uniform(-2, 2, (4, 2)), 3), n(0)], exclusive=False, reverse=True)
        refuse(op, [f(2, 3), n(2)], exclusive=False, reverse=False)
        refuse(op, [f(), n(0)], exclusive=False, reverse=False)
    run("Cumprod", [np.array([1.5, 0, 2, 0, 3], np.float32), n(0)], exclusive=False, reverse=False)
    for shape, axes in [((), []), ((5,), [0]), ((3, 4), [0]), ((3, 4), [-1]), ((3, 4), [0, 1]), ((2, 3, 2), [0, 2]), ((2, 3, 2), []), ((1, 4), [0])]:
        for keep in [False, True]:
            both("Prod", [f(*shape), i(*axes)], keep_dims=keep)
    both("Prod", [np.array([[1.5, 0, 2], [0, 3, 0]], np.float32), i(1)], keep_dims=False)
    both("Prod", [np.array([[1.5, 0.5, 2], [1, 0, -1]], np.float32), i(0, 1)], keep_dims=False)


def batch_norms():
    none = np.zeros(0, np.float32)
    shapes = [(2, 3, 2, 2), (3, 2, 1, 5), (1, 1, 1, 3), (2, 2, 3, 19), (0, 2, 2, 3), (2, 3, 2, 0), (5, 1, 1, 1), (1, 33, 2, 4)]
    for op in ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]:
        for shape in shapes if op.endswith("V3") else shapes[:2]:
            c, small = shape[-1], 0 < np.prod(shape) < 40
            x, scale, offset, mean, variance = f(*shape), f(c, low=0.3), f(c), f(c), f(c, low=0.5)
            run(op, [x, scale, offset, none, none], gradient=small and shape[0] > 1, epsilon=0.01)
            if x.size > 0:
                run(op, [x, scale, offset, mean, variance], exponential_avg_factor=0.25)
            run(op, [x, scale, offset, mean, variance], gradient=small, epsilon=0.002, is_training=False)
            rest = [np.zeros((), np.float32)] if op.endswith("V3") else []
            for training in [True, False]:
                grad = op.replace("Norm", "NormGrad")
                run(grad, [f(*shape), x, scale, mean, variance] + rest, epsilon=0.01, is_training=training)
    x = np.round(1000 + f(4, 3, 3, 2), 3).astype(np.float32)
    run("FusedBatchNormV3", [x, f(2), f(2), none, none])
    run("FusedBatchNormV3", [f(2, 1, 2, 2, 3), f(3), f(3), none, none], data_format="NDHWC")
    x, one, two = f(1, 2, 1, 2), f(1), f(2)
    for training in [True, False]:
        attrs = dict(is_training=training, exponential_avg_factor=0.5)
        refuse("FusedBatchNormV3", [f(2, 1, 2), two, two, two, two], **attrs)
        refuse("FusedBatchNormV3", [x, one, two, two, two], **attrs)
        refuse("FusedBatchNormV3", [x, two, one, two, two], **attrs)
        refuse("FusedBatchNormV3", [x, two, two, one, two], **attrs)
        refuse("FusedBatchNormV3", [x, two, two, two, one], **attrs)
        refuse("FusedBatchNormV3", [x, f(1, 2), two, two, two], **attrs)
        refuse("FusedBatchNormV3", [x, two, f(), two, two], **attrs)
        refuse("FusedBatchNormV3", [x, two, two, f(1, 2), two], **attrs)
        refuse("FusedBatchNormV3", [x, two, two, two, f(2, 1)], **attrs)
    grad = "FusedBatchNormGradV3"
    refuse(grad, [f(1, 2, 1, 1), x, two, two, two, none])
    refuse(grad, [f(1, 2, 2), f(1, 2, 2), two, two, two, none])
    refuse(grad, [x, x, one, two, two, none])
    refuse(grad, [x, x, two, one, two, none])
    refuse(grad, [x, x, two, two, one, none])
    refuse(grad, [x, x, f(2, 1), two, two, none])
    refuse(grad, [x, x, two, f(2, 1), two, none])
    refuse(grad, [x, x, two, two, f(2, 1), none])


def checks():
    both("CheckNumerics", [f(2, 3)], message="here")
    both("CheckNumericsV2", [f(3).astype(np.float64)], message="here")


def curves():
    """Elementwise operations that few models use."""
    shapes = [(), (7,), (3, 5), (0, 4)]
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 0.5, -0.5, 1, -1, 20, -20], np.float32)
    for op, low, high in [
        ("Tan", -1.4, 1.4), ("Asin", -0.95, 0.95), ("Acos", -0.95, 0.95), ("Atan", -3, 3), ("Sinh", -3, 3), ("Cosh", -3, 3),
        ("Asinh", -3, 3), ("Acosh", 1.1, 4), ("Atanh", -0.95, 0.95), ("Lgamma", 0.2, 5), ("Selu", -3, 3), ("Softsign", -3, 3),
    ]:
        for shape in shapes:
            both(op, [f(*shape, low=low, high=high)])
        both(op, [np.round(RANDOM.uniform(low, high, (4,)), 3)])
        if op not in ("Tan", "Lgamma"):
            run(op, [special])
    run("Tan", [special[:7]])
    run("Lgamma", [np.array([np.nan, np.inf, 1, 2, 0.5, -0.5, -1.5, -2.25, 1e-30, 30, 1e10], np.float32)])
    for shape in shapes:
        run("Digamma", [f(*shape, low=0.2, high=6)])
        run("Digamma", [f(*shape, low=-4.8, high=-0.2)])
    run("Digamma", [np.array([1, 0.5, 10, 0.0, -1, -2, 1e10, 1e-3])])
    run("Digamma", [np.array([1, 0.5, 10, 0.0, -1, -2, 1e10, 1e-3], np.float32)])
    for op in ["SeluGrad", "SoftsignGrad"]:
        for shape in [(), (3, 4)]:
            run(op, [f(*shape), f(*shape)])
    pairs = [((), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (3,))]
    for a, b in pairs:
        both("Atan2", [f(*a), f(*b)])
        both("Xdivy", [f(*a), f(*b, low=0.3)])
        both("Xlogy", [f(*a), f(*b, low=0.3)])
        both("Xlog1py", [f(*a), f(*b, low=-0.6)])
        for op in ["Mod", "TruncateMod"]:
            run(op, [f(*a, low=-5, high=5), f(*b, low=0.3, high=3)])
    zeros = np.array([0, 0, 1, -2], np.float32)
    for op in ["Xdivy", "Xlogy", "Xlog1py"]:
        run(op, [zeros, np.array([0, np.nan, 0, 3], np.float32)])
    run("Atan2", [np.array([0, 0, -0.0, -0.0, 1, -1, np.inf, np.nan], np.float32), np.array([1, -1, 1, -1, 0, 0, -np.inf, 1], np.float32)])
    for dtype in [np.int32, np.int64]:
        for op in ["Mod", "TruncateMod"]:
            run(op, [i(-7, 7, -7, 7, 0, 6, dtype=dtype), i(2, 2, -2, -2, 3, -3, dtype=dtype)])
        run("Invert", [ints(2, 3, dtype=dtype)])
        for op in ["LeftShift", "RightShift"]:
            run(op, [ints(2, 3, dtype=dtype), i(0, 1, 5, dtype=dtype)])
            run(op, [i(1, -1, 77, -77, dtype=dtype), i(-1, -3, 100, 1000, dtype=dtype)])
    run("Invert", [ints(4, low=0, dtype=np.uint8)])
    for op in ["LeftShift", "RightShift"]:
        run(op, [ints(4, low=0, high=250, dtype=np.uint8), i(0, 1, 7, 9, dtype=np.uint8)])


def volumes():
    """Convolutions and pooling along three axes."""
    convolutions = [
        ((1, 2, 3, 3, 1), (2, 2, 2, 1, 2), (1, 1, 1), "SAME"),
        ((1, 3, 3, 2, 2), (2, 3, 1, 2, 3), (1, 1, 1), "VALID"),
        ((2, 3, 2, 3, 1), (3, 2, 2, 1, 2), (2, 1, 2), "SAME"),
        ((1, 4, 3, 3, 2), (1, 1, 1, 2, 3), (2, 2, 1), "VALID"),
        ((1, 2, 2, 2, 17), (2, 1, 2, 17, 1), (1, 1, 1), "SAME"),
        ((1, 2, 1, 3, 1), (5, 3, 3, 1, 1), (1, 1, 2), "SAME"),
        ((0, 3, 3, 3, 2), (2, 2, 2, 2, 2), (1, 1, 1), "SAME"),
    ]
    for shape, filter_shape, strides, padding in convolutions:
        attrs = dict(strides=[1, *strides, 1], padding=padding)
        x, w = unit(*shape), unit(*filter_shape)
        run("Conv3D", [x, w], gradient=x.size > 0, **attrs)
        with tf.Graph().as_default():
            out = tuple(tf.raw_ops.Conv3D(input=x, filter=w, **attrs).shape)
        small = 0 < x.size <= 36 and np.prod(out) <= 60
        run("Conv3DBackpropInputV2", [i(*shape), w, unit(*out)], gradient=small, **attrs)
        run("Conv3DBackpropFilterV2", [x, i(*filter_shape), unit(*out)], gradient=small, **attrs)
    pools = [
        ((1, 2, 4, 2, 1), (2, 2, 2), (2, 2, 2), "VALID"),
        ((2, 3, 2, 3, 2), (2, 3, 2), (1, 2, 2), "SAME"),
        ((1, 2, 2, 3, 17), (2, 1, 2), (1, 1, 1), "VALID"),
        ((1, 3, 2, 2, 1), (1, 2, 2), (2, 1, 1), "SAME"),
        ((0, 3, 3, 3, 1), (2, 2, 2), (1, 1, 1), "VALID"),
    ]
    for shape, size, strides, padding in pools:
        attrs = dict(ksize=[1, *size, 1], strides=[1, *strides, 1], padding=padding)
        for op in ["MaxPool3D", "AvgPool3D"]:
            x = unit(*shape)
            run(op, [x], gradient=x.size > 0, **attrs)
            with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
                out = session.run(getattr(tf.raw_ops, op)(input=x, **attrs))
            if op == "MaxPool3D":
                run("MaxPool3DGrad", [x, out, unit(*out.shape)], **attrs)
            else:
                run("AvgPool3DGrad", [i(*shape), unit(*out.shape)], gradient=x.size > 0, **attrs)
    # Every element that is nearly the maximum has the gradient, and which NaN counts depends on its place.
    ties = np.array([1, 1, 2, 2, 2, 1, 0, 2, 2, 2, 1, 0], np.float32).reshape(1, 2, 2, 3, 1)
    attrs = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 1, 1, 1, 1], padding="SAME")
    run("MaxPool3D", [ties], **attrs)
    run("MaxPool3DGrad", [ties, ties * 0 + 2, unit(*ties.shape)], **attrs)
    nan = np.array([np.nan, 1, 1, np.nan, np.nan, np.nan, -np.inf, -np.inf], np.float32).reshape(1, 1, 1, 8, 1)
    attrs = dict(ksize=[1, 1, 1, 2, 1], strides=[1, 1, 1, 2, 1], padding="VALID")
    run("MaxPool3D", [nan], **attrs)
    near = np.array([0.01, 0.010009, 0.01, 0.01002], np.float32).reshape(1, 1, 1, 4, 1)
    run("MaxPool3DGrad", [near, near[:, :, :, 1::2], unit(1, 1, 1, 2, 1)], **attrs)
    run("MaxPool3DGrad", [nan, nan[:, :, :, ::2], unit(1, 1, 1, 4, 1)], **attrs)
    valid = dict(strides=[1, 1, 1, 1, 1], padding="VALID")
    zeros = lambda *shape: np.zeros(shape, np.float32)
    x, w, g = zeros(1, 3, 3, 3, 2), zeros(2, 2, 2, 2, 3), zeros(1, 2, 2, 2, 3)
    refuse("Conv3D", [zeros(1, 3, 3, 3), w], **valid)
    refuse("Conv3D", [x, zeros(2, 2, 2, 3)], **valid)
    refuse("Conv3D", [x, zeros(2, 2, 2, 3, 3)], **valid)
    refuse("Conv3D", [x, zeros(0, 2, 2, 2, 3)], **valid)
    refuse("Conv3D", [x, zeros(2, 2, 2, 0, 3)], **valid)
    back = "Conv3DBackpropInputV2"
    refuse(back, [i(1, 3, 3, 3, 2), w, zeros(1, 2, 2, 3, 3)], **valid)
    refuse(back, [i(1, 3, 3, 3, 2), w, zeros(1, 2, 2, 2, 4)], **valid)
    refuse(back, [i(1, 3, 3, 3, 3), w, g], **valid)
    refuse(back, [i(2, 3, 3, 3, 2), w, g], **valid)
    refuse(back, [i(1, 3, 3, 3), w, g], **valid)
    refuse(back, [i(1, 3, 3, 3, 2), zeros(2, 2, 2, 2), g], **valid)
    back = "Conv3DBackpropFilterV2"
    refuse(back, [x, i(2, 2, 2, 2, 3), zeros(1, 2, 3, 2, 3)], **valid)
    refuse(back, [x, i(2, 2, 2, 2, 4), g], **valid)
    refuse(back, [x, i(2, 2, 2, 3, 3), g], **valid)
    refuse(back, [x, i(2, 2, 2, 3), g], **valid)
    refuse(back, [zeros(3, 3, 3, 2), i(2, 2, 2, 2, 3), g], **valid)
    pool = dict(ksize=[1, 2, 2, 2, 1], **valid)
    x, y = zeros(1, 3, 3, 3, 1), zeros(1, 2, 2, 2, 1)
    for op in ["MaxPool3D", "AvgPool3D"]:
        refuse(op, [zeros(3, 3, 3, 1)], **pool)
    refuse("MaxPool3DGrad", [x, y, zeros(1, 2, 3, 2, 1)], **pool)
    refuse("MaxPool3DGrad", [x, zeros(1, 2, 3, 2, 1), y], **pool)
    refuse("AvgPool3DGrad", [i(1, 3, 3, 3), y], **pool)
    refuse("AvgPool3DGrad", [i(1, 3, 3, 3, 1), zeros(1, 2, 2, 1)], **pool)


def halves():
    """Floats of two bytes."""
    for dtype in [np.float16, tf.bfloat16.as_numpy_dtype]:
        h = lambda *shape, low=-2.0, high=2.0: RANDOM.uniform(low, high, shape).astype(dtype)
        for op, low, high in [
            ("Neg", -3, 3), ("Abs", -3, 3), ("Sign", -3, 3), ("Square", -3, 3), ("Sqrt", 0.1, 4), ("Rsqrt", 0.1, 4),
            ("Reciprocal", 0.1, 4), ("Exp", -3, 3), ("Expm1", -3, 3), ("Log", 0.1, 4), ("Log1p", 0.1, 4), ("Tanh", -3, 3),
            ("Sigmoid", -3, 3), ("Erf", -3, 3), ("Erfc", -3, 3), ("Floor", -3, 3), ("Ceil", -3, 3), ("Round", -3, 3),
            ("Sin", -3, 3), ("Cos", -3, 3), ("Tan", -1.4, 1.4), ("Asin", -0.95, 0.95), ("Acos", -0.95, 0.95),
            ("Atan", -3, 3), ("Sinh", -3, 3), ("Cosh", -3, 3), ("Asinh", -3, 3), ("Acosh", 1.1, 4), ("Atanh", -0.95, 0.95),
            ("IsNan", -3, 3), ("IsFinite", -3, 3), ("IsInf", -3, 3),
            ("Relu", -3, 3), ("Relu6", -3, 8), ("Elu", -3, 3), ("Selu", -3, 3), ("Softplus", -3, 3), ("Softsign", -3, 3),
        ]:
            run(op, [h(2, 19, low=low, high=high)])
        if dtype == np.float16:
            run("Lgamma", [h(19, low=0.2, high=5)])
            run("Digamma", [h(19, low=0.2, high=5)])
        run("LeakyRelu", [h(19)], alpha=0.2)
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-3, -1e-3, 1e4, -1e4, 65504, 6e-8], np.float32).astype(dtype)
        for op in ["Neg", "Abs", "Exp", "Tanh", "Sigmoid", "Square", "Sqrt", "Reciprocal", "IsNan", "IsFinite", "Relu"]:
            run(op, [special])
        for op in ["AddV2", "Sub", "Mul", "RealDiv", "DivNoNan", "Minimum", "Maximum", "SquaredDifference", "FloorDiv", "FloorMod", "MulNoNan", "Less", "Equal", "GreaterEqual"]:
            run(op, [h(3, 17), h(17, low=0.3, high=3)])
        run("Pow", [h(19, low=0.2), h(19)])
        run("Atan2", [h(19), h(19)])
        run("Xlogy", [h(19), h(19, low=0.3)])
        run("SelectV2", [bools(19), h(19), h(19)])
        run("AddN", [[h(19) for _ in range(3)]])
        for op in ["TanhGrad", "SigmoidGrad", "SqrtGrad", "RsqrtGrad", "ReciprocalGrad"]:
            run(op, [h(19, low=0.1, high=0.9), h(19)])
        for op in ["ReluGrad", "EluGrad", "SoftplusGrad", "SeluGrad"]:
            run(op, [h(19), h(19)])
        types = [tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64, tf.uint8, tf.bool]
        for target in types:
            source = h(19, low=0, high=200) if target == tf.uint8 else h(19, low=-2000, high=2000)
            run("Cast", [source], DstT=target)
        for source in [f(19, low=-300, high=300), f(19, low=-1e-5, high=1e-5), f(19).astype(np.float64), ints(9, low=-5000, high=5000), ints(9, dtype=np.int64), bools(5), ints(5, low=0, high=250, dtype=np.uint8)]:
            run("Cast", [source], DstT=tf.as_dtype(dtype))
        run("Cast", [special], DstT=tf.float32)
        run("Cast", [np.array([np.nan, np.inf, -np.inf, 1e38, -1e38, 65519, 65520, 1e-8, 3e-8, -0.0], np.float32)], DstT=tf.as_dtype(dtype))
        both("Tanh", [h(5)])
        both("Mul", [h(5), h(5)])
        both("RealDiv", [h(2, 3), h(3, low=0.5)])
        for shape, axes in [((40,), [0]), ((3, 17), [1]), ((17, 3), [0]), ((2, 3, 4), [0, 2])]:
            for op in ["Sum", "Mean", "Max", "Min", "Prod"]:
                run(op, [h(*shape), i(*axes)], keep_dims=False)
        run("MatMul", [h(3, 40), h(40, 5)])
        run("MatMul", [h(40, 3), h(5, 40)], transpose_a=True, transpose_b=True)
        run("BatchMatMulV2", [h(2, 3, 7), h(2, 7, 4)])
        run("BiasAdd", [h(3, 5), h(5)])
        run("BiasAddGrad", [h(7, 5)])
        run("Softmax", [h(3, 7)])
        run("LogSoftmax", [h(3, 7)])
        run("SoftmaxCrossEntropyWithLogits", [h(3, 7), np.abs(h(3, 7))])
        run("SparseSoftmaxCrossEntropyWithLogits", [h(3, 7), i(1, 0, 6)])
        run("L2Loss", [h(40)])
        run("ArgMax", [h(3, 7), n(1)])
        conv = dict(strides=[1, 1, 1, 1], padding="SAME")
        run("Conv2D", [h(2, 5, 4, 3), h(3, 3, 3, 5)], **conv)
        run("Conv2DBackpropInput", [i(2, 5, 4, 3), h(3, 3, 3, 5), h(2, 5, 4, 5)], **conv)
        run("Conv2DBackpropFilter", [h(2, 5, 4, 3), i(3, 3, 3, 5), h(2, 5, 4, 5)], **conv)
        run("DepthwiseConv2dNative", [h(2, 5, 4, 3), h(3, 3, 3, 2)], **conv)
        run("Conv3D", [h(1, 3, 4, 3, 2), h(2, 3, 2, 2, 3)], strides=[1, 1, 1, 1, 1], padding="VALID")
        pool = dict(ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
        x = h(2, 4, 4, 3)
        run("MaxPool", [x], **pool)
        run("AvgPool", [x], **pool)
        run("AvgPoolGrad", [i(2, 4, 4, 3), h(2, 2, 2, 3)], **pool)
        with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
            out = session.run(tf.raw_ops.MaxPool(input=x, **pool))
        run("MaxPoolGrad", [x, out, h(2, 2, 2, 3)], **pool)


def half_rows():
    """Floats of two bytes by rows: normalizations, checks, segments and scatters."""
    none, one = np.zeros(0, np.float32), np.zeros((), np.float32)
    for dtype in [np.float16, tf.bfloat16.as_numpy_dtype]:
        h = lambda *shape, low=-2.0, high=2.0: RANDOM.uniform(low, high, shape).astype(dtype)
        run("CheckNumerics", [h(2, 3)], message="here")
        run("CheckNumericsV2", [h(19)], message="here")
        if dtype == np.float16:
            for attrs in [dict(depth_radius=2, bias=1.0, alpha=0.5, beta=0.75), dict(depth_radius=1, bias=2.0, alpha=0.25, beta=0.5)]:
                x = h(1, 2, 2, 7)
                run("LRN", [x], **attrs)
                with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
                    y = session.run(tf.raw_ops.LRN(input=x, **attrs))
                run("LRNGrad", [h(1, 2, 2, 7), x, y], **attrs)
        for op in ["FusedBatchNormV2", "FusedBatchNormV3"]:
            x, scale, offset, mean, variance = h(2, 3, 2, 5), f(5, low=0.3), f(5), f(5), f(5, low=0.5)
            run(op, [x, scale, offset, none, none], epsilon=0.01)
            run(op, [x, scale, offset, mean, variance], exponential_avg_factor=0.25)
            run(op, [x, scale, offset, mean, variance], epsilon=0.002, is_training=False)
            for training in [True, False]:
                rest = [one] if op.endswith("V3") else []
                run(op.replace("Norm", "NormGrad"), [h(2, 3, 2, 5, low=-1.0, high=1.0), x, scale, mean, variance] + rest, epsilon=0.01, is_training=training)
        # Each sum is a number of the type.
        run("UnsortedSegmentSum", [np.array([2048, 1, 1, 1, 3], dtype), i(0, 0, 0, 0, 1), n(2)])
        for op in ["UnsortedSegmentSum", "UnsortedSegmentProd", "UnsortedSegmentMax", "UnsortedSegmentMin"]:
            run(op, [h(9, 3), i(1, 0, 1, 3, -1, 3, 3, 0, 1), n(5)])
        for op in ["Add", "Sub", "Mul", "Div", "Min", "Max", "Update"]:
            apply(f"ResourceScatter{op}", [h(4, 3)], [i(2, 0, 2), h(3, 3, low=0.5)])
        apply("ResourceScatterAdd", [h(4, 3)], [i(1, 3), np.array(0.5, dtype)])
        run("GatherV2", [h(4, 3), i(2, 0, 2), n(0)])
        run("OneHot", [i(2, 0, 5), n(4), h(), h()])
        for op in ["Cumsum", "Cumprod"]:
            run(op, [h(19), n(0)])
            run(op, [h(2, 7, 3), n(1)], reverse=True, exclusive=True)


def second_orders():
    """Gradients of gradients."""
    for op in ["EluGrad", "SeluGrad", "SoftplusGrad"]:
        for shape in [(), (3, 5)]:
            both(op, [f(*shape), f(*shape)])
    both("Digamma", [f(7, low=0.2, high=6)])
    both("Digamma", [np.array([-0.5, -1.25, -3.75, 0.25, 20])])
    orders = np.array([0, 1, 2, 3, 4], np.float64)
    both("Polygamma", [orders, f(5, low=0.2, high=6).astype(np.float64)])
    both("Polygamma", [orders, f(3, 1, low=0.2, high=6).astype(np.float64)])
    both("Polygamma", [orders[:4].astype(np.float32), f(4, low=0.3, high=6)])
    run("Polygamma", [np.array([1, 1, 2, 0.5, 1]), np.array([-0.5, -2.25, -0.75, 1, -1])])
    both("Zeta", [f(4, low=1.5, high=5).astype(np.float64), f(4, low=0.2, high=9).astype(np.float64)])
    both("Zeta", [f(4, low=1.5, high=5), f(2, 1, low=0.5, high=9)])
    run("Zeta", [np.array([1, 0.5, 2, 3, 2, 2.5, 3]), np.array([2, 2, -1, -1, -2.5, -0.5, -3.25])])
    image = dict(ksize=[1, 2, 3, 1], strides=[1, 2, 1, 1])
    volume = dict(ksize=[1, 2, 2, 2, 1], strides=[1, 1, 2, 1, 1])
    for kind, shape, attrs in [("MaxPool", (2, 4, 5, 3), image), ("MaxPool3D", (1, 3, 4, 3, 2), volume)]:
        for padding in ["VALID", "SAME"]:
            x = np.round(f(*shape), 2)
            y = value_of(kind, x, padding=padding, **attrs)
            both(kind + "Grad", [x, y, f(*y.shape)], padding=padding, **attrs)
            both(kind + "GradGrad", [x, y, f(*shape)], padding=padding, **attrs)
            # Several elements are as large.
            x = ints(*shape, low=0, high=3).astype(np.float32)
            y = value_of(kind, x, padding=padding, **attrs)
            run(kind + "GradGrad", [x, y, f(*shape)], padding=padding, **attrs)
        refuse(kind + "GradGrad", [x, y, y], padding="VALID", **attrs)
    for dtype in [np.float16, tf.bfloat16.as_numpy_dtype]:
        x = f(2, 4, 5, 3).astype(dtype)
        y = value_of("MaxPool", x, padding="VALID", **image)
        run("MaxPoolGradGrad", [x, y, f(2, 4, 5, 3).astype(dtype)], padding="VALID", **image)


# Records that draw one after the other from the same numbers, and those that have numbers of their own.
TOGETHER = [unary, binary, reductions, arrays, products, updates, randoms, refusals, windows, control, scans, dilated, batch_norms, checks]
ALONE = [curves, volumes, halves, half_rows, second_orders]
