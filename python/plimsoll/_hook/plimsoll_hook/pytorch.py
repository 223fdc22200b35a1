"""PyTorch: a share of each card, in the variable of its allocator where the version knows that, else by a call.

The variable counts from the first byte on, and needs no context on a card. The call makes one on each card that it names, so it waits
until the program uses a card, and is made for those cards alone that the variable does not hold.
"""

from __future__ import annotations

import functools
import mmap
import os
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Optional

from . import limits

_KEY = "per_process_memory_fraction"
_NAMES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SETTERS = ("_accelerator_setAllocatorSettings", "_cuda_cudaCachingAllocator_set_allocator_settings")


def before(spec: ModuleSpec) -> None:
    """Before PyTorch is imported: its variables."""
    share = limits.of("pytorch")
    if share is None:
        return
    limits.drop("PYTORCH_NO_CUDA_MEMORY_CACHING", "PyTorch keeps to no limit with it")
    folder = os.path.join(os.path.dirname(spec.origin or ""), "lib")
    allocators = [os.path.join(folder, name) for name in ("libc10_cuda.so", "libc10_hip.so")]
    if not any(_has(path, _KEY) for path in allocators):
        # A version ends where it does not know an option: one of ours may be there for another version.
        for name in _NAMES:
            if name in os.environ:
                os.environ[name] = _without(os.environ[name])
        return
    names = [name for name in _NAMES if os.environ.get(name)]
    for name in names:
        os.environ[name] = _held(os.environ[name], share.fraction, name)
    if not names:
        name = _NAMES[0] if _has(os.path.join(folder, "libc10.so"), _NAMES[0]) else _NAMES[1]
        os.environ[name] = "%s:%.4f" % (_KEY, share.fraction)


def after(module: ModuleType) -> None:
    """When it is imported: the calls by which a program sets a share itself, and one of ours for when it first uses a card."""
    low: Any = getattr(module, "_C", None)
    if not hasattr(low, "_cuda_setMemoryFraction"):
        return  # built without CUDA
    _wrap(low, "_cuda_setMemoryFraction", _asked)
    for name in _SETTERS:
        if hasattr(low, name):
            _wrap(low, name, _set)
    _wrap(low, "_cuda_setDevice", functools.partial(_moved, low))
    cuda: Any = getattr(module, "cuda")
    cuda._lazy_call(functools.partial(_begun, low))


def _wrap(owner: Any, name: str, instead: Any) -> None:
    original = getattr(owner, name, None)
    if original is None or hasattr(original, "__plimsoll__"):
        return

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        return instead(original, *args, **kwargs)

    function.__plimsoll__ = original  # type: ignore[attr-defined]
    setattr(owner, name, function)


def _asked(original: Any, *args: Any) -> Any:
    """A program's own share of a card."""
    share = limits.of("pytorch")
    if share is not None and len(args) == 2 and isinstance(args[0], (int, float)):
        fraction, device = args
        most = share.of(device).fraction if isinstance(device, int) else share.fraction
        if fraction > most:
            limits.warn("the program sets PyTorch's share of card %s to %g, which is more than the lease: it gets %.4f" % (device, fraction, most))
            args = (most, device)
    return original(*args)


def _set(original: Any, *args: Any) -> Any:
    """A program's own options of the allocator."""
    share = limits.of("pytorch")
    if share is not None and args and isinstance(args[0], str) and _given(args[0]) is not None:
        args = (_held(args[0], share.fraction, "the allocator's settings"), *args[1:])
    return original(*args)


def _begun(low: Any) -> None:
    """The program uses a card for the first time. Never raises: PyTorch would not start."""
    try:
        share = limits.of("pytorch")
        if share is None:
            return
        now = low._cuda_getDevice()
        cards = list(range(low._cuda_getDeviceCount()))
        if os.environ.get("LOCAL_RANK"):
            # One of several programs, each of which has a card: contexts on the others would take more than they are worth.
            cards = [now]
        # The last one stays the current card.
        cards.sort(key=lambda card: card == now)
        for card in cards:
            _hold(low, share, card)
    except Exception as error:
        limits.warn("PyTorch's share cannot be set: %s: %s" % (type(error).__name__, error))


def _moved(low: Any, original: Any, *args: Any) -> Any:
    """The program goes to a card."""
    done = original(*args)
    try:
        share = limits.of("pytorch")
        if share is not None and os.environ.get("LOCAL_RANK") and _is_begun(low):
            _hold(low, share, args[0])
    except Exception as error:
        limits.warn("PyTorch's share cannot be set: %s: %s" % (type(error).__name__, error))
    return done


def _is_begun(low: Any) -> bool:
    import sys

    torch: Any = sys.modules.get("torch")
    return bool(torch.cuda.is_initialized())


_held_cards: set[tuple[int, int]] = set()
"""Cards with their share, by process: a fork has none."""


def _hold(low: Any, share: limits.Limits, card: int) -> None:
    """Sets the share of a card, unless the variable has done so."""
    if (os.getpid(), card) in _held_cards:
        return
    _held_cards.add((os.getpid(), card))
    set_already = _in_force(low)
    wanted = share.of(card).fraction
    if set_already is not None and (abs(set_already - wanted) < 1e-9 or set_already < share.fraction):
        return  # as it should be, or the user's own that is smaller
    getattr(low._cuda_setMemoryFraction, "__plimsoll__", low._cuda_setMemoryFraction)(wanted, card)


def _in_force(low: Any) -> Optional[float]:
    """The share that the allocator took from its variable."""
    for name in ("_accelerator_getAllocatorSettings", "_cuda_cudaCachingAllocator_get_allocator_settings"):
        if hasattr(low, name):
            return _given(str(getattr(low, name)()))
    return None


def _has(path: str, word: str) -> bool:
    """Whether a library has a word in it: so it is known which options a version has, whatever its number is."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return text.find(word.encode()) >= 0
    except (OSError, ValueError):
        return False


def _items(settings: str) -> list[str]:
    """The options in a variable: between commas, but for those in brackets."""
    items, depth = [""], 0
    for letter in settings:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            items.append("")
        else:
            items[-1] += letter
    return items


def _is_share(item: str) -> bool:
    return item.partition(":")[0].strip() == _KEY


def _given(settings: str) -> Optional[float]:
    """The share in them; the last one counts."""
    found = None
    for item in _items(settings):
        if _is_share(item):
            found = limits.number(item.partition(":")[2])
    return found


def _without(settings: str) -> str:
    return ",".join(item for item in _items(settings) if not _is_share(item))


def _held(settings: str, most: float, name: str) -> str:
    """The options with a share of at most so much."""
    given = _given(settings)
    if given is not None and 0 <= given <= most:
        return settings
    if any(_is_share(item) for item in _items(settings)):
        limits.warn("%s=%s is more than the lease: PyTorch gets %s:%.4f" % (name, settings, _KEY, most))
    rest = _without(settings)
    return ("%s," % rest if rest else "") + "%s:%.4f" % (_KEY, most)
