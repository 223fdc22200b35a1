"""TensorFlow 1's `tf.nn`, as far as there are kernels."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import numpy

from . import _array, _initializers, _math
from ._graph import Tensor, name_scope
from ._missing import missing, refuse
from ._op import apply_op, constant, convert_to_tensor, generated

_OPERATIONS: Dict[str, Tuple[str, Dict[str, str]]] = {
    "elu": ("Elu", {}),
    "l2_loss": ("L2Loss", {}),
    "local_response_normalization": ("LRN", {}),
    "lrn": ("LRN", {}),
    "relu": ("Relu", {}),
    "relu6": ("Relu6", {}),
    "selu": ("Selu", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
}
_SHARED = ("sigmoid", "tanh", "in_top_k", "top_k")
_made: Dict[str, Callable[..., Any]] = {}
_absent = missing("plimsoll.compat.v1.nn")


def __getattr__(name: str) -> Any:
    if name in _SHARED:
        return _math.function(name)
    if name not in _OPERATIONS:
        return _absent(name)
    if name not in _made:
        op, renamed = _OPERATIONS[name]
        _made[name] = generated(op, renamed)
    return _made[name]


def l2_loss(t: Any, name: Optional[str] = None) -> Tensor:
    """Half the sum of all squares."""
    made: Tensor = apply_op("L2Loss", name, t=t)
    return made


def _window(sizes: Any, data_format: str, what: str) -> List[int]:
    if isinstance(sizes, int):
        sizes = [sizes]
    sizes = [int(size) for size in sizes]
    if len(sizes) == 4:
        return sizes
    if len(sizes) not in (1, 2):
        raise ValueError(f"{what} should be of length 1, 2 or 4 but was {len(sizes)}")
    height, width = sizes * 2 if len(sizes) == 1 else sizes
    return [1, 1, height, width] if data_format == "NCHW" else [1, height, width, 1]


def _padding(padding: Any) -> Dict[str, Any]:
    if isinstance(padding, str):
        return {"padding": padding.upper()}
    return {"padding": "EXPLICIT", "explicit_paddings": [each for pair in padding for each in pair]}


def conv2d(
    input: Any,
    filter: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str = "NHWC",
    dilations: Any = (1, 1, 1, 1),
    name: Optional[str] = None,
    filters: Any = None,
) -> Tensor:
    """A convolution of pictures with filters [height, width, in, out]."""
    made: Tensor = apply_op(
        "Conv2D",
        name,
        input=input,
        filter=filter if filters is None else filters,
        strides=_window(strides, data_format, "strides"),
        use_cudnn_on_gpu=use_cudnn_on_gpu,
        data_format=data_format,
        dilations=_window(list(dilations) if not isinstance(dilations, int) else dilations, data_format, "dilations"),
        **_padding(padding),
    )
    return made


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    rate: Any = None,
    name: Optional[str] = None,
    data_format: str = "NHWC",
    dilations: Any = None,
) -> Tensor:
    """A convolution of each channel by itself."""
    refuse("nn.depthwise_conv2d", rate=rate, dilations=dilations)
    with name_scope(name, "depthwise", [input, filter]) as scope:
        made: Tensor = apply_op(
            "DepthwiseConv2dNative", scope, input=input, filter=filter, strides=list(strides), data_format=data_format, **_padding(padding)
        )
        return made


def _pool(op: str, value: Any, ksize: Any, strides: Any, padding: Any, data_format: str, name: Optional[str]) -> Tensor:
    with name_scope(name, op, [value]) as scope:
        made: Tensor = apply_op(
            op,
            scope,
            **{"input" if op == "MaxPool" else "value": value},
            ksize=_window(ksize, data_format, "ksize"),
            strides=_window(strides, data_format, "strides"),
            data_format=data_format,
            **_padding(padding),
        )
        return made


def max_pool(
    value: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: Optional[str] = None, input: Any = None
) -> Tensor:
    """The greatest elements of windows of pictures."""
    return _pool("MaxPool", value if input is None else input, ksize, strides, padding, data_format, name)


def avg_pool(
    value: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC", name: Optional[str] = None, input: Any = None
) -> Tensor:
    """The mean elements of windows of pictures."""
    return _pool("AvgPool", value if input is None else input, ksize, strides, padding, data_format, name)


def bias_add(value: Any, bias: Any, data_format: Optional[str] = None, name: Optional[str] = None) -> Tensor:
    """A vector added to the channels."""
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        layout = "NCHW" if data_format and data_format.startswith("NC") else "NHWC"
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, value.dtype.base_dtype, name="bias")
        made: Tensor = apply_op("BiasAdd", scope, value=value, bias=bias, data_format=layout)
        return made


def leaky_relu(features: Any, alpha: float = 0.2, name: Optional[str] = None) -> Tensor:
    """`max(x, alpha * x)`."""
    with name_scope(name, "LeakyRelu", [features]) as scope:
        made: Tensor = apply_op("LeakyRelu", scope, features=features, alpha=alpha)
        return made


def _of_last_axis(op: str, logits: Any, axis: Any, dim: Any, name: Optional[str]) -> Tensor:
    logits = convert_to_tensor(logits)
    axis = dim if axis is None else axis
    rank = logits.shape.ndims
    if axis not in (None, -1) and (rank is None or axis % rank != rank - 1):
        refuse(f"nn.{op.lower()}", axis=axis)
    made: Tensor = apply_op(op, name, logits=logits)
    return made


def softmax(logits: Any, axis: Any = None, name: Optional[str] = None, dim: Any = None) -> Tensor:
    """Softmax over the last axis."""
    return _of_last_axis("Softmax", logits, axis, dim, name)


def log_softmax(logits: Any, axis: Any = None, name: Optional[str] = None, dim: Any = None) -> Tensor:
    """The logarithm of softmax over the last axis."""
    return _of_last_axis("LogSoftmax", logits, axis, dim, name)


def _named(_sentinel: Any, what: str) -> None:
    if _sentinel is not None:
        raise ValueError(f"Only call `{what}` with named arguments (labels=..., logits=..., ...)")


def sparse_softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, name: Optional[str] = None
) -> Tensor:
    """The loss of each row of logits against the number of the right class."""
    _named(_sentinel, "sparse_softmax_cross_entropy_with_logits")
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels, logits = convert_to_tensor(labels), convert_to_tensor(logits)
        sizes, static = _array.shape(labels), labels.shape
        if static.ndims is not None and logits.shape.ndims is not None and static.ndims != logits.shape.ndims - 1:
            raise ValueError(f"Rank mismatch: Rank of labels ({static.ndims}) should equal rank of logits minus 1 ({logits.shape.ndims}).")
        if logits.shape.ndims not in (None, 2):
            classes = logits.shape[-1].value or -1
            rows = _array.reshape(logits, [-1, classes])
            loss, _ = apply_op("SparseSoftmaxCrossEntropyWithLogits", name, features=rows, labels=_array.reshape(labels, [-1]))
            return _array.reshape(loss, sizes)
        loss, _ = apply_op("SparseSoftmaxCrossEntropyWithLogits", name, features=logits, labels=labels)
        made: Tensor = loss
        return made


def softmax_cross_entropy_with_logits_v2(labels: Any, logits: Any, axis: Any = None, name: Optional[str] = None, dim: Any = None) -> Tensor:
    """The loss of each row of logits against a row of probabilities."""
    axis = dim if axis is None else axis
    if axis is not None and axis != -1:
        refuse("nn.softmax_cross_entropy_with_logits_v2", axis=axis)
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, logits.dtype.base_dtype, name="labels")
        ranks = {logits.shape.ndims, labels.shape.ndims}
        if ranks <= {2}:
            loss, _ = apply_op("SoftmaxCrossEntropyWithLogits", scope, features=logits, labels=labels)
            made: Tensor = loss
            return made
        classes = logits.shape[-1].value or -1
        rows = [_array.reshape(each, [-1, classes]) for each in (logits, labels)]
        loss, _ = apply_op("SoftmaxCrossEntropyWithLogits", scope, features=rows[0], labels=rows[1])
        sizes = _array.slice_(_array.shape(logits), [0], [_array.rank(logits) - 1])
        return _array.reshape(loss, sizes)


def softmax_cross_entropy_with_logits(
    _sentinel: Any = None, labels: Any = None, logits: Any = None, dim: int = -1, name: Optional[str] = None, axis: Any = None
) -> Tensor:
    """The loss of each row of logits against a row of probabilities, through which no gradient goes."""
    _named(_sentinel, "softmax_cross_entropy_with_logits")
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        labels = _array.stop_gradient(labels, name="labels_stop_gradient")
    return softmax_cross_entropy_with_logits_v2(labels, logits, dim if axis is None else axis, name=scope)


def sigmoid_cross_entropy_with_logits(_sentinel: Any = None, labels: Any = None, logits: Any = None, name: Optional[str] = None) -> Tensor:
    """The loss of each logit against a probability."""
    _named(_sentinel, "sigmoid_cross_entropy_with_logits")
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, logits.dtype.base_dtype, name="labels")
        zeros = _array.zeros_like(logits, dtype=logits.dtype)
        positive = logits >= zeros
        relu = _array.where(positive, logits, zeros)
        shrunk = _array.where(positive, -logits, logits)
        made: Tensor = _math.add(relu - logits * labels, _math.function("log1p")(_math.function("exp")(shrunk)), name=scope)
        return made


def dropout(
    x: Any, keep_prob: Any = None, noise_shape: Any = None, seed: Optional[int] = None, name: Optional[str] = None, rate: Any = None
) -> Tensor:
    """Some elements become 0, and the others greater by as much."""
    if (keep_prob is None) == (rate is None):
        raise ValueError("You must provide one of `rate` and `keep_prob`.")
    with name_scope(name, "dropout", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        rate = 1 - keep_prob if rate is None else rate
        if not isinstance(rate, Tensor):
            if not 0 <= rate < 1:
                raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}")
            if rate == 0:
                return x
            kept = x * constant(1 / (1 - rate), x.dtype.base_dtype)
        else:
            kept = x / (1 - rate)
        shape = _array.shape(x) if noise_shape is None else noise_shape
        random = _initializers.random_uniform(shape, seed=seed, dtype=x.dtype.base_dtype)
        keep = random >= convert_to_tensor(rate, x.dtype.base_dtype)
        made: Tensor = _math.multiply(kept, _math.cast(keep, x.dtype.base_dtype), name=scope)
        return made


def zero_fraction(value: Any, name: Optional[str] = None) -> Tensor:
    """The share of elements that are 0."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        zero = constant(numpy.zeros([], value.dtype.base_dtype.as_numpy_dtype), name="zero")
        found = _math.cast(_math.function("equal")(value, zero), "float32")
        return _math.reduce_mean(found, name="fraction")


