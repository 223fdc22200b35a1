"""Element types and shapes, as TensorFlow 1 has them."""

from __future__ import annotations

import re
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

import numpy

from ... import _native

_NAMES = {"float": "float32", "double": "float64", "half": "float16"}
_OF_NUMPY = {"string": object, "bool": numpy.bool_}


class DType:
    """An element type: `name`, `as_numpy_dtype`, `as_datatype_enum`."""

    def __init__(self, name: str, number: int, base: Optional[DType] = None) -> None:
        self.name = name
        self.as_datatype_enum = number
        self.base_dtype = base or self

    @property
    def as_numpy_dtype(self) -> Any:
        """NumPy's type; TypeError where it has none."""
        name = self.base_dtype.name
        if name in _OF_NUMPY:
            return _OF_NUMPY[name]
        if name == "bfloat16" or name.startswith(("float8", "int4", "uint4", "int2", "uint2")):
            import ml_dtypes  # type: ignore[import-not-found,unused-ignore]

            return getattr(ml_dtypes, name)
        found = getattr(numpy, name, None)
        if found is None:
            raise TypeError(f"NumPy has no type for {name}")
        return found

    @property
    def is_floating(self) -> bool:
        return re.match(r"b?float", self.base_dtype.name) is not None

    @property
    def is_integer(self) -> bool:
        return re.match(r"u?int", self.base_dtype.name) is not None

    @property
    def is_complex(self) -> bool:
        return self.base_dtype.name.startswith("complex")

    @property
    def is_bool(self) -> bool:
        return self.base_dtype.name == "bool"

    @property
    def _is_ref_dtype(self) -> bool:
        return self.base_dtype is not self

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return int(numpy.dtype(self.as_numpy_dtype).itemsize)

    def is_compatible_with(self, other: Any) -> bool:
        return self.base_dtype is as_dtype(other).base_dtype

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        try:
            return self.as_datatype_enum == as_dtype(other).as_datatype_enum
        except TypeError:
            return False

    def __hash__(self) -> int:
        return self.as_datatype_enum

    def __repr__(self) -> str:
        return f"tf.{self.name}"

    def __reduce__(self) -> Any:
        return as_dtype, (self.as_datatype_enum,)


_BY_NUMBER: Dict[int, DType] = {}
BY_NAME: Dict[str, DType] = {}
for _name, _number in _native.types():
    _known = DType(_NAMES.get(_name, _name), _number)
    _BY_NUMBER[_number] = BY_NAME[_known.name] = _known
    _BY_NUMBER[_number + 100] = DType(f"{_known.name}_ref", _number + 100, _known)
for _name, _known_as in _NAMES.items():
    BY_NAME[_name] = BY_NAME[_known_as]


def as_dtype(value: Any) -> DType:
    """The type of a wire number, a name, a NumPy type or a Python type. TypeError for anything else."""
    if isinstance(value, DType):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value in _BY_NUMBER:
        return _BY_NUMBER[value]
    if isinstance(value, str) and value in BY_NAME:
        return BY_NAME[value]
    if value is float:
        return BY_NAME["float32"]
    if value is int:
        return BY_NAME["int32"]
    if value in (str, bytes, object):
        return BY_NAME["string"]
    try:
        found = numpy.dtype(value)
    except TypeError:
        found = None
    if found is not None and (found.kind in "SUO" or found.name in BY_NAME):
        return BY_NAME["string" if found.kind in "SUO" else found.name]
    raise TypeError(f"Cannot convert value {value!r} to a TensorFlow DType.")


