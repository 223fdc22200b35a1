"""Device names, and functions that choose them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Union

if TYPE_CHECKING:
    from ._graph import Operation


class DeviceSpec:
    """A device, as far as it is said: `/job:worker/replica:0/task:1/device:GPU:0`."""

    def __init__(
        self,
        job: Optional[str] = None,
        replica: Optional[int] = None,
        task: Optional[int] = None,
        device_type: Optional[str] = None,
        device_index: Optional[int] = None,
    ) -> None:
        self.job, self.replica, self.task = job, replica, task
        self.device_type = device_type.upper() if device_type in ("cpu", "gpu") else device_type
        self.device_index = device_index

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        return cls().parse_from_string(spec)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Takes the parts that a text names. ValueError for a text that is no device."""
        for part in filter(None, spec.split("/")):
            key, *rest = part.split(":")
            value = rest[0] if rest else ""
            try:
                if key == "job" and len(rest) == 1:
                    self.job = value
                elif key in ("replica", "task") and len(rest) == 1:
                    setattr(self, key, int(value))
                elif key in ("cpu", "gpu", "CPU", "GPU") and len(rest) <= 1:
                    self.device_type, self.device_index = key.upper(), None if value in ("", "*") else int(value)
                elif key == "device" and len(rest) in (1, 2):
                    self.device_type = value.upper() if value in ("cpu", "gpu") else None if value == "*" else value
                    self.device_index = None if len(rest) == 1 or rest[1] == "*" else int(rest[1])
                else:
                    raise ValueError
            except ValueError:
                raise ValueError(f"Unknown attribute '{part}' is encountered while parsing the device spec: '{spec}'.") from None
        return self

    def merge_from(self, other: DeviceSpec) -> None:
        """Takes the parts that the other one says."""
        for name in ("job", "replica", "task", "device_type", "device_index"):
            if getattr(other, name) is not None:
                setattr(self, name, getattr(other, name))

    def to_string(self) -> str:
        parts = [
            f"/{name}:{value}" for name, value in (("job", self.job), ("replica", self.replica), ("task", self.task)) if value is not None
        ]
        if self.device_type is not None:
            parts.append(f"/device:{self.device_type}:{'*' if self.device_index is None else self.device_index}")
        return "".join(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"<DeviceSpec '{self.to_string()}'>"


Device = Union[None, str, DeviceSpec, Callable[["Operation"], Any]]


def device_of(op: Operation, scopes: List[Device]) -> str:
    """The device of a node under these scopes, the outermost first. A text leaves the parts that are said inside of it; a function
    decides for all that are."""
    said = DeviceSpec()
    op._set_device("")
    for scope in reversed(scopes):
        if scope is None:
            break
        if callable(scope):
            answer: Any = scope(op)
            if answer is not None and not isinstance(answer, (str, DeviceSpec)):
                raise TypeError(f"a device function gives a name, a DeviceSpec or None, not {type(answer).__name__}")
            said = copy.copy(answer) if isinstance(answer, DeviceSpec) else DeviceSpec.from_string(answer or "")
        else:
            outer = DeviceSpec.from_string(scope if isinstance(scope, str) else scope.to_string())
            outer.merge_from(said)
            said = outer
        op._set_device(said.to_string())
    return said.to_string()
