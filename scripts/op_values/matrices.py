"""Diagonals and bands of matrices."""
from .cases import *

ALIGNMENTS = ["LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT"]


def bands():
    for shape, lower, upper in [((3, 4), 0, -1), ((3, 4), -1, 0), ((4, 3), 1, 1), ((2, 3, 3), 0, 0), ((5, 5), 2, 1), ((2, 2, 1, 4), -1, 2), ((3, 3), -1, -1), ((0, 3, 4), 1, 1), ((3, 0), 0, 0), ((20, 30), 3, 12), ((3, 4), 3, 4)]:
        run("MatrixBandPart", [f(*shape), n(lower, np.int64), n(upper, np.int64)], gradient=np.prod(shape) < 100)
    run("MatrixBandPart", [np.array([[np.nan, np.inf], [-np.inf, -0.0]], np.float32), n(0), n(0)])
    run("MatrixBandPart", [ints(3, 3), n(1), n(0)])
    run("MatrixBandPart", [bools(3, 3), n(-1), n(0)])
    run("MatrixBandPart", [f(3, 3).astype(np.float16), n(-1), n(0)])
    refuse("MatrixBandPart", [f(3, 4), n(4), n(0)])
    refuse("MatrixBandPart", [f(3, 4), n(0), n(5)])


def diagonals():
    for shape in [(3,), (2, 3), (1,), (0,), (2, 0), (0, 3), (2, 2, 2)]:
        both("MatrixDiag", [f(*shape)])
    for shape in [(3, 3), (2, 3, 4), (2, 4, 3), (1, 1), (0, 3, 3), (2, 3, 0)]:
        both("MatrixDiagPart", [f(*shape)])
        both("MatrixSetDiag", [f(*shape), f(*shape[:-2], min(shape[-2:]))])
    run("MatrixDiag", [ints(3, dtype=np.int64)])
    run("MatrixDiag", [bools(3)])
    zero = np.float32(0)
    for version in ["V2", "V3"]:
        for k, shape, rows, columns in [(0, (3,), -1, -1), (1, (2, 3), -1, -1), (-2, (3,), -1, -1), (1, (3,), 3, 4), (-1, (3,), 5, -1), (2, (3,), -1, 6), (0, (2, 2), 2, 5), (0, (3,), 7, 3)]:
            both("MatrixDiag" + version, [f(*shape), n(k), n(rows), n(columns), zero])
        run("MatrixDiag" + version, [f(3), i(1), n(-1), n(-1), np.float32(9.5)])
        for k, shape in [(0, (3, 3)), (1, (2, 3, 4)), (-2, (4, 3)), (3, (3, 4)), (-1, (2, 3, 1))]:
            both("MatrixDiagPart" + version, [f(*shape), n(k), zero])
            length = min(shape[-2] + min(k, 0), shape[-1] - max(k, 0))
            both("MatrixSetDiag" + version, [f(*shape), f(*shape[:-2], length), n(k)])
        for align in ALIGNMENTS if version == "V3" else [None]:
            attrs = dict(align=align) if align else {}
            for (lower, upper), shape in [((-1, 1), (2, 3, 3)), ((-2, 0), (4, 3)), ((0, 2), (3, 5)), ((1, 2), (2, 3, 4)), ((-1, 2), (4, 5)), ((-2, -1), (5, 3)), ((0, 0), (3, 3))]:
                length = min(shape[-2] + min(upper, 0), shape[-1] - max(lower, 0))
                diagonal = (*shape[:-2], upper - lower + 1, length) if upper > lower else (*shape[:-2], length)
                is_same = version == "V3"
                run("MatrixDiagPart" + version, [f(*shape), i(lower, upper), np.float32(7)], gradient=is_same, **attrs)
                run("MatrixSetDiag" + version, [f(*shape), f(*diagonal), i(lower, upper)], gradient=is_same, **attrs)
                run("MatrixDiag" + version, [f(*diagonal), i(lower, upper), n(shape[-2]), n(shape[-1]), np.float32(-1)], gradient=is_same, **attrs)
                run("MatrixDiag" + version, [f(*diagonal), i(lower, upper), n(-1), n(-1), zero], **attrs)
        run("MatrixDiagPart" + version, [ints(3, 4), i(-1, 1), n(-5)])
        run("MatrixSetDiag" + version, [ints(3, 4), ints(3), n(0)])
        run("MatrixDiagPart" + version, [f(20, 30), i(-10, 12), zero])


ALONE = [bands, diagonals]
