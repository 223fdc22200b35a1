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


def grouped(x, filter_, padding="SAME", strides=(1, 1), explicit=()):
    """A convolution in groups, and its gradients as those of a convolution for each group: the CPU's kernels have none."""
    attrs = dict(strides=[1, *strides, 1], padding=padding)
    if explicit:
        attrs["explicit_paddings"] = explicit
    run("Conv2D", [x, filter_], **attrs)
    case, count = Case("Conv2D", [x, filter_], attrs), x.shape[-1] // filter_.shape[2]
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        tensors = [tf.constant(x), tf.constant(filter_)]
        args = dict(attrs)
        parts = zip(*[tf.split(t, count, axis=3) for t in tensors])
        y = tf.concat([tf.raw_ops.Conv2D(input=a, filter=b, **args) for a, b in parts], axis=3)
        dy = f(*y.shape)
        gradients = session.run(v1.gradients(y, tensors, [tf.constant(dy)]))
    print(f"grad {case.head()} | {tensor(dy)} | {';'.join(tensor(g) for g in gradients)}")


def groups():
    """Convolutions of channels in groups, and their gradients."""
    grouped(f(2, 5, 4, 4), f(3, 3, 2, 6))
    grouped(f(1, 6, 7, 6), f(2, 3, 1, 12), padding="VALID", strides=(2, 2))
    grouped(f(2, 4, 4, 40), f(3, 2, 20, 36, low=-0.25, high=0.25), strides=(2, 1))
    grouped(f(1, 4, 4, 4), f(3, 3, 2, 6), padding="EXPLICIT", explicit=[0, 0, 1, 2, 0, 1, 0, 0])
    run("Conv2D", [f(2, 5, 4, 4).astype(np.float16), f(3, 3, 2, 6).astype(np.float16)], strides=[1, 1, 1, 1], padding="SAME")
    # The kernel that is recorded here refuses dilations; that with blocks has the same values.
    x, filter_ = f(1, 6, 7, 3), f(3, 3, 3, 2)
    case = Case("DepthwiseConv2dNative", [x, filter_], dict(strides=[1, 1, 1, 1], padding="SAME", dilations=[1, 2, 2, 1]))
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        y = tf.nn.depthwise_conv2d(tf.constant(x), tf.constant(filter_), [1, 1, 1, 1], "SAME", dilations=[2, 2])
        dy = f(*y.shape)
        inputs = [t for t in y.graph.get_operations() if t.type == "Const"][:2]
        value, *gradients = session.run([y, *v1.gradients(y, [t.outputs[0] for t in inputs], [tf.constant(dy)])])
    print(f"op {case.head()} | {tensor(value)}")
    print(f"grad {case.head()} | {tensor(dy)} | {';'.join(tensor(g) for g in gradients)}")


def first(op, inputs, images, attrs, gradient=True):
    """A case with channels first, whose values are those of the case with channels last: the CPU's kernels refuse it.

    `images` says which inputs, shapes of images (as vectors) among them, have channels."""
    rank = len(attrs["strides"]) if "strides" in attrs else 4
    to_last, to_first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
    formats = ("NCHW", "NHWC") if rank == 4 else ("NCDHW", "NDHWC")

    def moved(value, perm):
        return value[perm] if value.ndim == 1 else np.transpose(value, perm)

    def other(value):
        return [value[axis] for axis in to_first] if isinstance(value, list) else value

    first = Case(op, [moved(v, to_first) if p in images else v for p, v in enumerate(inputs)], {**{k: other(v) for k, v in attrs.items()}, "data_format": formats[0]})
    last = Case(op, inputs, {**attrs, "data_format": formats[1]})
    with tf.Graph().as_default(), v1.Session(config=CONFIG) as session:
        placeholders, operation = last.build()
        feed = {x: value for x, value in zip(placeholders, last.flat) if x.op.type == "Placeholder"}
        values = session.run(list(operation.outputs), feed)
        if op.startswith("FusedBatchNorm") and "Grad" not in op and not attrs.get("is_training", True):
            values[3:5] = [np.zeros_like(value) for value in values[3:5]]  # The kernel leaves them unwritten.
        to = lambda value: np.transpose(value, to_first) if value.ndim == rank and "Filter" not in op else value
        print(f"op {first.head()} | {';'.join(tensor(to(v)) for v in values)}")
        if not gradient:
            return
        dy = f(*values[0].shape)
        xs = [x for x in placeholders if x.dtype.is_floating]
        gradients = v1.gradients(operation.outputs[:1], xs, [tf.constant(dy)])
        found = [session.run(g, feed) if g is not None else None for g in gradients]
        is_image = [p in images for p, v in enumerate(inputs) if v.dtype == np.float32]
        texts = ["-" if g is None else tensor(np.transpose(g, to_first) if image else g) for g, image in zip(found, is_image)]
        print(f"grad {first.head()} | {tensor(np.transpose(dy, to_first))} | {';'.join(texts)}")


