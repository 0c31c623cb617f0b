"""A split by keys that cross: key values take sides, and sessions that mix the sides are left out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auditlib.sessions.components import Keyed, key_values
from auditlib.sessions.snapshot import Side

# More starts find slightly better splits; these take about a second for 25,000 sessions.
_STARTS = 24
_THRESHOLDS = np.linspace(0.0, 0.98, 50)
# How far the share that is reached may lie from the share that was asked, as a part of the latter.
TOLERANCE = 0.25

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A proposed split: which sessions are held out and which train; the rest is quarantined."""

    held: Flags
    trained: Flags

    @property
    def kept(self) -> int:
        """Sessions on either side."""
        return int(self.held.sum() + self.trained.sum())

    @property
    def share(self) -> float:
        """Held-out sessions over those kept; 0 when nothing is kept."""
        return float(self.held.sum()) / max(1, self.kept)

    def sides(self) -> list[Side]:
        """The side of each session."""
        pairs = zip(self.held.tolist(), self.trained.tolist(), strict=True)
        return ["held-out" if held else "training" if trained else "quarantined" for held, trained in pairs]


@dataclass(frozen=True, slots=True)
class _Links:
    """Which session names which value of one key: pairs of indices."""

    session: NDArray[np.int64]
    value: NDArray[np.int64]
    names: tuple[str, ...]


def order_of(seed: int, name: str) -> bytes:
    """A number to shuffle by: the same on every machine and for ever, whatever else is in the store."""
    return hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()


def best_quarantine(
    rows: Sequence[Keyed], by: Sequence[str], wanted: float, starts: Iterable[Quarantined]
) -> Quarantined:
    """The proposal that keeps most sessions with a held-out share near `wanted`, else the nearest share.

    Each start says which sessions one would hold out and train on. A value of a key is held out when more than a
    threshold of its sessions would be; a session stays when it and all its values are on the same side, so no value
    stands on both.
    """
    links = [_links(rows, key) for key in by if key != "session"]
    nothing = np.zeros(len(rows), bool)
    best, best_score = Quarantined(nothing, nothing), (False, float("-inf"))
    for start in starts:
        for threshold in _THRESHOLDS:
            proposal = _proposal(start, links, float(threshold))
            error = abs(proposal.share - wanted) / wanted
            near = error <= TOLERANCE
            # Sessions kept weigh as much as the share: 10 % off the share costs as much as 10 % of the sessions.
            score = (near, proposal.kept * (1 - error) if near else -error)
            if score > best_score:
                best, best_score = proposal, score
    return best


def random_starts(rows: Sequence[Keyed], by: Sequence[str], wanted: float, seed: int) -> Iterator[Quarantined]:
    """Yield starts that hold out whole values of the key with the fewest values, in shuffled order."""
    links = min((_links(rows, key) for key in by if key != "session"), key=lambda one: len(one.names))
    counts = np.bincount(links.value, minlength=len(links.names))
    keyless = np.setdiff1d(np.arange(len(rows)), links.session).tolist()
    for start in range(_STARTS):
        order = sorted(range(len(links.names)), key=lambda value: order_of(seed, f"{start}\0{links.names[value]}"))
        value_held = np.zeros(len(links.names), bool)
        value_held[_near_share(counts, order, wanted * len(links.session))] = True
        held = np.zeros(len(rows), bool)
        held[links.session] = value_held[links.value]
        for row in keyless:
            held[row] = order_of(seed, f"{start}\0{rows[row].session_id}") < _cut(wanted)
        yield Quarantined(held, ~held)


def _near_share(counts: NDArray[np.int64], order: list[int], wanted: float) -> list[int]:
    """Values in that order that together have about the number of sessions wanted; too large a one is passed over."""
    chosen: list[int] = []
    total = 0
    for value in order:
        if total + counts[value] <= wanted * (1 + TOLERANCE):
            chosen.append(value)
            total += int(counts[value])
    return chosen


def _cut(share: float) -> bytes:
    return int(share * (2**64 - 1)).to_bytes(8, "big")


def _links(rows: Sequence[Keyed], key: str) -> _Links:
    numbers: dict[str, int] = {}
    pairs = [
        (session, numbers.setdefault(value, len(numbers)))
        for session, row in enumerate(rows)
        for value in key_values(row, key)
    ]
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return _Links(table[:, 0], table[:, 1], tuple(numbers))


def _proposal(start: Quarantined, links: Sequence[_Links], threshold: float) -> Quarantined:
    held, trained = start.held.copy(), start.trained.copy()
    for link in links:
        of_value = np.bincount(link.value, weights=start.held[link.session], minlength=len(link.names))
        value_held = of_value > threshold * np.bincount(link.value, minlength=len(link.names))
        of_session = value_held[link.value]
        held[link.session[~of_session]] = False
        trained[link.session[of_session]] = False
    return Quarantined(held, trained)
