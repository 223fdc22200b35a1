"""What `record_keras_layers.py` records of `keras.ops` and `keras.losses`: for every function its arguments, or why it has none."""
import inspect

import keras
import numpy as np
from keras import losses, ops

from .layers import floats, ints

X, Y = floats(3, 4), floats(4, 3).T.copy()
POSITIVE, UNIT = np.abs(X) + 0.1, np.clip(np.abs(X) / 4, 0.01, 0.99)
SQUARE = floats(2, 3, 3)
DEFINITE = SQUARE @ SQUARE.transpose(0, 2, 1) + 2 * np.eye(3, dtype=np.float32)
WHOLE, OTHER = ints(3, 4, below=7), ints(4, 3, below=5).T.copy() + 1
FLAGS = WHOLE > 2
VECTOR, IMAGE = floats(6), floats(2, 6, 5, 4)
SORTED = np.array([-1.0, 0.0, 0.5, 2.0], np.float32)

# No computation of a graph, or none that is the same twice, or one that TensorFlow's processors or Keras's TensorFlow lack.
WITHOUT = {
    "name": "a string, no function", **dict.fromkeys(
        "associative_scan cond convert_to_numpy convert_to_tensor custom_gradient dtype fold fori_loop get_item is_tensor jvp linalg map ndim nn "
        "numpy scan shape size stop_gradient switch vectorize vectorized_map while_loop".split(),
        "no computation by itself, or one of functions that it is given",
    ),
    **dict.fromkeys("bartlett corrcoef isin kron".split(), "Keras's own works outside of TensorFlow functions only"),
    **dict.fromkeys("empty empty_like".split(), "gives elements that nobody knows"),
}

