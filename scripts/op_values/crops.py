"""Windows and crops of images."""
from .cases import *


def patches():
    for padding in ["SAME", "VALID"]:
        for ksizes, strides, rates in [((2, 2), (2, 2), (1, 1)), ((3, 2), (1, 2), (1, 1)), ((2, 3), (2, 1), (2, 1)), ((1, 1), (3, 2), (1, 1))]:
            attrs = {"ksizes": [1, *ksizes, 1], "strides": [1, *strides, 1], "rates": [1, *rates, 1], "padding": padding}
            both("ExtractImagePatches", [f(1, 4, 3, 2)], **attrs)
            run("ExtractImagePatches", [f(2, 7, 6, 3)], **attrs)
    attrs = {"ksizes": [1, 2, 2, 1], "strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "VALID"}
    both("ExtractImagePatches", [f(2, 3, 2, 1).astype(np.float64)], **attrs)
    for dtype in [np.float16, np.uint8, np.int32, np.int64, np.int8]:
        run("ExtractImagePatches", [ints(1, 3, 3, 1, low=0, dtype=dtype)], **attrs)
    run("ExtractImagePatches", [np.zeros((0, 3, 3, 1), np.float32)], **attrs)


def crops():
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.8, 0.7], [0.9, 0.8, 0.2, 0.1], [-0.3, 0.1, 0.5, 1.4], [0.5, 0.5, 0.5, 0.5]], np.float32)
    names = i(0, 1, 1, 0, 1)
    for method in ["bilinear", "nearest"]:
        for crop in [(3, 2), (1, 4), (1, 1)]:
            # By nearest neighbours TensorFlow refuses the gradient by boxes only.
            record = both if method == "bilinear" else run
            record("CropAndResize", [f(2, 4, 5, 2), boxes, names, i(*crop)], method=method, extrapolation_value=0.5)
            run("CropAndResizeGradImage", [f(5, *crop, 2), boxes, names, i(2, 4, 5, 2)], method=method, T=tf.float32)
        run("CropAndResizeGradImage", [f(5, 2, 2, 1), boxes, names, i(2, 3, 3, 1)], method=method, T=tf.float64)
        for dtype in [np.uint8, np.int32, np.float64, np.float16]:
            run("CropAndResize", [ints(2, 3, 3, 1, low=0, dtype=dtype), boxes, names, i(2, 2)], method=method)
    run("CropAndResizeGradBoxes", [f(5, 2, 3, 2), f(2, 4, 5, 2), boxes, names])
    run("CropAndResizeGradBoxes", [f(5, 1, 1, 1), ints(2, 3, 3, 1, low=0, dtype=np.uint8), boxes, names])
    run("CropAndResize", [f(1, 3, 3, 1), np.zeros((0, 4), np.float32), np.zeros(0, np.int32), i(2, 2)])
    refuse("CropAndResize", [f(1, 3, 3, 1), boxes[:2], i(0, 1), i(2, 2)])
    refuse("CropAndResize", [f(1, 3, 3, 1), boxes[:2], i(0, -1), i(2, 2)])
    refuse("CropAndResize", [f(1, 3, 3, 1), boxes[:2], i(0, 0), i(0, 2)])
    refuse("CropAndResize", [np.zeros((1, 0, 3, 1), np.float32), boxes[:2], i(0, 0), i(2, 2)])


ALONE = [patches, crops]