class Dimension:
    """A size that may be open: `value` is None then."""

    def __init__(self, value: Any) -> None:
        self.value: Optional[int] = value.value if isinstance(value, Dimension) else None if value is None else int(value)

    def __int__(self) -> int:
        if self.value is None:
            raise TypeError("an open dimension is no number")
        return self.value

    __index__ = __int__

    def __eq__(self, other: object) -> Any:
        other = other.value if isinstance(other, Dimension) else other
        return None if self.value is None or other is None else self.value == other

    def __hash__(self) -> int:
        return hash(self.value)

    def _with(self, other: Any, work: Any) -> Dimension:
        other = Dimension(other).value
        return Dimension(None if self.value is None or other is None else work(self.value, other))

    def __mul__(self, other: Any) -> Dimension:
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Dimension:
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dimension:
        return self._with(other, lambda a, b: a - b)

    def __floordiv__(self, other: Any) -> Dimension:
        return self._with(other, lambda a, b: a // b)

    def __repr__(self) -> str:
        return f"Dimension({self.value})"

    def __str__(self) -> str:
        return "?" if self.value is None else str(self.value)


Dims = Optional[Sequence[Optional[int]]]


class TensorShape:
    """A shape as far as it is known. `TensorShape(None)` has no known rank."""

    def __init__(self, dims: Any) -> None:
        self._dims: Optional[List[Optional[int]]]
        if isinstance(dims, TensorShape):
            self._dims = None if dims._dims is None else list(dims._dims)
        elif dims is None:
            self._dims = None
        elif isinstance(dims, (int, numpy.integer)):
            self._dims = [int(dims)]
        else:
            self._dims = [_size(dim) for dim in dims]

    @property
    def dims(self) -> Optional[List[Dimension]]:
        return None if self._dims is None else [Dimension(dim) for dim in self._dims]

    @property
    def ndims(self) -> Optional[int]:
        return None if self._dims is None else len(self._dims)

    rank = ndims

    def as_list(self) -> List[Optional[int]]:
        """The sizes, None for open ones. ValueError where the rank is not known."""
        if self._dims is None:
            raise ValueError("as_list() is not defined on an unknown TensorShape.")
        return list(self._dims)

    def is_fully_defined(self) -> bool:
        return self._dims is not None and None not in self._dims

    def assert_is_fully_defined(self) -> None:
        if not self.is_fully_defined():
            raise ValueError(f"Shape {self} is not fully defined")

    def num_elements(self) -> Optional[int]:
        if self._dims is None or None in self._dims:
            return None
        return int(numpy.prod([dim for dim in self._dims if dim is not None], dtype=object))

    def merge_with(self, other: Any) -> TensorShape:
        """Both shapes' knowledge. ValueError where they contradict each other."""
        other = TensorShape(other)
        if self._dims is None or other._dims is None:
            return TensorShape(other if self._dims is None else self)
        if not self.is_compatible_with(other):
            raise ValueError(f"Shapes {self} and {other} are not compatible")
        return TensorShape([a if a is not None else b for a, b in zip(self._dims, other._dims)])

    def is_compatible_with(self, other: Any) -> bool:
        other = TensorShape(other)
        if self._dims is None or other._dims is None:
            return True
        return len(self._dims) == len(other._dims) and all(a is None or b is None or a == b for a, b in zip(self._dims, other._dims))

    def with_rank(self, rank: int) -> TensorShape:
        return self.merge_with([None] * rank)

    def concatenate(self, other: Any) -> TensorShape:
        other = TensorShape(other)
        if self._dims is None or other._dims is None:
            return TensorShape(None)
        return TensorShape(self._dims + other._dims)

    def __len__(self) -> int:
        return len(self.as_list())

    def __iter__(self) -> Iterator[Dimension]:
        return iter([Dimension(dim) for dim in self.as_list()])

    def __getitem__(self, key: Union[int, slice]) -> Any:
        if isinstance(key, slice):
            return TensorShape(None if self._dims is None else self._dims[key])
        return Dimension(None if self._dims is None else self._dims[key])

    def __bool__(self) -> bool:
        return self._dims is not None

    def __eq__(self, other: object) -> bool:
        try:
            return self._dims == TensorShape(other)._dims
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(None if self._dims is None else tuple(self._dims))

    def __repr__(self) -> str:
        return f"TensorShape({None if self._dims is None else [Dimension(dim) for dim in self._dims]})"

    def __str__(self) -> str:
        if self._dims is None:
            return "<unknown>"
        inner = ", ".join("?" if dim is None else str(dim) for dim in self._dims)
        return f"({inner},)" if len(self._dims) == 1 else f"({inner})"


def _size(dim: Any) -> Optional[int]:
    size = Dimension(dim).value
    return None if size == -1 else size
