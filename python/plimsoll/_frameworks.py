"""The memory of PyTorch, TensorFlow and JAX on cards, by their own counts. Nothing is imported or opened here:
a framework that has not opened its cards has allocated nothing on them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Optional


class Use(NamedTuple):
    """Of a card, in bytes."""

    allocated: int
    peak: int
    reserved: Optional[int] = None
    """The most that the framework keeps of it, where it says so."""


def loaded() -> list[str]:
    """Those that are: `torch`, `tensorflow`, `jax`."""
    return [name for name in _ALL if name in sys.modules]


def cards(framework: str) -> int:
    """How many cards it has opened."""
    return int(_guarded(_ALL[framework].cards, 0))


def use(framework: str, card: int) -> Optional[Use]:
    """Its memory on a card; none where it does not say."""
    found: Optional[Use] = _guarded(lambda: _ALL[framework].use(card), None)
    return found


def begin() -> None:
    """Has peaks counted from now on, as far as a framework can."""
    for framework in loaded():
        for card in range(cards(framework)):
            _guarded(functools.partial(_ALL[framework].begin, card), None)


def current(framework: str) -> int:
    """The card that is meant where none is named."""
    return int(_guarded(_ALL[framework].current, 0))


def empty(framework: str) -> None:
    """Gives back the memory that it keeps for itself."""
    _guarded(_ALL[framework].empty, None)


def observed() -> list[dict[str, int]]:
    """The peaks, for each card: a number for each call that says one."""
    out: list[dict[str, int]] = []
    for framework in loaded():
        for card in range(cards(framework)):
            seen = use(framework, card)
            if seen is None:
                continue
            while len(out) <= card:
                out.append({})
            peak, reserved = _ALL[framework].names
            out[card][peak] = seen.peak
            if reserved and seen.reserved is not None:
                out[card][reserved] = seen.reserved
    return out


def _guarded(ask: Callable[[], Any], otherwise: Any) -> Any:
    """Frameworks raise many things where they have no card."""
    try:
        return ask()
    except Exception:
        return otherwise


class _PyTorch:
    names = ("torch.cuda.max_memory_allocated", "torch.cuda.max_memory_reserved")

    @staticmethod
    def _cuda() -> Any:
        return sys.modules["torch"].cuda

    @classmethod
    def cards(cls) -> int:
        return int(cls._cuda().device_count()) if cls._cuda().is_initialized() else 0

    @classmethod
    def current(cls) -> int:
        return int(cls._cuda().current_device()) if cls.cards() else 0

    @classmethod
    def use(cls, card: int) -> Use:
        cuda = cls._cuda()
        return Use(int(cuda.memory_allocated(card)), int(cuda.max_memory_allocated(card)), int(cuda.max_memory_reserved(card)))

    @classmethod
    def begin(cls, card: int) -> None:
        cls._cuda().reset_peak_memory_stats(card)

    @classmethod
    def empty(cls) -> None:
        if cls.cards():
            cls._cuda().empty_cache()


class _TensorFlow:
    names = ("tensorflow.config.experimental.get_memory_info", "")

    @staticmethod
    def _experimental() -> Any:
        return sys.modules["tensorflow"].config.experimental

    @staticmethod
    def _logical() -> dict[int, range]:
        """The logical devices of each card that it has opened."""
        module: Any = sys.modules.get("tensorflow.python.eager.context")
        context = module.context_safe() if module is not None else None
        if context is None or not context._initialized:
            return {}
        out, begin = {}, 0
        for card in context.get_visible_devices("GPU"):
            count = len(context.get_logical_device_configuration(card) or [None])
            out[int(card.name.rpartition(":")[2])] = range(begin, begin + count)
            begin += count
        return out

    @classmethod
    def cards(cls) -> int:
        return max(cls._logical(), default=-1) + 1

    @classmethod
    def current(cls) -> int:
        return min(cls._logical(), default=0)

    @classmethod
    def use(cls, card: int) -> Optional[Use]:
        said = [cls._experimental().get_memory_info(f"GPU:{number}") for number in cls._logical().get(card, ())]
        return Use(sum(int(one["current"]) for one in said), sum(int(one["peak"]) for one in said)) if said else None

    @classmethod
    def begin(cls, card: int) -> None:
        for number in cls._logical().get(card, ()):
            cls._experimental().reset_memory_stats(f"GPU:{number}")

    @staticmethod
    def empty() -> None:
        """It has no way to."""


class _Jax:
    names = ("jax.Device.memory_stats", "")

    @staticmethod
    def _devices() -> list[Any]:
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        if bridge is None or not bridge.backends_are_initialized():
            return []
        return [device for device in sys.modules["jax"].local_devices() if device.platform in ("gpu", "cuda", "rocm")]

    @classmethod
    def cards(cls) -> int:
        return len(cls._devices())

    @staticmethod
    def current() -> int:
        return 0

    @classmethod
    def use(cls, card: int) -> Optional[Use]:
        said = cls._devices()[card].memory_stats()
        return None if not said else Use(int(said["bytes_in_use"]), int(said["peak_bytes_in_use"]))

    @staticmethod
    def begin(card: int) -> None:
        """Its peak is that of the process."""

    @staticmethod
    def empty() -> None:
        """It has no way to."""


_ALL: dict[str, Any] = {"torch": _PyTorch, "tensorflow": _TensorFlow, "jax": _Jax}
