"""Complex numbers."""
from .cases import *

# Zeros of both signs, infinities, and numbers that are none, in both parts.
PARTS = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan]
CORNERS = np.array([complex(re, im) for re in PARTS for im in PARTS], np.complex64)
SINGLE, DOUBLE = dict(Tout=tf.float32), dict(Tout=tf.float64)


def parts():
    for dtype, real, pair in [(np.complex64, np.float32, tf.complex64), (np.complex128, np.float64, tf.complex128)]:
        tout = SINGLE if dtype == np.complex64 else DOUBLE
        for shape in [(), (3,), (2, 3), (0, 2)]:
            for op in ["Real", "Imag", "ComplexAbs", "Angle"]:
                both(op, [c(*shape, dtype=dtype)], **tout)
            both("Conj", [c(*shape, dtype=dtype)])
        for left, right in [((2, 3), (2, 3)), ((3,), (2, 1)), ((), (2,))]:
            both("Complex", [f(*left).astype(real), f(*right).astype(real)], Tout=pair)
    for op in ["Real", "Imag", "ComplexAbs", "Angle"]:
        run(op, [CORNERS], **SINGLE)
    run("Conj", [CORNERS])
    both("ComplexAbs", [np.array([0, 3 + 4j], np.complex64)], **SINGLE)
    run("ComplexAbs", [np.array([3e30 + 4e30j, 3e-30 + 4e-30j], np.complex64)], **SINGLE)


def arithmetic():
    for dtype in [np.complex64, np.complex128]:
        for op in ["Neg", "Square", "Sqrt", "Rsqrt", "Reciprocal", "Inv", "Exp", "Log", "Sin", "Cos", "Sinh", "Cosh"]:
            both(op, [c(2, 3, dtype=dtype)])
        for op in ["Add", "AddV2", "Sub", "Mul", "Div", "RealDiv", "DivNoNan", "MulNoNan"]:
            both(op, [c(2, 3, dtype=dtype), c(3, dtype=dtype)])
            both(op, [c(2, 1, dtype=dtype), c(1, 3, dtype=dtype)])
        run("SquaredDifference", [c(2, 3, dtype=dtype), c(3, dtype=dtype)])
        for op in ["SqrtGrad", "RsqrtGrad", "ReciprocalGrad"]:
            both(op, [c(4, dtype=dtype), c(4, dtype=dtype)])
        both("AddN", [[c(2, 3, dtype=dtype) for _ in range(3)]])
    run("Neg", [CORNERS])
    for op in ["Sqrt", "Log"]:
        run(op, [CORNERS[~np.isinf(CORNERS)]])
    run("Log", [CORNERS])
    # Real numbers stay real.
    run("Exp", [np.array([1, -1, np.inf, -np.inf, np.nan, complex(2, -0.0)], np.complex64)])
    run("Sqrt", [np.array([4, -4, complex(-4, -0.0), 3e38 + 3e38j, 1e-38 + 1e-38j, complex(1, np.inf), complex(-np.inf, 1)], np.complex64)])
    small = np.array([1 + 1j, 3e30 + 4e30j, 1e-30 - 1e-30j, 2, -3j], np.complex64)
    run("RealDiv", [small, small])
    run("Mul", [small[:1], small])
    run("DivNoNan", [c(3), np.array([0, -0.0, 1j], np.complex64)])
    run("MulNoNan", [np.array([np.inf, np.nan, 1], np.complex64), np.array([0, 0, 2j], np.complex64)])


def choices():
    x = np.array([1 + 1j, 1 - 1j, 2, np.nan, 0], np.complex64)
    y = np.array([1 + 1j, 1 + 1j, 2, np.nan, complex(-0.0, 0.0)], np.complex64)
    for dtype in [np.complex64, np.complex128]:
        for op in ["Equal", "NotEqual"]:
            run(op, [x.astype(dtype), y.astype(dtype)])
        both("Select", [bools(2, 3), c(2, 3, dtype=dtype), c(2, 3, dtype=dtype)])
        both("SelectV2", [bools(2, 1), c(1, 3, dtype=dtype), c(2, 3, dtype=dtype)])
        for op in ["ZerosLike", "OnesLike"]:
            run(op, [c(2, 3, dtype=dtype)])
    for to in [tf.complex64, tf.complex128, tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.int32, tf.int64, tf.uint8, tf.bool]:
        for dtype in [np.complex64, np.complex128]:
            run("Cast", [np.array([0, 2, 3 - 1j, 7.5j], dtype)], DstT=to)
        run("Cast", [np.array([0, 2, 3], to.as_numpy_dtype)], DstT=tf.complex64)
        run("Cast", [np.array([0, 2, 3], to.as_numpy_dtype)], DstT=tf.complex128)
    both("Cast", [c(3)], DstT=tf.complex128)
    both("Cast", [f(3)], DstT=tf.complex64)