# Arguments that are not found by trying: positional arrays, then what is bound to the function.
ARGUMENTS = {
    "arange": lambda x: ops.arange(0, 7, 2) + ops.cast(x[0], "int32") * 0,
    "adaptive_average_pool": (lambda x: ops.adaptive_average_pool(x, 2), IMAGE),
    "adaptive_max_pool": (lambda x: ops.adaptive_max_pool(x, 2), IMAGE),
    "average_pool": (lambda x: ops.average_pool(x, 2), IMAGE),
    "max_pool": (lambda x: ops.max_pool(x, 2), IMAGE),
    "batch_normalization": (lambda x, m, v: ops.batch_normalization(x, m, v, -1), X, floats(4), np.abs(floats(4)) + 1),
    "layer_normalization": (lambda x: ops.layer_normalization(x), X),
    "conv": (lambda x, k: ops.conv(x, k), IMAGE, floats(3, 3, 4, 2)),
    "conv_transpose": (lambda x, k: ops.conv_transpose(x, k, 2), IMAGE, floats(3, 3, 2, 4)),
    "depthwise_conv": (lambda x, k: ops.depthwise_conv(x, k), IMAGE, floats(3, 3, 4, 2)),
    "separable_conv": (lambda x, k, p: ops.separable_conv(x, k, p), IMAGE, floats(3, 3, 4, 1), floats(1, 1, 4, 3)),
    "cholesky": (ops.cholesky, DEFINITE), "cholesky_inverse": (ops.cholesky_inverse, np.linalg.cholesky(DEFINITE)),
    "logdet": (ops.logdet, DEFINITE), "eigh": (lambda x: ops.abs(ops.eigh(x)[0]), DEFINITE),
    "eig": (lambda x: ops.sort(ops.abs(ops.eig(x)[0])), DEFINITE), "svd": (lambda x: ops.svd(x)[1], SQUARE), "qr": (lambda x: ops.abs(ops.qr(x)[1]), SQUARE),
    "solve": (ops.solve, DEFINITE, SQUARE), "solve_triangular": (lambda a, b: ops.solve_triangular(a, b, lower=True), DEFINITE, SQUARE),
    "ctc_loss": (lambda t, o, n, m: ops.ctc_loss(t, o, n, m), ints(2, 3, below=3) + 1, floats(2, 6, 5), np.array([3, 2], np.int32), np.array([6, 5], np.int32)),
    "ctc_decode": (lambda x, n: ops.ctc_decode(x, n, strategy="greedy"), floats(2, 6, 5), np.array([6, 5], np.int32)),
    "dot_product_attention": (ops.dot_product_attention, floats(2, 3, 2, 4), floats(2, 5, 2, 4), floats(5, 2, 2, 4).transpose(1, 0, 2, 3).copy()),
    "einsum": (lambda x, y: ops.einsum("ij,kj->ik", x, y), X, Y), "extract_sequences": (lambda x: ops.extract_sequences(x, 4, 2), floats(2, 10)),
    "fft": (ops.fft, (X, Y)), "fft2": (ops.fft2, (X, Y)), "ifft2": (ops.ifft2, (X, Y)), "irfft": (lambda x, y: ops.irfft((x, y)), floats(2, 5), floats(5, 2).T.copy()),
    "stft": (lambda x: ops.stft(x, 8, 4, 8), floats(2, 32)), "rfft": (ops.rfft, X),
    "istft": (lambda x, y: ops.istft((x, y), 8, 4, 8), floats(2, 7, 5), floats(7, 2, 5).transpose(1, 0, 2).copy()),
    "in_top_k": (lambda t, p: ops.in_top_k(t, p, 2), ints(3, below=4), X), "top_k": (lambda x: ops.top_k(x, 2), X),
    "image": None, "moveaxis": (lambda x: ops.moveaxis(x, 0, 2), SQUARE), "transpose": (ops.transpose, SQUARE),
    "one_hot": (lambda x: ops.one_hot(x, 7), WHOLE), "multi_hot": (lambda x: ops.multi_hot(x, 7), WHOLE), "unravel_index": (lambda x: ops.unravel_index(x, (3, 4)), WHOLE),
    "scatter": (lambda i, v: ops.scatter(i, v, (5,)), np.array([[0], [3], [0]], np.int32), VECTOR[:3]),
    "scatter_update": (lambda x, v: ops.scatter_update(x, [[0], [2]], v), VECTOR, VECTOR[:2]),
    "slice": (lambda x: ops.slice(x, (1, 1), (2, 2)), X), "slice_update": (lambda x, u: ops.slice_update(x, (1, 1), u), X, Y[:2, :2]),
    "searchsorted": (ops.searchsorted, SORTED, VECTOR), "digitize": (lambda x: ops.digitize(x, [-1.0, 0.0, 1.0]), X), "histogram": (ops.histogram, VECTOR),
    "take": (lambda x: ops.take(x, [1, 0, -1], axis=1), X), "take_along_axis": (lambda x, i: ops.take_along_axis(x, i, 1), X, WHOLE % 4),
    "tile": (lambda x: ops.tile(x, (2, 1)), X), "repeat": (lambda x: ops.repeat(x, 2, 1), X), "roll": (lambda x: ops.roll(x, 1, 1), X), "pad": (lambda x: ops.pad(x, [[1, 1], [0, 2]]), X),
    "reshape": (lambda x: ops.reshape(x, (-1, 2)), X), "rearrange": (lambda x: ops.rearrange(x, "a b -> b a"), X), "where": (ops.where, FLAGS, X, Y),
    "select": (lambda c, x, y: ops.select([c], [x], y), FLAGS, X, Y), "split": (lambda x: ops.split(x, 2, 1), X), "array_split": (lambda x: ops.array_split(x, 3, 1), X),
    "space_to_depth": (lambda x: ops.space_to_depth(x, 2), floats(2, 4, 4, 3)), "depth_to_space": (lambda x: ops.depth_to_space(x, 2), IMAGE), "unfold": (lambda x: ops.unfold(x, 2), IMAGE),
    "tensordot": (lambda x, y: ops.tensordot(x, y, 1), X, Y.T.copy()), "vander": (ops.vander, VECTOR), "cross": (ops.cross, floats(2, 3), floats(3, 2).T.copy()),
    "correlate": (ops.correlate, VECTOR, VECTOR[:3].copy()), "quantile": (lambda x: ops.quantile(x, 0.3), X), "percentile": (lambda x: ops.percentile(x, 30), X),
    "nanquantile": (lambda x: ops.nanquantile(x, 0.3), X), "nanpercentile": (lambda x: ops.nanpercentile(x, 30), X), "matmul": (ops.matmul, X, Y.T.copy()),
    "inner": (ops.inner, X, Y), "dot": (ops.dot, X, Y.T.copy()), "moments": (lambda x: ops.moments(x, 0), X), "erfinv": (ops.erfinv, UNIT), "arctanh": (ops.arctanh, UNIT),
    "rms_normalization": (ops.rms_normalization, X), "multiply": (ops.multiply, X, Y), "bincount": (lambda x: ops.bincount(x, minlength=8), WHOLE.reshape(-1)),
    "cast": (lambda x: ops.cast(x, "int32"), X), "saturate_cast": (lambda x: ops.saturate_cast(x * 100, "uint8"), X), "view": (lambda x: ops.view(x, "int32"), X),
    "view_as_complex": (lambda x: ops.real(ops.view_as_complex(x)), floats(3, 2)), "view_as_real": (lambda x, y: ops.view_as_real(x + 0 * y), X, Y),
    "segment_sum": (lambda x: ops.segment_sum(x, np.array([0, 0, 1], np.int32), 3), X), "segment_max": (lambda x: ops.segment_max(x, np.array([0, 0, 1], np.int32), 2), X),
    "segment_min": (lambda x: ops.segment_min(x, np.array([0, 0, 1], np.int32), 2), X), "segment_prod": (lambda x: ops.segment_prod(x, np.array([0, 0, 1], np.int32), 2), X),
    "threshold": (lambda x: ops.threshold(x, 0.1, 2.0), X), "polar": (lambda x, y: ops.real(ops.polar(x, y)), POSITIVE, Y), "unique": (lambda x: ops.unique(x), WHOLE.reshape(-1)),
    "binary_crossentropy": (ops.binary_crossentropy, FLAGS.astype(np.float32), UNIT), "categorical_crossentropy": (ops.categorical_crossentropy, UNIT, UNIT[::-1].copy()),
    "sparse_categorical_crossentropy": (ops.sparse_categorical_crossentropy, ints(3, below=4), UNIT), "power": (ops.power, POSITIVE, Y),
    "broadcast_to": (lambda x: ops.broadcast_to(x, (2, 3, 4)), X), "normalize": (ops.normalize, X), "argpartition": (lambda x: ops.sort(ops.argpartition(x, 2)[..., :2]), X),
    "lstsq": (ops.lstsq, floats(4, 3), floats(4)), "lu_factor": (lambda x: ops.lu_factor(x)[0], DEFINITE[0].copy()),
    "hypot": (ops.hypot, X, Y), "clip": (lambda x: ops.clip(x, -0.5, 0.5), X), "expand_dims": (lambda x: ops.expand_dims(x, 1), X),
    "swapaxes": (lambda x: ops.swapaxes(x, 0, 1), X), "psnr": (lambda x, y: ops.psnr(x, y, 4.0), X, Y), "dsplit": (lambda x: ops.dsplit(x, 3), SQUARE),
    "hsplit": (lambda x: ops.hsplit(x, 2), X), "vsplit": (lambda x: ops.vsplit(x, 3), X), **{name: (lambda x, y, name=name: getattr(ops, name)([x, y]), X, Y) for name in ("dstack", "hstack", "stack", "vstack")},
    "det": (ops.det, SQUARE), "inv": (ops.inv, DEFINITE), "pinv": (ops.pinv, floats(4, 3)),
}