def moments(
    x: Any, axes: Any, shift: Any = None, name: Optional[str] = None, keep_dims: Any = None, keepdims: Any = None
) -> Tuple[Tensor, Tensor]:
    """Mean and variance over axes."""
    refuse("nn.moments", shift=shift)
    keep = bool(keepdims if keep_dims is None else keep_dims)
    with name_scope(name, "moments", [x, axes]):
        x = convert_to_tensor(x)
        mean = _math.reduce_mean(x, axes, keepdims=True, name="mean")
        distance = _math.function("squared_difference")(x, _array.stop_gradient(mean))
        variance = _math.reduce_mean(distance, axes, keepdims=True, name="variance")
        if keep:
            return mean, variance
        return _array.squeeze(mean, axes), _array.squeeze(variance, axes)


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float, name: Optional[str] = None
) -> Tensor:
    """`scale * (x - mean) / sqrt(variance + epsilon) + offset`."""
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        factor = _math.function("rsqrt")(convert_to_tensor(variance) + variance_epsilon)
        if scale is not None:
            factor = factor * scale
        shift = offset - mean * factor if offset is not None else -mean * factor
        return convert_to_tensor(x) * factor + shift


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: Optional[str] = None,
    exponential_avg_factor: float = 1.0,
) -> Tuple[Tensor, Tensor, Tensor]:
    """Batch normalisation of pictures: the result, and the mean and variance of the batch."""
    empty = constant(numpy.zeros([0], numpy.float32))
    made = apply_op(
        "FusedBatchNormV3",
        name,
        x=x,
        scale=scale,
        offset=offset,
        mean=empty if mean is None else mean,
        variance=empty if variance is None else variance,
        epsilon=max(epsilon, 1.001e-5),
        data_format=data_format,
        is_training=is_training,
        exponential_avg_factor=exponential_avg_factor,
    )
    return made[0], made[1], made[2]


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12, name: Optional[str] = None, dim: Any = None) -> Tensor:
    """The tensor with norm 1 along axes."""
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        total = _math.reduce_sum(_math.function("square")(x), dim if axis is None else axis, keepdims=True)
        factor = _math.function("rsqrt")(_math.function("maximum")(total, epsilon))
        return _math.multiply(x, factor, name=scope)


def embedding_lookup(params: Any, ids: Any, partition_strategy: str = "mod", name: Optional[str] = None, **options: Any) -> Tensor:
    """Rows of a table."""
    refuse("nn.embedding_lookup", **{key: value for key, value in options.items() if key != "validate_indices"})
    if isinstance(params, (list, tuple)):
        if len(params) != 1:
            refuse("nn.embedding_lookup", params=list(params))
        params = params[0]
    with name_scope(name, "embedding_lookup", [params, ids]) as scope:
        return _array.identity(_array.gather(params, ids), name=scope)


def xw_plus_b(x: Any, weights: Any, biases: Any, name: Optional[str] = None) -> Tensor:
    """`x @ weights + biases`."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        return bias_add(_math.matmul(x, weights), biases, name=scope)


def relu_layer(x: Any, weights: Any, biases: Any, name: Optional[str] = None) -> Tensor:
    """`relu(x @ weights + biases)`."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        made: Tensor = apply_op("Relu", scope, features=bias_add(_math.matmul(x, weights), biases))
        return made


def __dir__() -> List[str]:
    return sorted({*_OPERATIONS, *_SHARED, *(name for name in globals() if not name.startswith("_"))})
