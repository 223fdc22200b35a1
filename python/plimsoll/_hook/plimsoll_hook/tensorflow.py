"""TensorFlow: a logical device with a limit on each card, and no configuration with more."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from . import limits

_MIB = 1 << 20
_MADE = "_plimsoll_made"
"""Of a context: the logical devices that are the hook's, by card."""


def before(spec: ModuleSpec) -> None:
    """Before TensorFlow is imported."""
    _hold_variables()


def _hold_variables() -> None:
    if limits.of("tensorflow") is None:
        return
    if os.environ.get("TF_GPU_ALLOCATOR", "").startswith("cuda_malloc"):
        limits.drop("TF_GPU_ALLOCATOR", "TensorFlow keeps to no limit with it")
    if limits.is_true("TF_FORCE_UNIFIED_MEMORY"):
        limits.drop("TF_FORCE_UNIFIED_MEMORY", "TensorFlow keeps to no limit with it")
    if os.environ.get("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "").isdigit():
        limits.drop("TF_DEVICE_MIN_SYS_MEMORY_IN_MB", "TensorFlow's limit is replaced by it")
    # With logical devices TensorFlow forgets the growth that a program asks for.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def after_context(module: ModuleType) -> None:
    """Of `tensorflow.python.eager.context`: what a program configures is held when it does, and what it has not configured when
    TensorFlow looks."""
    context: Any = getattr(module, "Context")
    make: Any = getattr(module, "LogicalDeviceConfiguration", None) or getattr(module, "VirtualDeviceConfiguration")
    _wrap(context, "set_logical_device_configuration", _configured)
    if hasattr(context, "set_virtual_device_configuration"):  # TensorFlow 2.0
        _wrap(context, "set_virtual_device_configuration", _configured)

    def initialized(original: Any, self: Any) -> Any:
        if not getattr(self, "_initialized", False):
            _configure(self, make)
        return original(self)

    _wrap(context, "ensure_initialized", initialized)
    _wrap(context, "set_memory_growth", _grown)
    config: Any = vars(context).get("config")
    if isinstance(config, property) and not hasattr(config.fget, "__plimsoll__"):
        setattr(context, "config", property(_holding(config.fget), config.fset, config.fdel, config.__doc__))


def after_session(module: ModuleType) -> None:
    """Of `tensorflow.python.client.session`."""

    def begun(original: Any, self: Any, target: Any = "", graph: Any = None, config: Any = None) -> Any:
        return original(self, target=target, graph=graph, config=_held_proto(module, config))

    _wrap(getattr(module, "BaseSession"), "__init__", begun)


def _wrap(owner: Any, name: str, instead: Any) -> None:
    original = getattr(owner, name)
    if hasattr(original, "__plimsoll__"):
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return instead(original, self, *args, **kwargs)

    method.__plimsoll__ = True  # type: ignore[attr-defined]
    setattr(owner, name, method)


def _number(device: Any) -> int:
    """Of `/physical_device:GPU:1`."""
    tail = str(device.name).rpartition(":")[2]
    return int(tail) if tail.isdigit() else -1


def _configured(original: Any, self: Any, dev: Any, virtual_devices: Any) -> Any:
    """A program's own configuration, held."""
    share = limits.of("tensorflow")
    if share is None or getattr(dev, "device_type", None) != "GPU" or not virtual_devices:
        return original(self, dev, virtual_devices)
    held = _fitted([device.memory_limit for device in virtual_devices], share.of(_number(dev)).bytes // _MIB)
    if held is None:
        return original(self, dev, virtual_devices)
    limits.warn(
        "the program asks TensorFlow for %s MiB of %s, which is more than the lease: it gets %s MiB"
        % ("+".join(str(device.memory_limit) for device in virtual_devices), dev.name, "+".join(str(size) for size in held))
    )
    virtual_devices = [device._replace(memory_limit=size) for device, size in zip(virtual_devices, held)]
    return original(self, dev, virtual_devices)


def _fitted(asked: Sequence[Any], limit: int) -> Optional[list[int]]:
    """Sizes in MiB that fit into a limit, in the proportions of what is asked. None where that fits, or is no size: TensorFlow refuses
    it itself. It takes a negative one for a very large one."""
    huge = float(1 << 40)
    try:
        sizes = [min(float(size), huge) if float(size) >= 0 else huge for size in asked]
    except (TypeError, ValueError):
        return None
    return None if sum(sizes) <= limit else [int(size * limit // sum(sizes)) for size in sizes]


def _configure(self: Any, make: Any) -> None:
    """Gives each card a logical device with the limit, unless the program has configured it."""
    share = limits.of("tensorflow")
    if share is None:
        return
    _hold_variables()
    try:
        # TensorFlow ends where there are logical devices beside a ConfigProto's own sizes.
        if getattr(self, "_config", None) is not None and _has_sizes(self._config.gpu_options):
            return
        for device in self.list_physical_devices("GPU"):
            if not self.get_logical_device_configuration(device):
                limit = max(share.of(_number(device)).bytes // _MIB, 1)
                made = [make(memory_limit=limit)]
                self.set_logical_device_configuration(device, made)
                vars(self).setdefault(_MADE, {})[device] = made
    except Exception as error:
        limits.warn("TensorFlow's limit cannot be set: %s: %s" % (type(error).__name__, error))


def _grown(original: Any, self: Any, dev: Any, enable: Any) -> Any:
    """Memory growth is refused on cards with logical devices. Those of the hook's do not count: a program may repeat itself."""
    found = [(card, made) for card, made in vars(self).get(_MADE, {}).items() if card == dev and self._virtual_device_map.get(card) is made]
    for card, _ in found:
        del self._virtual_device_map[card]
    try:
        return original(self, dev, enable)
    finally:
        self._virtual_device_map.update(found)


def _holding(original: Any) -> Any:
    """Of `Context.config`, which TensorFlow starts with: its sizes, wherever they are from, are held."""

    @functools.wraps(original)
    def config(self: Any) -> Any:
        made = original(self)
        share = limits.of("tensorflow")
        if share is not None:
            try:
                _hold_allocator(made.gpu_options)
                if _has_sizes(made.gpu_options):
                    _hold_sizes(made.gpu_options, share)
            except Exception as error:
                limits.warn("TensorFlow's limit cannot be set: %s: %s" % (type(error).__name__, error))
        return made

    config.__plimsoll__ = True  # type: ignore[attr-defined]
    return config


def _has_sizes(options: Any) -> bool:
    return bool(options.per_process_gpu_memory_fraction or options.experimental.virtual_devices)


def _held_proto(module: ModuleType, config: Any) -> Any:
    """A session's configuration with no more than the lease."""
    share = limits.of("tensorflow")
    if share is None:
        return config
    _hold_variables()
    try:
        if config is None:
            # As TensorFlow does it.
            given = getattr(module, "context").context().config
        elif hasattr(config, "gpu_options"):
            given = config
        else:
            return config
        held = type(given)()
        held.CopyFrom(given)
        _hold_allocator(held.gpu_options)
        _hold_sizes(held.gpu_options, share)
        return held
    except Exception as error:
        limits.warn("a session's limit cannot be set: %s: %s" % (type(error).__name__, error))
        return config


def _hold_allocator(options: Any) -> None:
    """Of a ConfigProto's `gpu_options`: without the allocators that keep to no limit."""
    more = options.experimental
    for field in ("use_unified_memory", "use_cuda_malloc_async", "gpu_system_memory_size_in_mb"):
        if getattr(more, field, None):
            setattr(more, field, type(getattr(more, field))())
            limits.warn("a session's %s is not passed on: TensorFlow keeps to no limit with it" % field)


def _hold_sizes(options: Any, share: limits.Limits) -> None:
    """Of a ConfigProto's `gpu_options`."""
    if options.experimental.virtual_devices:
        visible = [int(number) for number in options.visible_device_list.split(",") if number.strip().isdigit()]
        for number, devices in enumerate(options.experimental.virtual_devices):
            limit = share.of(visible[number] if number < len(visible) else number).bytes // _MIB
            asked = list(devices.memory_limit_mb)
            held = _fitted(asked, limit)
            if not asked:
                devices.memory_limit_mb.append(limit)
            elif held is not None:
                del devices.memory_limit_mb[:]
                devices.memory_limit_mb.extend(held)
                limits.warn("a session asks for %g MiB, which is more than the lease: it gets %d MiB" % (sum(asked), limit))
        return
    fraction = options.per_process_gpu_memory_fraction
    if not 0 < fraction <= share.fraction:
        if fraction:
            limits.warn(
                "per_process_gpu_memory_fraction=%g is more than the lease: the session gets %.4f" % (fraction, share.fraction)
            )
        options.per_process_gpu_memory_fraction = share.fraction
