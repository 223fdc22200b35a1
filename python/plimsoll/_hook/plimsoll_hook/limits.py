"""The limits of the lease, as `plimsoll run` says them: PLIMSOLL_FRAMEWORK_LIMITS."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Optional

_said: set[str] = set()


class Limit:
    """The most that a framework may take of a card: in bytes, and as a share that is rounded down to four digits, and never none."""

    def __init__(self, limit: int, fraction: float) -> None:
        self.bytes = limit
        self.fraction = fraction


def _limit(limit: int, total: int) -> Limit:
    return Limit(limit, max(min(limit * 10000 // max(total, 1), 10000), 1) / 10000)


class Limits:
    """A framework's, for the cards that this process sees."""

    def __init__(self, cards: list[tuple[str, Limit]]) -> None:
        self._all = cards
        self.fraction = min(limit.fraction for _, limit in cards)
        self._smallest = Limit(min(limit.bytes for _, limit in cards), self.fraction)

    def of(self, number: int) -> Limit:
        """That of a card, by its number here. The smallest, for one that is not known."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is None:
            return self._all[number][1] if 0 <= number < len(self._all) else self._smallest
        names = [name.strip() for name in visible.split(",")]
        if 0 <= number < len(names) and names[number]:
            for name, limit in self._all:
                # CUDA takes the beginning of a UUID for the whole.
                if name == names[number] or (names[number].startswith("GPU-") and name.startswith(names[number])):
                    return limit
        return self._smallest


def of(framework: str) -> Optional[Limits]:
    """None where nothing is to be held: there is no lease, its cards are this program's as a whole, or what is said of it cannot be
    read."""
    text = os.environ.get("PLIMSOLL_FRAMEWORK_LIMITS")
    if not text or os.environ.get("PLIMSOLL_HOOK") == "0":
        return None
    try:
        document: Any = json.loads(text)
        cards = [(str(card["name"]), int(card[framework]), int(card["total"])) for card in document["cards"]]
    except Exception:  # also where `json` is a module of the program's
        warn("PLIMSOLL_FRAMEWORK_LIMITS cannot be read, and nothing is held to the lease")
        return None
    if all(limit >= total for _, limit, total in cards):
        return None
    return Limits([(name, _limit(limit, total)) for name, limit, total in cards])


def warn(text: str) -> None:
    """A line on standard error, once."""
    if text in _said:
        return
    _said.add(text)
    try:
        sys.stderr.write("plimsoll: warning: " + text + "\n")
        sys.stderr.flush()
    except Exception:  # there is none
        pass


def drop(name: str, why: str) -> None:
    """Removes a variable with which a framework keeps to no limit."""
    value = os.environ.pop(name, None)
    if value is not None:
        warn("%s=%s is removed: %s" % (name, value, why))


def is_true(name: str) -> bool:
    """As TensorFlow reads a variable that is true or false."""
    return os.environ.get(name, "").lower() in ("1", "true")


def number(text: str) -> Optional[float]:
    """A number that is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value == value else None
