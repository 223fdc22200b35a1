"""TensorFlow 1's `tf.layers`, as functions: variables under the layer's name, and what is computed with them."""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Union

from . import _array, _control, _math, nn
from ._graph import Operation, Tensor, add_to_collection
from ._initializers import Ones, Zeros
from ._missing import missing, refuse
from ._op import convert_to_tensor
from ._variables import assign_sub, get_variable, variable_scope

Training = Union[bool, Tensor]


def _weights(name: str, shape: List[int], like: Tensor, initializer: Any, regularizer: Any, constraint: Any, trainable: bool) -> Any:
    refuse("layers", constraint=constraint)
    return get_variable(name, shape, like.dtype.base_dtype, initializer, regularizer, trainable)


def _size(inputs: Tensor, axis: int, layer: str) -> int:
    size = inputs.shape.as_list()[axis] if inputs.shape.ndims is not None else None
    if size is None:
        raise ValueError(f"The size of axis {axis} of the inputs to `{layer}` should be defined. Found `None`.")
    return int(size)


def _activated(made: Tensor, activation: Optional[Callable[..., Any]]) -> Tensor:
    return made if activation is None else activation(made)


def dense(
    inputs: Any,
    units: int,
    activation: Optional[Callable[..., Any]] = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: Optional[str] = None,
    reuse: Any = None,
) -> Tensor:
    """`activation(inputs @ kernel + bias)` over the last axis."""
    refuse("layers.dense", activity_regularizer=activity_regularizer)
    inputs = convert_to_tensor(inputs)
    with variable_scope(name, "dense", [inputs], reuse=reuse):
        shape = [_size(inputs, -1, "dense"), units]
        kernel = _weights("kernel", shape, inputs, kernel_initializer, kernel_regularizer, kernel_constraint, trainable)
        bias = None
        if use_bias:
            bias = _weights("bias", [units], inputs, bias_initializer or Zeros(), bias_regularizer, bias_constraint, trainable)
        if inputs.shape.ndims == 2:
            made = _math.matmul(inputs, kernel)
        else:
            around: List[Any] = inputs.shape.as_list()[:-1]
            if around.count(None) > 1:
                raise NotImplementedError("plimsoll.compat.v1.layers.dense: inputs with several open sizes")
            flat = _math.matmul(_array.reshape(inputs, [-1, shape[0]]), kernel)
            made = _array.reshape(flat, [-1 if size is None else size for size in around] + [units])
        return _activated(made if bias is None else nn.bias_add(made, bias), activation)


def conv2d(
    inputs: Any,
    filters: int,
    kernel_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str = "channels_last",
    dilation_rate: Any = (1, 1),
    activation: Optional[Callable[..., Any]] = None,
    use_bias: bool = True,
    kernel_initializer: Any = None,
    bias_initializer: Any = None,
    kernel_regularizer: Any = None,
    bias_regularizer: Any = None,
    activity_regularizer: Any = None,
    kernel_constraint: Any = None,
    bias_constraint: Any = None,
    trainable: bool = True,
    name: Optional[str] = None,
    reuse: Any = None,
) -> Tensor:
    """A convolution of pictures, and a bias for each of its filters."""
    refuse("layers.conv2d", activity_regularizer=activity_regularizer)
    inputs = convert_to_tensor(inputs)
    form = _format(data_format)
    with variable_scope(name, "conv2d", [inputs], reuse=reuse):
        shape = [*_pair(kernel_size), _size(inputs, 3 if form == "NHWC" else 1, "conv2d"), filters]
        kernel = _weights("kernel", shape, inputs, kernel_initializer, kernel_regularizer, kernel_constraint, trainable)
        made = nn.conv2d(
            inputs, kernel, _along(strides, form), padding.upper(), data_format=form, dilations=_along(dilation_rate, form), name="Conv2D"
        )
        if use_bias:
            bias = _weights("bias", [filters], inputs, bias_initializer or Zeros(), bias_regularizer, bias_constraint, trainable)
            made = nn.bias_add(made, bias, data_format=form, name="BiasAdd")
        return _activated(made, activation)


def _format(data_format: str) -> str:
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"The `data_format` argument must be one of 'channels_first', 'channels_last'. Received: {data_format}")
    return "NHWC" if data_format == "channels_last" else "NCHW"


def _pair(value: Any) -> List[int]:
    return [int(each) for each in value] if isinstance(value, (list, tuple)) else [int(value)] * 2


def _along(value: Any, form: str) -> List[int]:
    height, width = _pair(value)
    return [1, height, width, 1] if form == "NHWC" else [1, 1, height, width]