# Tried in this order, until one is taken.
TRIED = [[X], [X, Y], [WHOLE], [WHOLE, OTHER], [FLAGS], [FLAGS, ~FLAGS.T.reshape(3, 4)], [SQUARE], [VECTOR], [[X, Y]]]
CONSTANT = {
    "blackman": (5,), "hamming": (5,), "hanning": (5,), "kaiser": (5, 4.0), "eye": (3,), "identity": (3,), "tri": (3,), "full": ((2, 3), 7.0), "ones": ((2, 3),),
    "zeros": ((2, 3),), "linspace": (0.0, 1.0, 5), "logspace": (0.0, 1.0, 5), "geomspace": (1.0, 8.0, 4),
}


def function_of(name):
    """The function with its arguments: `(function, arrays)`. None where none are found."""
    if name in CONSTANT:
        return lambda x: getattr(ops, name)(*CONSTANT[name]) + x, [np.zeros([1], np.float32)]
    given = ARGUMENTS.get(name)
    if callable(given):
        return given, [X]
    if given:
        return given[0], list(given[1:])
    function = getattr(ops, name)
    for arrays in TRIED:
        try:
            result = function(*arrays)
            if result is not None:
                return function, arrays
        except Exception:
            continue
    return None


def operations():
    """Name: function and arrays."""
    names = [name for name in dir(ops) if not name.startswith("_") and name not in WITHOUT and ARGUMENTS.get(name, 0) is not None]
    return {name: function_of(name) for name in names if inspect.isfunction(getattr(ops, name)) or name in ARGUMENTS}


def loss_functions():
    """Name: function of targets and predictions, and arrays."""
    found = {}
    classes, predicted = ints(3, below=4), UNIT
    special = {
        "SparseCategoricalCrossentropy": (classes, predicted), "CategoricalGeneralizedCrossEntropy": (classes, predicted), "Circle": (classes, X),
        "CTC": (ints(2, 3, below=3) + 1, floats(2, 6, 5)), "BinaryCrossentropy": (FLAGS.astype(np.float32), predicted),
        "BinaryFocalCrossentropy": (FLAGS.astype(np.float32), predicted), "Tversky": (FLAGS.astype(np.float32), predicted), "Dice": (FLAGS.astype(np.float32), predicted),
    }
    for name, value in sorted(inspect.getmembers(losses, inspect.isclass)):
        if name != "Loss":
            found[name] = value(), list(special.get(name, (POSITIVE, UNIT)))
    return found
