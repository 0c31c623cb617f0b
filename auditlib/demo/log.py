"""A made-up service desk's event log: seeded, small, and with the dirt that real logs have."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

COLUMNS = ("session_id", "event", "timestamp", "customer", "asset", "contract")

_CUSTOMERS = 90
_GOLD_SHARE = 0.3
_OPENED_FROM = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)

# From each event, what may follow and how often. "reopened" is taken up only under a gold contract.
_NEXT: dict[str, tuple[tuple[str, int], ...]] = {
    "opened": (("assigned", 88), ("cancelled", 7), ("information requested", 5)),
    "assigned": (("inspected", 62), ("information requested", 16), ("escalated", 9), ("assigned", 13)),
    "information requested": (("information received", 93), ("cancelled", 7)),
    "information received": (("assigned", 70), ("inspected", 30)),
    "escalated": (("assigned", 100),),
    "inspected": (("repaired", 55), ("parts ordered", 35), ("assigned", 10)),
    "parts ordered": (("parts arrived", 100),),
    "parts arrived": (("repaired", 82), ("inspected", 18)),
    "repaired": (("tested", 100),),
    "tested": (("closed", 74), ("inspected", 26)),
    "closed": (("end", 84), ("reopened", 16)),
    "reopened": (("assigned", 100),),
    "cancelled": (("end", 100),),
}
_HOURS = {"parts arrived": 60.0, "information received": 16.0, "reopened": 90.0}


def demo_log(sessions: int = 1200, seed: int = 2026) -> bytes:
    """CSV of a service desk's events, the same bytes for the same arguments.

    Customers own assets, so a split by customer and asset is possible. A few rows lack the customer, and some events
    share a minute, as in real exports.
    """
    chance = random.Random(seed)  # noqa: S311 - a made-up log, not a secret
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    contracts = ["gold" if chance.random() < _GOLD_SHARE else "standard" for _ in range(_CUSTOMERS)]
    for number in range(sessions):
        writer.writerows(_session(number, chance, contracts))
    return text.getvalue().encode()


def _session(number: int, chance: random.Random, contracts: list[str]) -> Iterator[tuple[str, ...]]:
    """Rows of one session."""
    owner = min(int(chance.expovariate(1 / 25)), _CUSTOMERS - 1)  # a few customers are much busier than the rest
    asset = f"asset {owner:02d}-{chance.randrange(4)}"
    customer = f"customer {owner:02d}" if chance.random() > 0.01 else ""
    moment = _OPENED_FROM + timedelta(minutes=53 * number + chance.randrange(50))
    for event in _walk(chance, reopening=contracts[owner] == "gold"):
        stamp = moment.strftime("%Y-%m-%dT%H:%M:00+00:00")
        yield f"S{number:05d}", event, stamp, customer, asset, contracts[owner]
        moment += timedelta(hours=chance.expovariate(1 / _HOURS.get(event, 3.0)) if chance.random() > 0.04 else 0)


def _walk(chance: random.Random, *, reopening: bool) -> Iterator[str]:
    """Events of one session, from opened to its end."""
    event = "opened"
    while event != "end":
        yield event
        followers = [(name, weight) for name, weight in _NEXT[event] if reopening or name != "reopened"]
        names, weights = zip(*followers, strict=True)
        event = chance.choices(names, weights)[0]
