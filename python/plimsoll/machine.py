"""The machine's cards: `devices`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Iterator
from typing import Any, Optional, TypeVar

from ._binary import binary
from .errors import Error

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Card:
    """A card. Sizes are bytes; None is an unknown value."""

    ordinal: int
    name: str
    simulated: bool
    uuid: str
    pci_bus_id: str
    compute_capability: str
    total_bytes: Optional[int] = None
    reserved_bytes: Optional[int] = None
    used_bytes: Optional[int] = None
    free_bytes: Optional[int] = None
    utilisation_percent: Optional[int] = None
    cuda_ordinal: Optional[int] = None
    unused: Optional[str] = None
    """Why Plimsoll does not compute on it, where it does not."""


@dataclasses.dataclass(frozen=True)
class Device:
    """A logical device; `card` is a place in `Machine.cards`."""

    name: str
    description: str
    card: Optional[int] = None
    limit_bytes: Optional[int] = None
    overhead_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Process:
    """A process with memory on a card."""

    card: int
    pid: int
    name: str
    program: Optional[str] = None
    reserved_bytes: Optional[int] = None
    used_bytes: Optional[int] = None
    peak_bytes: Optional[int] = None
    user: Optional[str] = None
    """Its user, where users share the ledger and it has a lease."""
    guarantee: Optional[str] = None
    """Its rung: "held", "kernel", "mps", "shim", "framework", "watched" or "not watched"; None without a lease."""


@dataclasses.dataclass(frozen=True)
class Waiter:
    """A waiter for cards, and its reason."""

    pid: int
    name: str
    program: str
    priority: int
    ahead: int
    why: str
    user: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Machine:
    """Cards, logical devices, holders, waiters. `document`: all that `plimsoll devices --json` says.

    Iterating over it is iterating over its cards.
    """

    cards: list[Card]
    devices: list[Device]
    processes: list[Process]
    waiters: list[Waiter]
    document: dict[str, Any] = dataclasses.field(repr=False)

    def __iter__(self) -> Iterator[Card]:
        return iter(self.cards)

    def __len__(self) -> int:
        return len(self.cards)


def devices() -> Machine:
    """The machine as it is now."""
    done = subprocess.run([binary(), "devices", "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise Error(done.stderr.strip().partition("error: ")[2] or done.stderr.strip() or f"plimsoll devices: status {done.returncode}")
    document = json.loads(done.stdout)
    return Machine(
        cards=[_made(Card, entry) for entry in document["cards"]],
        devices=[_made(Device, entry) for entry in document["devices"]],
        processes=[_made(Process, entry) for entry in document["processes"]],
        waiters=[_made(Waiter, entry) for entry in document["waiters"]],
        document=document,
    )


def _made(kind: type[T], entry: dict[str, Any]) -> T:
    known = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in entry.items() if name in known})
