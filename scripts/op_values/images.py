"""Images and windows: blocks, borders, resizing, convolutions in groups and their kin."""
from op_values.cases import *

bf16 = tf.bfloat16.as_numpy_dtype


def blocks():
    """SpaceToBatchND, BatchToSpaceND, SpaceToDepth, DepthToSpace."""
    pad = lambda *pairs: np.array(pairs, np.int32)
    both("SpaceToBatchND", [f(1, 4, 4, 1), i(2, 2), pad((0, 0), (0, 0))])
    both("SpaceToBatchND", [f(2, 3, 5, 2), i(2, 3), pad((1, 0), (0, 1))])
    both("SpaceToBatchND", [f(2, 5, 3), i(4), pad((2, 1))])
    both("SpaceToBatchND", [f(2, 3, 3, 2, 2), np.array([1, 3, 2], np.int64), np.array([[0, 0], [1, 2], [1, 1]], np.int64)])
    both("SpaceToBatchND", [f(2, 3, 4), i(2, 2), pad((1, 0), (0, 0))])
    run("SpaceToBatchND", [f(0, 4, 4, 1), i(2, 2), pad((0, 0), (0, 0))])
    run("SpaceToBatchND", [ints(1, 4, 2), i(2), pad((0, 0))])
    both("BatchToSpaceND", [f(4, 2, 2, 1), i(2, 2), pad((0, 0), (0, 0))])
    both("BatchToSpaceND", [f(12, 2, 2, 2), i(2, 3), pad((1, 0), (0, 1))])
    both("BatchToSpaceND", [f(8, 2, 3), i(4), pad((2, 1))])
    both("BatchToSpaceND", [f(6, 2, 2, 2, 2), np.array([1, 3, 2], np.int64), np.array([[0, 0], [1, 2], [0, 1]], np.int64)])
    both("SpaceToBatch", [f(2, 3, 5, 2), pad((1, 0), (0, 1))], block_size=2)
    both("BatchToSpace", [f(8, 2, 2, 2), pad((1, 0), (0, 1))], block_size=2)
    for dtype in [np.float32, np.float16, np.int32]:
        x = ints(2, 4, 6, 3).astype(dtype)
        run("SpaceToDepth", [x], block_size=2)
        run("DepthToSpace", [ints(2, 2, 3, 12).astype(dtype)], block_size=2)
    both("SpaceToDepth", [f(1, 6, 3, 2)], block_size=3)
    both("DepthToSpace", [f(1, 2, 1, 18)], block_size=3)


def mirrors():
    """MirrorPad and MirrorPadGrad."""
    pad = lambda *pairs: np.array(pairs, np.int32)
    for mode in ["REFLECT", "SYMMETRIC"]:
        both("MirrorPad", [f(4), pad((3, 2))], mode=mode)
        both("MirrorPad", [f(3, 4), pad((2, 1), (0, 3))], mode=mode)
        both("MirrorPad", [f(1, 3, 3, 2), pad((0, 0), (1, 1), (2, 0), (0, 0))], mode=mode)
        both("MirrorPad", [f(2, 3, 1), np.array([[1, 0], [0, 0], [0, 0]], np.int64)], mode=mode)
        run("MirrorPad", [ints(3, 2), pad((1, 2), (1, 0))], mode=mode)
        run("MirrorPad", [ints(3, 2, low=0, dtype=np.uint8), pad((0, 2), (1, 1))], mode=mode)
        run("MirrorPad", [bools(5), pad((2, 2))], mode=mode)
        both("MirrorPadGrad", [f(9), pad((3, 2))], mode=mode)
        both("MirrorPadGrad", [f(6, 7), pad((2, 1), (0, 3))], mode=mode)
        run("MirrorPadGrad", [f(6, 7).astype(np.float16), pad((1, 0), (2, 2))], mode=mode)
        run("MirrorPadGrad", [f(6, 7), pad((0, 0), (0, 0))], mode=mode)
    both("MirrorPad", [f(2, 3), pad((2, 2), (3, 3))], mode="SYMMETRIC")
    run("MirrorPad", [f(0, 3), pad((0, 0), (1, 2))], mode="SYMMETRIC")
    refuse("MirrorPad", [f(0), pad((0, 0))], mode="REFLECT")
    refuse("MirrorPad", [f(3), pad((3, 0))], mode="REFLECT")
    refuse("MirrorPad", [f(3), pad((0, 4))], mode="SYMMETRIC")


