"""The resources of a call: `Report`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Optional


@dataclasses.dataclass(frozen=True)
class CardReport:
    """A card of the lease. None is a value that was not observed."""

    name: str
    uuid: str
    reserved_bytes: int
    peak_bytes: Optional[int] = None
    """The most that was used of it: as the driver or the ledger saw it of the whole process, where they did; else what the framework
    says of its tensors."""
    observed_by: Optional[str] = None
    """By whom: "driver", "ledger", or the name of a framework's function."""
    observed: dict[str, int] = dataclasses.field(default_factory=dict)
    """All that was said of the peak, and by whom."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The resources of a function in a worker. None is a value that was not observed."""

    wall_seconds: float
    """From the request to the answer."""
    ended: str
    """"returned", "raised KeyError", "killed by SIGKILL", "timeout", "exit", "lost", "out of memory", "not picklable"."""
    processor_seconds: Optional[float] = None
    """Of all threads, and of the processes that it started and waited for."""
    peak_resident_bytes: Optional[int] = None
    """Of the worker's own process, its libraries included."""
    cards: tuple[CardReport, ...] = ()
    refusals: Optional[int] = None
    """How often the lease refused memory, where that is counted."""
    rung: Optional[str] = None
    """The rung that holds the program to its lease, as `plimsoll run` says it."""


def observed(cards: list[dict[str, Any]]) -> tuple[CardReport, ...]:
    """Cards as a worker describes them: `name`, `uuid`, `bytes`, and `observed`, a number for each that says one."""
    return tuple(_card(card["name"], card["uuid"], card["bytes"], dict(card.get("observed", {}))) for card in cards)


def completed(report: Report, text: str) -> Report:
    """With what `plimsoll run --report` wrote about the whole process."""
    try:
        document: dict[str, Any] = json.loads(text)
        seen = {card.uuid: card for card in report.cards}
        cards = []
        for card in document["cards"]:
            peaks = {name: value for name, value in (card.get("peaks") or {}).items() if isinstance(value, int)}
            before = seen.get(card["uuid"])
            said = {**peaks, **(before.observed if before is not None else {})}
            cards.append(_card(card["name"], card["uuid"], card["reserved_bytes"], said))
        return dataclasses.replace(report, cards=tuple(cards), refusals=document.get("refusals"), rung=document.get("rung"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return report


def attach(error: BaseException, report: Report) -> None:
    """Gives an exception its report, where it has room for one."""
    try:
        error.report = report  # type: ignore[attr-defined]
    except Exception:
        pass


def _card(name: str, uuid: str, reserved: int, said: dict[str, int]) -> CardReport:
    # The driver counts contexts and libraries, too; of what frameworks say, what they keep is more than what tensors take.
    first = [by for by in ("driver", "ledger") if by in said]
    by = first[0] if first else max(said, key=lambda by: said[by], default=None)
    return CardReport(name, uuid, reserved, None if by is None else said[by], by, said)
