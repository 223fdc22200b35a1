"""Devices: which are used, how they are divided, how much memory they have. TensorFlow's `tf.config`.

Sessions without options of devices (`config`, `limits`, `sim_gpus` and their kin) share the devices that are set up here. They are opened by
the first of these sessions, `list_logical_devices` or `get_memory_info`; most settings cannot be changed from then on (RuntimeError). Sizes are in
MiB where TensorFlow's are.
"""

from __future__ import annotations

from typing import List, NamedTuple, Optional, Sequence, Union

from . import _context
from ._context import checked as _checked

__all__ = [
    "LogicalDevice",
    "LogicalDeviceConfiguration",
    "PhysicalDevice",
    "experimental",
    "get_logical_device_configuration",
    "get_soft_device_placement",
    "get_visible_devices",
    "list_logical_devices",
    "list_physical_devices",
    "set_logical_device_configuration",
    "set_soft_device_placement",
    "set_visible_devices",
    "threading",
]


class PhysicalDevice(NamedTuple):
    """A processor or a card: "/physical_device:GPU:0", "GPU"."""

    name: str
    device_type: str


class LogicalDevice(NamedTuple):
    """A device that nodes are placed on: "/device:GPU:0", "GPU"."""

    name: str
    device_type: str


class LogicalDeviceConfiguration(NamedTuple):
    """A part of a physical device. `memory_limit` is in MiB: needed for GPUs, not allowed for CPUs."""

    memory_limit: Optional[float] = None
    experimental_priority: Optional[int] = None
    experimental_device_ordinal: Optional[int] = None


def _physical(names: Sequence[str], device_type: Optional[str]) -> List[PhysicalDevice]:
    devices = [PhysicalDevice(name, name.split(":")[1]) for name in names]
    return [device for device in devices if device_type is None or device.device_type == device_type]


def _name(device: object) -> str:
    if not isinstance(device, PhysicalDevice):
        raise ValueError(f"Unrecognized device: {device!r}")
    return device.name


def list_physical_devices(device_type: Optional[str] = None) -> List[PhysicalDevice]:
    """The processor and the cards that this process sees; opens none of them."""
    return _physical(_context.settings().physical_devices(), device_type)


@_checked
def list_logical_devices(device_type: Optional[str] = None) -> List[LogicalDevice]:
    """The devices that nodes are placed on. They are opened, and hardly anything can be set from then on."""
    devices = [(name.partition("/device:")[2], kind) for name, kind, _ in _context.settings().open().names()]
    return [LogicalDevice(f"/device:{name}", kind) for name, kind in devices if device_type is None or kind == device_type]


def get_visible_devices(device_type: Optional[str] = None) -> List[PhysicalDevice]:
    """The physical devices that are used."""
    return _physical(_context.settings().visible_devices(), device_type)


@_checked
def set_visible_devices(devices: Union[PhysicalDevice, Sequence[PhysicalDevice]], device_type: Optional[str] = None) -> None:
    """Uses these devices of a type and no others of it; without a type, these and no others at all.

    GPUs are numbered in physical order. ValueError for a device that is not there or of another type; RuntimeError when devices
    are open.
    """
    chosen = [devices] if isinstance(devices, PhysicalDevice) else devices
    _context.settings(is_set=True).set_visible_devices([_name(device) for device in chosen], device_type)


@_checked
def get_logical_device_configuration(device: PhysicalDevice) -> Optional[List[LogicalDeviceConfiguration]]:
    """How a physical device is divided; None where that was not set."""
    parts = _context.settings().logical_device_configuration(_name(device))
    return None if parts is None else [LogicalDeviceConfiguration(*part) for part in parts]


@_checked
def set_logical_device_configuration(device: PhysicalDevice, logical_devices: Sequence[LogicalDeviceConfiguration]) -> None:
    """Divides a physical device: each part of a GPU has its own line.

    ValueError for a device that is not there, a part of a GPU without a limit, a part of a CPU with one; RuntimeError when devices
    are open. As in TensorFlow, dividing any device ends the growth of all GPUs.
    """
    _context.settings(is_set=True).set_logical_device_configuration(
        _name(device), [(part[0], part[1], part[2]) for part in logical_devices]
    )


def get_soft_device_placement() -> bool:
    """Whether a node may go elsewhere than it asks, where its device cannot compute it or is not there."""
    return _context.settings().soft_placement()


def set_soft_device_placement(enabled: bool) -> None:
    """Turns soft placement on or off for sessions that are opened from now on; at any time."""
    _context.settings(is_set=True).set_soft_placement(bool(enabled))


from . import experimental, threading  # noqa: E402