def resizes():
    """ResizeBilinear and its kin, with all attributes."""
    shapes = [((1, 3, 4, 2), (6, 7)), ((2, 7, 5, 3), (3, 2)), ((1, 4, 4, 1), (4, 9)), ((1, 1, 1, 5), (3, 2)), ((2, 5, 6, 4), (1, 1))]
    ways = [(False, False), (True, False), (False, True)]
    for op in ["ResizeBilinear", "ResizeBicubic", "ResizeNearestNeighbor"]:
        for shape, size in shapes:
            for align, half in ways:
                both(op, [f(*shape), i(*size)], align_corners=align, half_pixel_centers=half)
        for dtype in [np.float16, np.float64, np.int32, np.uint8, np.int64, bf16]:
            run(op, [ints(1, 3, 4, 2, low=0).astype(dtype), i(5, 3)], half_pixel_centers=True)
        run(op, [f(0, 3, 4, 2), i(5, 3)], align_corners=False)
    for shape, size in shapes:
        for align in [False, True]:
            if not (align and 1 in shape[1:3]):
                run("ResizeArea", [f(*shape), i(*size)], align_corners=align)
    run("ResizeArea", [ints(1, 6, 6, 3, low=0, dtype=np.uint8), i(2, 3)])
    for dtype in [np.float16, np.float64]:
        x = f(1, 3, 4, 2).astype(dtype)
        for half in [False, True]:
            run("ResizeBilinearGrad", [f(1, 5, 2, 2), x], half_pixel_centers=half)
            run("ResizeNearestNeighborGrad", [f(1, 5, 2, 2).astype(dtype), i(3, 4)], half_pixel_centers=half)
    run("ResizeNearestNeighborGrad", [ints(1, 5, 2, 2), i(3, 4)])
    run("ResizeBicubicGrad", [f(1, 5, 2, 2), f(1, 3, 4, 2).astype(np.float64)], half_pixel_centers=True)
    refuse("ResizeBilinear", [f(3, 4, 2), i(5, 3)])
    refuse("ResizeBilinear", [f(1, 3, 4, 2), i(5, 0)])
    refuse("ResizeBilinear", [f(1, 0, 4, 2), i(5, 2)])
    refuse("ResizeBilinear", [f(1, 3, 4, 2), i(5, 2)], align_corners=True, half_pixel_centers=True)
    for kernel in ["lanczos1", "lanczos3", "lanczos5", "gaussian", "box", "triangle", "keyscubic", "mitchellcubic"]:
        for antialias in [True, False]:
            for shape, size, scale, move in [
                ((1, 5, 4, 2), (3, 7), (0.6, 1.75), (0.0, 0.0)), ((1, 4, 4, 1), (4, 9), (1.3, 0.7), (1.5, -0.75)), ((2, 9, 8, 3), (2, 3), (0.25, 0.3), (0.1, 5.0)),
            ]:
                inputs = [f(*shape), i(*size), np.array(scale, np.float32), np.array(move, np.float32)]
                both("ScaleAndTranslate", inputs, kernel_type=kernel, antialias=antialias)
    grad = [f(1, 3, 7, 2), f(1, 5, 4, 2), np.array([0.6, 1.75], np.float32), np.zeros(2, np.float32)]
    run("ScaleAndTranslateGrad", grad, kernel_type="lanczos3", antialias=True)
    inputs = [ints(1, 5, 4, 2, low=0, dtype=np.uint8), i(3, 7), np.array([0.6, 1.75], np.float32), np.zeros(2, np.float32)]
    run("ScaleAndTranslate", inputs, kernel_type="lanczos3", antialias=True)


ALONE = [blocks, mirrors, resizes]
