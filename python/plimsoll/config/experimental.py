"""Growth, memory in use, and details of devices. TensorFlow's `tf.config.experimental`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from . import (
    LogicalDeviceConfiguration,
    PhysicalDevice,
    _context,
    _name,
    get_logical_device_configuration,
    get_visible_devices,
    list_logical_devices,
    list_physical_devices,
    set_logical_device_configuration,
    set_visible_devices,
)
from ._context import checked as _checked

__all__ = [
    "VirtualDeviceConfiguration",
    "enable_tensor_float_32_execution",
    "get_device_details",
    "get_memory_growth",
    "get_memory_info",
    "get_memory_usage",
    "get_virtual_device_configuration",
    "get_visible_devices",
    "list_logical_devices",
    "list_physical_devices",
    "reset_memory_stats",
    "set_memory_growth",
    "set_virtual_device_configuration",
    "set_visible_devices",
    "tensor_float_32_execution_enabled",
]

VirtualDeviceConfiguration = LogicalDeviceConfiguration
get_virtual_device_configuration = get_logical_device_configuration
set_virtual_device_configuration = set_logical_device_configuration


@_checked
def get_memory_growth(device: PhysicalDevice) -> Optional[bool]:
    """Whether a card's memory is taken as it is needed; None where that was not set."""
    return _context.settings().memory_growth(_name(device))


@_checked
def set_memory_growth(device: PhysicalDevice, enable: bool) -> None:
    """Whether a card's memory is taken as it is needed. All visible cards must have the same value when they are opened.

    ValueError for a device that is no GPU, is not there, or is divided; RuntimeError when devices are open.
    """
    _context.settings(is_set=True).set_memory_growth(_name(device), bool(enable))


def tensor_float_32_execution_enabled() -> bool:
    """Whether cards may round floats to TF32 in products and convolutions. Unlike in TensorFlow, they may not unless they are told so."""
    return _context.settings().tensor_float_32()


@_checked
def enable_tensor_float_32_execution(enabled: bool) -> None:
    """Whether cards may round floats to TF32 in products and convolutions, which their tensor cores multiply several times as fast.

    RuntimeError for a change when devices are open: plans name the engines that were chosen for them.
    """
    _context.settings(is_set=True).set_tensor_float_32(bool(enabled))


@_checked
def get_memory_info(device: str) -> Dict[str, int]:
    """Bytes that sessions have of a device ("GPU:0", "/gpu:0") now, as "current", and had at most, as "peak". Opens the devices.

    ValueError for a text that is no name, names no device, or several. Unlike TensorFlow's, it counts for CPUs too.
    """
    return _context.settings().open().memory_info(device)


def get_memory_usage(device: str) -> int:
    """Bytes that sessions have of a device now: "current" of `get_memory_info`."""
    return get_memory_info(device)["current"]


@_checked
def reset_memory_stats(device: str) -> None:
    """The peak of a device becomes what is in use now. Opens the devices. ValueError as for `get_memory_info`."""
    _context.settings().open().reset_memory_stats(device)


@_checked
def get_device_details(device: PhysicalDevice) -> Dict[str, Any]:
    """The model and the compute capability of a card: {"device_name": "Tesla T4", "compute_capability": (7, 5)}; {} for a processor."""
    if not isinstance(device, PhysicalDevice):
        raise ValueError(f"device must be a PhysicalDevice, but got: {device!r}")
    details = _context.settings().device_details(device.name)
    return {} if details is None else {"device_name": details[0], "compute_capability": details[1]}