def movements():
    for dtype in [np.complex64, np.complex128]:
        both("Identity", [c(2, 3, dtype=dtype)])
        both("Reshape", [c(2, 3, dtype=dtype), i(3, 2)])
        both("ExpandDims", [c(2, 3, dtype=dtype), n(1)])
        both("ConcatV2", [[c(2, 3, dtype=dtype), c(2, 1, dtype=dtype)], n(1)])
        both("Pack", [[c(3, dtype=dtype), c(3, dtype=dtype)]], axis=1)
        both("Unpack", [c(2, 3, dtype=dtype)], num=3, axis=1)
        both("Split", [n(1), c(2, 4, dtype=dtype)], num_split=2)
        both("Transpose", [c(2, 3, 2, dtype=dtype), i(2, 0, 1)])
        both("ConjugateTranspose", [c(2, 3, 2, dtype=dtype), i(2, 0, 1)])
        both("Slice", [c(4, 3, dtype=dtype), i(1, 0), i(2, 2)])
        both("StridedSlice", [c(5, 3, dtype=dtype), i(4, 0), i(0, 3), i(-2, 1)])
        both("Pad", [c(2, 2, dtype=dtype), ints(2, 2, low=0, high=3)])
        both("PadV2", [c(2, dtype=dtype), i([1, 2]), c(dtype=dtype)])
        both("Tile", [c(2, 2, dtype=dtype), i(1, 3)])
        both("BroadcastTo", [c(2, 1, dtype=dtype), i(2, 3)])
        both("ReverseV2", [c(2, 3, dtype=dtype), i(1)])
        both("GatherV2", [c(4, 2, dtype=dtype), i(3, 0, 3), n(0)])
        both("Fill", [i(2, 3), c(dtype=dtype)])
        both("MatrixDiag", [c(3, dtype=dtype)])
        both("MatrixBandPart", [c(3, 3, dtype=dtype), n(-1, np.int64), n(0, np.int64)])
    both("ConjugateTranspose", [f(2, 3), i(1, 0)])
    run("ConjugateTranspose", [ints(2, 3), i(1, 0)])


def sums():
    for dtype in [np.complex64, np.complex128]:
        for axes in [(0,), (1,), (0, 1), ()]:
            for op in ["Sum", "Mean"]:
                both(op, [c(2, 3, dtype=dtype), i(*axes)], keep_dims=len(axes) == 1)
        run("Sum", [c(0, 3, dtype=dtype), i(0)])
        both("UnsortedSegmentSum", [c(4, 2, dtype=dtype), i(1, 0, 1, 3), n(4)])
        for left, right in [(False, False), (True, False), (False, True), (True, True)]:
            x, y = c(*((3, 2) if left else (2, 3)), dtype=dtype), c(*((4, 3) if right else (3, 4)), dtype=dtype)
            both("MatMul", [x, y], transpose_a=left, transpose_b=right)
            both("BatchMatMulV2", [np.stack([x, 2 * x]), np.stack([y, y])], adj_x=left, adj_y=right)
            both("BatchMatMulV2", [np.stack([x, 2 * x])[:, None], y], adj_x=left, adj_y=right)
        for equation, shapes in [("ij,jk->ik", [(2, 3), (3, 2)]), ("bij,bkj->bik", [(2, 2, 3), (2, 2, 3)]), ("ij,ij->", [(2, 3), (2, 3)]),
                                 ("i,j->ij", [(2,), (3,)]), ("ij->ji", [(2, 3)]), ("ij->i", [(2, 3)])]:
            both("Einsum", [[c(*shape, dtype=dtype) for shape in shapes]], equation=equation)


ALONE = [parts, arithmetic, choices, movements, sums]