def channels_first():
    """NCHW and NCDHW."""
    flat, deep = [1, 2, 1, 1], [1, 1, 2, 1, 1]
    first("Conv2D", [f(2, 5, 4, 3), f(3, 2, 3, 5)], [0], dict(strides=flat, padding="SAME"))
    first("Conv2DBackpropInput", [i(2, 5, 4, 3), f(3, 2, 3, 5), f(2, 3, 4, 5)], [0, 2], dict(strides=flat, padding="SAME"), False)
    first("Conv2DBackpropFilter", [f(2, 5, 4, 3), i(3, 2, 3, 5), f(2, 3, 4, 5)], [0, 2], dict(strides=flat, padding="SAME"), False)
    first("DepthwiseConv2dNative", [f(2, 5, 4, 3), f(3, 2, 3, 2)], [0], dict(strides=[1, 1, 1, 1], padding="VALID"))
    first("Conv3D", [f(1, 3, 5, 4, 2), f(2, 3, 2, 2, 3)], [0], dict(strides=deep, padding="SAME"))
    pool = dict(ksize=[1, 2, 3, 1], strides=flat, padding="SAME")
    first("MaxPool", [f(2, 5, 4, 3)], [0], pool)
    first("AvgPool", [f(2, 5, 4, 3)], [0], pool)
    volume = dict(ksize=[1, 2, 2, 3, 1], strides=deep, padding="VALID")
    first("MaxPool3D", [f(1, 3, 5, 4, 2)], [0], volume)
    first("AvgPool3D", [f(1, 3, 5, 4, 2)], [0], volume)
    none = np.zeros(0, np.float32)
    first("FusedBatchNormV3", [f(2, 3, 2, 5), f(5, low=0.3), f(5), none, none], [0], dict(epsilon=0.01))
    first("FusedBatchNormV3", [f(2, 3, 2, 5), f(5, low=0.3), f(5), f(5), f(5, low=0.5)], [0], dict(epsilon=0.01, is_training=False))
    x, b = f(2, 3, 4, 2), f(3)
    run("BiasAdd", [x, b], gradient=True, data_format="NCHW")
    run("BiasAdd", [f(2, 3, 4, 2, 2), b], gradient=True, data_format="NCHW")


def colours():
    """RGBToHSV, HSVToRGB and changes of colours."""
    for dtype in [np.float32, np.float64]:
        run("RGBToHSV", [f(2, 5, 3, low=0, high=1).astype(dtype)])
        run("HSVToRGB", [f(2, 5, 3, low=0, high=1).astype(dtype)])
    run("RGBToHSV", [np.array([[0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.2], [0, 1, 0], [-1, -2, 3], [3, 0, 3], [-1, -2, -3]], np.float32)])
    run("HSVToRGB", [np.array([[0, 0, 0], [1, 1, 1], [0.5, 2, 0.2], [-0.25, 1, 2], [1.5, 0.5, 1]], np.float32)])
    run("RGBToHSV", [f(3, low=0, high=1)])
    run("RGBToHSV", [f(0, 3)])
    for delta in [0.1, -0.4, 0.9, 0.0, -1.0]:
        run("AdjustHue", [f(2, 3, 3, low=0, high=1), n(delta, np.float32)])
    run("AdjustHue", [f(1, 2, 2, 3), n(0.3, np.float32)])
    for scale in [0.5, 2.0, 0.0]:
        run("AdjustSaturation", [f(2, 3, 3, low=0, high=1), n(scale, np.float32)])
    for factor in [0.5, 2.0, -1.0]:
        run("AdjustContrastv2", [f(2, 3, 4, 3), n(factor, np.float32)])
        run("AdjustContrastv2", [f(2, 3, 5), n(factor, np.float32)])


def projections():
    """ImageProjectiveTransformV2 and V3."""
    turn = np.array([[0.8, -0.6, 1.5, 0.6, 0.8, -1.0, 0, 0], [1.2, 0.1, -2.25, 0, 0.7, 0.5, 0.01, -0.02]], np.float32)
    far = np.array([[3.1, 0.3, -11.3, -0.2, 2.7, 9.1, 0, 0]], np.float32)
    for mode in ["CONSTANT", "REFLECT", "WRAP", "NEAREST"]:
        for way in ["NEAREST", "BILINEAR"]:
            attrs = dict(interpolation=way, fill_mode=mode)
            run("ImageProjectiveTransformV3", [f(2, 5, 4, 3), turn, i(5, 4), n(0.25, np.float32)], **attrs)
            run("ImageProjectiveTransformV3", [f(2, 5, 4, 1), far, i(7, 6), n(-1, np.float32)], **attrs)
            run("ImageProjectiveTransformV2", [f(1, 1, 4, 2), far, i(3, 3)], **attrs)
    for dtype in [np.float64, np.float16, np.uint8, np.int32, np.int64]:
        run("ImageProjectiveTransformV3", [ints(2, 5, 4, 3, low=0, high=99).astype(dtype), turn, i(4, 4), n(3, np.float32)], interpolation="NEAREST")
    pole = np.array([[1, 0, 0, 0, 1, 0, -0.5, 0]], np.float32)
    run("ImageProjectiveTransformV3", [f(1, 4, 4, 1), pole, i(4, 4), n(9, np.float32)], interpolation="BILINEAR")


ALONE = [groups, colours, projections, channels_first, blocks, mirrors, resizes]