def max_pooling2d(
    inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: Optional[str] = None
) -> Tensor:
    """The greatest elements of windows of pictures."""
    form = _format(data_format)
    return nn.max_pool(inputs, _along(pool_size, form), _along(strides, form), padding.upper(), form, name or "max_pooling2d/MaxPool")


def average_pooling2d(
    inputs: Any, pool_size: Any, strides: Any, padding: str = "valid", data_format: str = "channels_last", name: Optional[str] = None
) -> Tensor:
    """The mean elements of windows of pictures."""
    form = _format(data_format)
    return nn.avg_pool(inputs, _along(pool_size, form), _along(strides, form), padding.upper(), form, name or "average_pooling2d/AvgPool")


def flatten(inputs: Any, name: Optional[str] = None, data_format: str = "channels_last") -> Tensor:
    """All axes but the first as one."""
    refuse("layers.flatten", data_format=None if data_format == "channels_last" else data_format)
    inputs = convert_to_tensor(inputs)
    sizes = inputs.shape.as_list()[1:]
    rest = -1 if None in sizes else math.prod(sizes)
    if rest == -1 and inputs.shape.as_list()[0] is None:
        raise NotImplementedError("plimsoll.compat.v1.layers.flatten: inputs with several open sizes")
    first = inputs.shape.as_list()[0]
    return _array.reshape(inputs, [-1 if first is None or rest != -1 else first, rest], name=name or "flatten/Reshape")


def dropout(
    inputs: Any, rate: Any = 0.5, noise_shape: Any = None, seed: Optional[int] = None, training: Training = False, name: Optional[str] = None
) -> Tensor:
    """In training some elements become 0, and the others greater by as much."""
    inputs = convert_to_tensor(inputs)

    def dropped() -> Tensor:
        return nn.dropout(inputs, rate=rate, noise_shape=noise_shape, seed=seed)

    return _where(training, dropped, lambda: _array.identity(inputs), name or "dropout")


def _where(training: Training, yes: Callable[[], Any], no: Callable[[], Any], name: str) -> Any:
    if isinstance(training, Tensor):
        return _control.cond(training, yes, no, name=name)
    from ._graph import name_scope

    with name_scope(name):
        return yes() if training else no()


def batch_normalization(
    inputs: Any,
    axis: int = -1,
    momentum: float = 0.99,
    epsilon: float = 1e-3,
    center: bool = True,
    scale: bool = True,
    beta_initializer: Any = None,
    gamma_initializer: Any = None,
    moving_mean_initializer: Any = None,
    moving_variance_initializer: Any = None,
    training: Training = False,
    trainable: bool = True,
    name: Optional[str] = None,
    reuse: Any = None,
    **options: Any,
) -> Tensor:
    """Batch normalisation over one axis. In training the moving averages are updated by nodes of the collection `update_ops`."""
    refuse("layers.batch_normalization", **options)
    inputs = convert_to_tensor(inputs)
    rank = inputs.shape.ndims
    if rank is None or axis not in (-1, rank - 1):
        raise NotImplementedError(f"plimsoll.compat.v1.layers.batch_normalization: axis={axis} of inputs of shape {inputs.shape}")
    with variable_scope(name, "batch_normalization", [inputs], reuse=reuse):
        shape = [_size(inputs, -1, "batch_normalization")]
        parts: Dict[str, Any] = {"gamma": None, "beta": None}
        if scale:
            parts["gamma"] = _weights("gamma", shape, inputs, gamma_initializer or Ones(), None, None, trainable)
        if center:
            parts["beta"] = _weights("beta", shape, inputs, beta_initializer or Zeros(), None, None, trainable)
        mean = _weights("moving_mean", shape, inputs, moving_mean_initializer or Zeros(), None, None, False)
        variance = _weights("moving_variance", shape, inputs, moving_variance_initializer or Ones(), None, None, False)
        of_batch = nn.moments(inputs, list(range(rank - 1)))
        used = _where(
            training, lambda: tuple(map(_array.identity, of_batch)), lambda: (_array.identity(mean), _array.identity(variance)), "moments_used"
        )
        if training is not False:
            for moving, now in zip((mean, variance), of_batch):
                add_to_collection("update_ops", _update(moving, now, momentum, training))
        return nn.batch_normalization(inputs, used[0], used[1], parts["beta"], parts["gamma"], epsilon)


def _update(moving: Any, now: Tensor, momentum: float, training: Training) -> Operation:
    """A node that takes the average on, in training."""
    share = 1.0 - momentum
    step = (moving.value() - now) * share
    if isinstance(training, Tensor):
        step = step * _math.cast(training, step.dtype)
    made = assign_sub(moving, step)
    op: Operation = getattr(made, "op", made)
    return op


__getattr__ = missing("plimsoll.compat.v1.layers")
