"""The memory of cards, as the framework that is loaded counts it: `memory_allocated`, `max_memory_allocated`, `empty_cache`.

They are to `torch.cuda`'s functions of these names what `plimsoll` is to a framework: the same question to whichever is loaded, PyTorch
(`torch.cuda.memory_allocated`), TensorFlow (`tf.config.experimental.get_memory_info`) or JAX (`Device.memory_stats`). None is imported,
and no card is opened by asking: what has not opened a card has allocated nothing on it, so that the answer is 0.
"""

from __future__ import annotations

import operator
from typing import Any, Optional, Union

from . import _frameworks

Device = Union[int, str, Any]
"""A card by its number, as "cuda:1" or "GPU:1", or as an object of a framework's that is one. "cuda" is PyTorch's current card, and the first
one for the others. TensorFlow's logical devices of a card count together."""


def memory_allocated(device: Optional[Device] = None) -> int:
    """Bytes that tensors take of a card now: without a name, of PyTorch's current card, and of the first one for the others. Where
    several frameworks are loaded, their sum."""
    return sum(use.allocated for use in _uses(device))


def max_memory_allocated(device: Optional[Device] = None) -> int:
    """The most that it was: since the start of the process, or since the framework was told to count anew
    (`torch.cuda.reset_peak_memory_stats`, `tf.config.experimental.reset_memory_stats`). Where several frameworks are loaded, the sum of
    theirs, which may not have been at one time."""
    return sum(use.peak for use in _uses(device))


def empty_cache() -> None:
    """Gives back memory that PyTorch keeps for later tensors. TensorFlow and JAX keep theirs until the process ends: a function that
    is to give everything back belongs in `plimsoll.call` or a `Pool`."""
    for framework in _frameworks.loaded():
        _frameworks.empty(framework)


def _uses(device: Optional[Device]) -> list[_frameworks.Use]:
    number = _number(device)
    uses = []
    for framework in _frameworks.loaded():
        card = _frameworks.current(framework) if number is None else number
        if card < _frameworks.cards(framework):
            use = _frameworks.use(framework, card)
            if use is not None:
                uses.append(use)
    return uses


def _number(device: Optional[Device]) -> Optional[int]:
    """None where no card in particular is named. Raises ValueError where it is no card."""
    if device is None:
        return None
    number: Any = None
    kind: Any = getattr(device, "type", None) or getattr(device, "platform", None)
    if isinstance(kind, str):  # an object of PyTorch's or JAX's
        number = getattr(device, "index", getattr(device, "id", None))
    elif hasattr(device, "__index__") and not isinstance(device, bool):
        kind, number = "gpu", operator.index(device)
    else:  # a text, or an object of TensorFlow's
        kind, _, tail = str(getattr(device, "name", device)).lower().rpartition("/")[2].rpartition(":")
        kind = kind.rpartition(":")[2]
        if not kind:
            kind = tail
        else:
            number = int(tail) if tail.isdecimal() else -1
    if kind in ("cuda", "gpu", "rocm") and (number is None or number >= 0):
        return None if number is None else int(number)
    raise ValueError(f"{device!r} is no card: give a number, or a name such as 'cuda:1' or 'GPU:1'")
