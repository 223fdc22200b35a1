"""Linear algebra."""
from .cases import *


def matrix(*shape, dtype=np.float32):
    """Well-conditioned square matrices."""
    return f(*shape, low=-0.5, high=0.5).astype(dtype) + 2 * np.eye(shape[-1], dtype=dtype)


def definite(*shape, dtype=np.float32):
    x = matrix(*shape, dtype=dtype)
    return np.round(x @ np.swapaxes(x, -1, -2), 3)


def factors():
    for dtype in [np.float32, np.float64]:
        for shape in [(1, 1), (3, 3), (2, 3, 3), (2, 1, 4, 4), (0, 3, 3), (2, 0, 0)]:
            both("Cholesky", [definite(*shape, dtype=dtype)])
            both("MatrixDeterminant", [matrix(*shape, dtype=dtype)])
            both("LogMatrixDeterminant", [matrix(*shape, dtype=dtype)])
            for adjoint in [False, True]:
                both("MatrixInverse", [matrix(*shape, dtype=dtype)], adjoint=adjoint)
                both("MatrixSolve", [matrix(*shape, dtype=dtype), f(*shape[:-1], 2).astype(dtype)], adjoint=adjoint)
                for lower in [False, True]:
                    both("MatrixTriangularSolve", [matrix(*shape, dtype=dtype), f(*shape[:-1], 2).astype(dtype)], lower=lower, adjoint=adjoint)
    run("Cholesky", [definite(20, 20, dtype=np.float64)])
    run("MatrixInverse", [(matrix(20, 20, dtype=np.float64) + 3 * np.eye(20))])
    run("MatrixSolve", [(matrix(20, 20, dtype=np.float64) + 3 * np.eye(20)), f(20, 3).astype(np.float64)])
    # Rows that have to be exchanged; singular matrices; numbers that are none.
    exchanged = np.array([[0, 2, 1], [1, 0, 3], [4, 1, 0]], np.float32)
    singular = np.array([[1, 2], [2, 4]], np.float32)
    nan = np.array([[np.nan, 1], [1, 1]], np.float32)
    for op in ["MatrixInverse", "MatrixDeterminant", "LogMatrixDeterminant"]:
        both(op, [exchanged])
    for op in ["MatrixDeterminant", "LogMatrixDeterminant"]:
        run(op, [singular])
        run(op, [nan])
        run(op, [np.zeros((2, 2), np.float32)])
    run("MatrixInverse", [matrix(3, 3).astype(np.float16)])
    run("MatrixSolve", [exchanged, f(3, 1)])
    run("MatrixTriangularSolve", [np.array([[0, 1], [1, 2]], np.float32), f(2, 2)])
    run("MatrixTriangularSolve", [nan, f(2, 2)], lower=True)
    run("Cholesky", [np.array([[4, 9], [1, 3]], np.float32)])
    for matrix_shape, right in [((3, 3), (2, 3, 1)), ((2, 3, 3), (3, 2)), ((2, 1, 2, 2), (1, 3, 2, 1)), ((2, 2), (1, 2, 1))]:
        both("MatrixTriangularSolve", [matrix(*matrix_shape), f(*right)])
    refuse("MatrixInverse", [singular])
    refuse("MatrixInverse", [nan])
    refuse("MatrixSolve", [singular, f(2, 1)])
    refuse("MatrixSolve", [exchanged, f(2, 1)])
    refuse("MatrixSolve", [exchanged, f(1, 3, 1)])
    for op in ["Cholesky", "MatrixInverse"]:
        refuse(op, [f(2, 3)])


ALONE = [factors]
