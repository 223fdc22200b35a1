"""First values of variables, and random numbers."""

from __future__ import annotations

import math
from typing import Any, List, Optional

import numpy

from . import _array
from ._graph import Tensor, get_default_graph, name_scope
from ._op import apply_op, constant, convert_to_tensor
from ._types import DType, as_dtype


def _seeds(seed: Optional[int]) -> dict[str, int]:
    """The seeds of a random operation: the graph's, and its own or how many had none before it. Both 0: other numbers each time."""
    graph = get_default_graph()
    if graph.seed is None and seed is None:
        return {"seed": 0, "seed2": 0}
    if graph.seed is None:
        first, second = 87654321, int(seed or 0)
    else:
        first, second = graph.seed, graph._unseeded if seed is None else int(seed)
        graph._unseeded += seed is None
    # Two zeros would mean that there is no seed.
    return {"seed": 0, "seed2": 2**31 - 1} if (first, second) == (0, 0) else {"seed": first, "seed2": second}


def _scaled(
    op: str, what: str, shape: Any, first: Any, second: Any, names: tuple[str, str], dtype: Any, seed: Optional[int], name: Optional[str]
) -> Tensor:
    kind = as_dtype(dtype)
    with name_scope(name, what, [shape, first, second]) as scope:
        dims = convert_to_tensor(numpy.array(shape, numpy.int32) if not isinstance(shape, Tensor) else shape, name="shape")
        low = convert_to_tensor(first, kind, name=names[0])
        high = convert_to_tensor(second, kind, name=names[1])
        numbers = apply_op(op, shape=dims, dtype=kind, **_seeds(seed))
        if op == "RandomUniform":
            made: Tensor = apply_op("AddV2", scope, x=numbers * (high - low), y=low)
        else:
            made = apply_op("AddV2", scope, x=numbers * high, y=low)
        return made


def truncated_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: Optional[int] = None, name: Optional[str] = None
) -> Tensor:
    """Normally distributed numbers, cut at two standard deviations."""
    return _scaled("TruncatedNormal", "truncated_normal", shape, mean, stddev, ("mean", "stddev"), dtype, seed, name)


def random_normal(
    shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = "float32", seed: Optional[int] = None, name: Optional[str] = None
) -> Tensor:
    """Normally distributed numbers."""
    return _scaled("RandomStandardNormal", "random_normal", shape, mean, stddev, ("mean", "stddev"), dtype, seed, name)


def random_uniform(
    shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", seed: Optional[int] = None, name: Optional[str] = None
) -> Tensor:
    """Evenly distributed numbers from `minval` up to `maxval`, 1 for floats."""
    kind = as_dtype(dtype)
    if maxval is None:
        if kind.is_integer:
            raise ValueError(f"Must specify maxval for integer dtype {kind!r}")
        maxval = 1
    if not kind.is_integer and type(minval) is int and minval == 0 and (type(maxval) is int):
        with name_scope(name, "random_uniform", [shape]) as scope:
            dims = convert_to_tensor(numpy.array(shape, numpy.int32) if not isinstance(shape, Tensor) else shape, name="shape")
            one: Tensor = apply_op("RandomUniform", shape=dims, dtype=kind, **_seeds(seed))
            if maxval == 1:
                return one
            one = apply_op("Mul", scope, x=one, y=convert_to_tensor(maxval, kind, name="max"))
            return one
    if not kind.is_integer:
        return _scaled("RandomUniform", "random_uniform", shape, minval, maxval, ("min", "max"), kind, seed, name)
    with name_scope(name, "random_uniform", [shape, minval, maxval]) as scope:
        dims = convert_to_tensor(numpy.array(shape, numpy.int32) if not isinstance(shape, Tensor) else shape, name="shape")
        low, high = convert_to_tensor(minval, kind, name="min"), convert_to_tensor(maxval, kind, name="max")
        made: Tensor = apply_op("RandomUniformInt", scope, shape=dims, minval=low, maxval=high, **_seeds(seed))
        return made


class Initializer:
    """Makes the first value of a variable."""

    dtype: Any = "float32"

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        raise NotImplementedError

    def _kind(self, dtype: Any) -> DType:
        return as_dtype(self.dtype if dtype is None else dtype)


class Zeros(Initializer):
    """Zeros."""

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = dtype

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return _array.zeros(shape, self._kind(dtype))


