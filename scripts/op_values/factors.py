"""Matrices taken apart."""
from .cases import *


def matrix(*shape, dtype=np.float32):
    return f(*shape).astype(dtype)


def symmetric(*shape, dtype=np.float32):
    x = f(*shape)
    return np.round(x + np.swapaxes(x, -1, -2), 3).astype(dtype)


def orthogonal():
    for dtype in [np.float32, np.float64]:
        for shape in [(1, 1), (3, 3), (4, 2), (2, 4), (2, 3, 3), (2, 3, 2), (1, 3), (3, 1), (0, 2, 2), (2, 0, 3), (2, 3, 0)]:
            for full in [False, True]:
                smooth = not (full and shape[-2] > shape[-1]) and 0 not in shape
                run("Qr", [matrix(*shape, dtype=dtype)], gradient=smooth, full_matrices=full)
                smooth = 0 not in shape and not (full and abs(shape[-2] - shape[-1]) > 1)
                run("Svd", [matrix(*shape, dtype=dtype)], gradient=smooth, compute_uv=True, full_matrices=full)
            run("Svd", [matrix(*shape, dtype=dtype)], gradient=0 not in shape, compute_uv=False, full_matrices=False)
    run("Qr", [np.array([[1, 2], [0, 3]], np.float32)], full_matrices=False)
    run("Qr", [np.array([[-1, 2], [1, -3], [0, 1]], np.float32)], full_matrices=True)
    run("Qr", [np.zeros((2, 2), np.float32)], full_matrices=False)
    run("Qr", [matrix(12, 9)], full_matrices=False)
    run("Svd", [matrix(9, 12)], compute_uv=True, full_matrices=False)
    run("Svd", [np.array([[1, np.nan], [0, 1]], np.float32)], compute_uv=True, full_matrices=False)


def eigenvalues():
    for dtype in [np.float32, np.float64]:
        pair = tf.complex64 if dtype == np.float32 else tf.complex128
        for shape in [(1, 1), (3, 3), (4, 4), (2, 3, 3), (0, 2, 2), (2, 0, 0)]:
            for vectors in [False, True]:
                run("SelfAdjointEigV2", [symmetric(*shape, dtype=dtype)], gradient=0 not in shape, compute_v=vectors)
                smooth = 0 not in shape and not vectors
                run("Eig", [matrix(*shape, dtype=dtype)], gradient=smooth, compute_v=vectors, Tout=pair)
                run("Eig", [c(*shape, dtype=pair.as_numpy_dtype)], gradient=smooth, compute_v=vectors, Tout=pair)
    # The lower triangle alone is read.
    run("SelfAdjointEigV2", [np.array([[1, 9], [2, 3]], np.float32)], compute_v=True)
    run("SelfAdjointEigV2", [symmetric(12, 12)], compute_v=True)
    run("Eig", [matrix(8, 8)], compute_v=True, Tout=tf.complex64)
    run("Eig", [np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0]], np.float32)], compute_v=True, Tout=tf.complex64)
    nan = np.array([[1, 2], [np.nan, 1]], np.float32)
    refuse("SelfAdjointEigV2", [nan], compute_v=True)
    refuse("Eig", [nan], compute_v=True, Tout=tf.complex64)
    refuse("SelfAdjointEigV2", [f(2, 3)], compute_v=True)
    refuse("Eig", [f(2, 2)], compute_v=True, Tout=tf.complex128)


def triangles():
    for dtype in [np.float32, np.float64]:
        for shape in [(1, 1), (3, 3), (2, 4, 4), (0, 2, 2), (2, 0, 0)]:
            run("Lu", [matrix(*shape, dtype=dtype)])
            run("Lu", [matrix(*shape, dtype=dtype)], output_idx_type=tf.int64)
    run("Lu", [np.array([[0, 2, 1], [1, 0, 3], [4, 1, 0]], np.float32)])
    run("Lu", [np.array([[1, 2], [-1, 3]], np.float32)])
    refuse("Lu", [np.array([[1, 2], [2, 4]], np.float32)])
    refuse("Lu", [f(2, 3)])


def products():
    for dtype in [np.float32, np.float64]:
        for shape in [(3,), (2, 3), (2, 2, 3), (0, 3)]:
            both("Cross", [matrix(*shape, dtype=dtype), matrix(*shape, dtype=dtype)])
    run("Cross", [ints(2, 3), ints(2, 3)])
    run("Cross", [np.array([1, np.inf, 0], np.float32), np.array([np.nan, 0, 1], np.float32)])
    refuse("Cross", [f(2, 3), f(3)])


def systems():
    for dtype in [np.complex64, np.complex128]:
        for shape in [(1, 1), (3, 3), (2, 3, 3), (0, 2, 2)]:
            for adjoint in [False, True]:
                unit = 3 * np.eye(shape[-1], dtype=dtype)
                both("MatrixSolve", [c(*shape, low=-1, high=1, dtype=dtype) + unit, c(*shape[:-1], 2, dtype=dtype)], adjoint=adjoint)
    refuse("MatrixSolve", [np.array([[1, 1j], [1j, -1]], np.complex64), c(2, 1)])


ALONE = [orthogonal, eigenvalues, triangles, products, systems]
