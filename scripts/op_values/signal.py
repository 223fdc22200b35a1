"""Fourier transforms."""
from .cases import *

PARTS = {np.complex64: (np.float32, tf.float32, tf.complex64), np.complex128: (np.float64, tf.float64, tf.complex128)}


def of_complex():
    for dtype in [np.complex64, np.complex128]:
        for length in [1, 2, 3, 4, 5, 6, 7, 8, 12]:
            both("FFT", [c(length, dtype=dtype)])
            both("IFFT", [c(length, dtype=dtype)])
        for length in [17, 31, 32, 60, 100]:
            run("FFT", [c(2, length, dtype=dtype)])
            run("IFFT", [c(2, length, dtype=dtype)])
        for op in ["FFT", "IFFT"]:
            both(op, [c(2, 1, 4, dtype=dtype)])
            both(op + "2D", [c(2, 3, dtype=dtype)])
            both(op + "2D", [c(2, 4, 1, dtype=dtype)])
            both(op + "3D", [c(2, 3, 2, dtype=dtype)])
            run(op + "3D", [c(2, 2, 3, 4, dtype=dtype)])
            run(op, [c(2, 0, dtype=dtype)])
            run(op, [c(0, 3, dtype=dtype)])
            run(op + "2D", [c(2, 0, 3, dtype=dtype)])
    run("FFT", [np.array([1, np.nan, 2], np.complex64)])


def of_real():
    for dtype, (real, treal, tcomplex) in PARTS.items():
        for length in [1, 2, 3, 4, 5, 6, 7, 8]:
            both("RFFT", [f(2, length).astype(real), i(length)], Tcomplex=tcomplex)
            both("IRFFT", [c(2, length // 2 + 1, dtype=dtype), i(length)], Treal=treal)
        for length in [17, 30, 31, 100]:
            run("RFFT", [f(2, length).astype(real), i(length)], Tcomplex=tcomplex)
            run("IRFFT", [c(2, length // 2 + 1, dtype=dtype), i(length)], Treal=treal)
        for rows, columns in [(2, 4), (3, 3), (4, 1), (1, 6)]:
            both("RFFT2D", [f(rows, columns).astype(real), i(rows, columns)], Tcomplex=tcomplex)
            both("IRFFT2D", [c(rows, columns // 2 + 1, dtype=dtype), i(rows, columns)], Treal=treal)
        both("RFFT2D", [f(2, 2, 3).astype(real), i(2, 3)], Tcomplex=tcomplex)
        both("IRFFT2D", [c(2, 2, 3, dtype=dtype), i(2, 4)], Treal=treal)
        run("RFFT3D", [f(2, 3, 4).astype(real), i(2, 3, 4)], Tcomplex=tcomplex)
        run("IRFFT3D", [c(2, 3, 3, dtype=dtype), i(2, 3, 4)], Treal=treal)
        run("RFFT3D", [f(2, 2, 1, 3).astype(real), i(2, 1, 3)], Tcomplex=tcomplex)
        # Rows that are longer than the transform.
        run("RFFT", [f(2, 7).astype(real), i(4)], Tcomplex=tcomplex)
        run("IRFFT", [c(2, 7, dtype=dtype), i(4)], Treal=treal)
        run("RFFT2D", [f(2, 4, 7).astype(real), i(3, 4)], Tcomplex=tcomplex)
        run("IRFFT2D", [c(2, 4, 7, dtype=dtype), i(3, 5)], Treal=treal)
        run("RFFT", [f(0, 3).astype(real), i(3)], Tcomplex=tcomplex)
    refuse("RFFT", [f(2, 3), i(4)])
    refuse("IRFFT", [c(2, 2), i(4)])
    refuse("RFFT2D", [f(3, 3), i(4, 3)])
    refuse("RFFT", [f(2, 3), i(-1)])
    refuse("RFFT", [f(2, 3), i(2, 2)])


ALONE = [of_complex, of_real]