class Ones(Initializer):
    """Ones."""

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = dtype

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return _array.ones(shape, self._kind(dtype))


class Constant(Initializer):
    """A value, or values."""

    def __init__(self, value: Any = 0, dtype: Any = "float32", verify_shape: bool = False) -> None:
        self.value, self.dtype, self.verify_shape = value, dtype, verify_shape

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None, verify_shape: Optional[bool] = None) -> Tensor:
        kind = self._kind(dtype)
        value = numpy.array(self.value).astype(kind.as_numpy_dtype)
        return constant(value, kind, shape, verify_shape=self.verify_shape if verify_shape is None else verify_shape)


class _Random(Initializer):
    def __init__(self, first: Any, second: Any, seed: Optional[int], dtype: Any) -> None:
        self.first, self.second, self.seed, self.dtype = first, second, seed, dtype


class TruncatedNormal(_Random):
    """Normally distributed numbers, cut at two standard deviations."""

    def __init__(self, mean: Any = 0.0, stddev: Any = 1.0, seed: Optional[int] = None, dtype: Any = "float32") -> None:
        super().__init__(mean, stddev, seed, dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return truncated_normal(shape, self.first, self.second, self._kind(dtype), self.seed)


class RandomNormal(_Random):
    """Normally distributed numbers."""

    def __init__(self, mean: Any = 0.0, stddev: Any = 1.0, seed: Optional[int] = None, dtype: Any = "float32") -> None:
        super().__init__(mean, stddev, seed, dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return random_normal(shape, self.first, self.second, self._kind(dtype), self.seed)


class RandomUniform(_Random):
    """Evenly distributed numbers."""

    def __init__(self, minval: Any = 0, maxval: Any = None, seed: Optional[int] = None, dtype: Any = "float32") -> None:
        super().__init__(minval, maxval, seed, dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        return random_uniform(shape, self.first, self.second, self._kind(dtype), self.seed)


class VarianceScaling(Initializer):
    """Random numbers whose variance goes by how many elements an element of the result sums."""

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Optional[int] = None,
        dtype: Any = "float32",
    ) -> None:
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"Invalid `mode` argument: {mode}")
        distribution = distribution.lower()
        if distribution not in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
            raise ValueError(f"Invalid `distribution` argument: {distribution}")
        self.scale, self.mode, self.distribution, self.seed, self.dtype = scale, mode, distribution, seed, dtype

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Tensor:
        kind = self._kind(dtype)
        fan_in, fan_out = _fans([int(size) for size in shape])
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        scale = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * scale)
            return random_uniform(shape, -limit, limit, kind, self.seed)
        if self.distribution == "untruncated_normal":
            return random_normal(shape, 0.0, math.sqrt(scale), kind, self.seed)
        # A standard normal distribution that is cut at two has this standard deviation.
        return truncated_normal(shape, 0.0, math.sqrt(scale) / 0.87962566103423978, kind, self.seed)


def _fans(shape: List[int]) -> tuple[float, float]:
    if len(shape) < 1:
        return 1.0, 1.0
    if len(shape) == 1:
        return float(shape[0]), float(shape[0])
    field = math.prod(shape[:-2])
    return float(shape[-2] * field), float(shape[-1] * field)


class GlorotUniform(VarianceScaling):
    """Glorot's uniform distribution."""

    def __init__(self, seed: Optional[int] = None, dtype: Any = "float32") -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)


class GlorotNormal(VarianceScaling):
    """Glorot's normal distribution."""

    def __init__(self, seed: Optional[int] = None, dtype: Any = "float32") -> None:
        super().__init__(1.0, "fan_avg", "truncated_normal", seed, dtype)


def he_normal(seed: Optional[int] = None) -> VarianceScaling:
    """He's normal distribution."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: Optional[int] = None) -> VarianceScaling:
    """He's uniform distribution."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: Optional[int] = None) -> VarianceScaling:
    """LeCun's normal distribution."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: Optional[int] = None) -> VarianceScaling:
    """LeCun's uniform distribution."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


def default(dtype: DType, name: str) -> Initializer:
    """TensorFlow's choice where none is given: Glorot's uniform distribution for floats, zeros for integers and bools."""
    if dtype.is_floating:
        return GlorotUniform()
    if dtype.is_integer or dtype.is_bool or dtype.base_dtype.name == "string":
        return Zeros()
    raise ValueError(f"An initializer for variable {name} of {dtype!r} is required")
