"""Which session stands on which side of a split, or why no such split exists."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from auditlib.errors import StoreError
from auditlib.sessions.components import KEYS, Components, KeyedSession, components
from auditlib.sessions.quarantine import TOLERANCE, Flags, Quarantined, best_quarantine, order_of, random_starts
from auditlib.sessions.snapshot import Side, Terms

# Held-out sides to try in a chronological split with quarantine, as parts of the one asked for.
_CUTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 1.15, 1.3, 1.6, 2.0, 2.5, 3.0)


@dataclass(frozen=True, slots=True)
class Sides:
    """The side of every session, and the components that the keys made of them."""

    by_session: dict[str, Side]
    components: Components


def choose_sides(rows: Sequence[KeyedSession], terms: Terms) -> Sides:
    """Sides that keep every promise of `terms`; StoreError with the numbers and the ways out when there are none."""
    groups = components(rows, terms.by)
    chooser = _chronological if terms.chronological else _random
    held = chooser(rows, groups, terms)
    if held is not None:
        chosen: list[Side] = ["held-out" if flag else "training" for flag in held.tolist()]
    elif terms.quarantine:
        chosen = _quarantined(rows, terms)
    else:
        raise StoreError(_refusal(rows, groups, terms))
    return Sides({row.session_id: side for row, side in zip(rows, chosen, strict=True)}, groups)


def _random(rows: Sequence[KeyedSession], groups: Components, terms: Terms) -> Flags | None:
    """Whole components in shuffled order until the share is reached; one that would overshoot is passed over."""
    first = np.unique(groups.label, return_index=True)[1].tolist()
    order = sorted(range(len(groups.sizes)), key=lambda group: order_of(terms.seed, rows[first[group]].session_id))
    wanted = _wanted(len(rows), terms)
    held = np.zeros(len(groups.sizes), bool)
    total = 0
    for group in order:
        if total + groups.sizes[group] <= wanted:
            held[group] = True
            total += int(groups.sizes[group])
    return held[groups.label] if _near(total, len(rows), terms) else None


def _chronological(rows: Sequence[KeyedSession], groups: Components, terms: Terms) -> Flags | None:
    """The latest sessions, cut where no component crosses and (with quarantine) no session is still running."""
    order = _by_start(rows)
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    first = np.full(len(groups.sizes), len(rows))
    last = np.full(len(groups.sizes), -1)
    np.minimum.at(first, groups.label, place)
    np.maximum.at(last, groups.label, place)
    # A component crosses the cuts between its first and its last session; sums of +1 and -1 count them all at once.
    crossing = np.zeros(len(rows) + 1, np.int64)  # components that a cut before this place would tear apart
    np.add.at(crossing, first + 1, 1)
    np.add.at(crossing, last + 1, -1)
    free = np.flatnonzero(np.cumsum(crossing)[1 : len(rows)] == 0) + 1
    if not len(free):
        return None
    cut = int(free[np.abs(free - (len(rows) - _wanted(len(rows), terms))).argmin()])
    if terms.quarantine and len(_running(rows, place >= cut)):
        return None
    return place >= cut if _near(len(rows) - cut, len(rows), terms) else None


def _by_start(rows: Sequence[KeyedSession]) -> NDArray[np.int64]:
    """Row numbers by the time of the first event; at the same time the order of the log decides."""
    started = sorted(range(len(rows)), key=lambda n: (rows[n].first_time, rows[n].import_id, rows[n].first_row))
    return np.array(started, np.int64)


def _running(rows: Sequence[KeyedSession], held: Flags) -> NDArray[np.int64]:
    """Training sessions with an event after the first held-out session began."""
    begin = min(row.first_time for row, flag in zip(rows, held.tolist(), strict=True) if flag)
    return np.flatnonzero(~held & np.array([row.last_time > begin for row in rows]))


def _quarantined(rows: Sequence[KeyedSession], terms: Terms) -> list[Side]:
    by = [key for key in terms.by if key != "session"]
    starts = _latest(rows, terms) if terms.chronological else random_starts(rows, by, terms.held_out, terms.seed)
    proposal = best_quarantine(rows, by, terms.held_out, starts)
    if not proposal.trained.any() or not _near(int(proposal.held.sum()), proposal.kept, terms):
        raise StoreError(
            f"no split by {', '.join(terms.by)} comes near {terms.held_out:.0%} held out, even with quarantine: the "
            f"best holds out {int(proposal.held.sum())} sessions, trains on {int(proposal.trained.sum())} and leaves "
            f"out {len(rows) - proposal.kept} of {len(rows)}; split by fewer keys or ask for another --held-out"
        )
    return proposal.sides()


def _latest(rows: Sequence[KeyedSession], terms: Terms) -> Iterator[Quarantined]:
    """Yield cuts in time around the one asked for, because quarantine takes unequal parts of the two sides.

    Sessions that are still running at the cut belong to neither.
    """
    order = _by_start(rows)
    for factor in _CUTS:
        count = round(len(rows) * terms.held_out * factor)
        if 0 < count < len(rows):
            held = np.zeros(len(rows), bool)
            held[order[-count:]] = True
            trained = ~held
            trained[_running(rows, held)] = False
            yield Quarantined(held, trained)


def _wanted(sessions: int, terms: Terms) -> int:
    return min(max(1, round(sessions * terms.held_out)), sessions - 1)


def _near(held: int, sessions: int, terms: Terms) -> bool:
    """Whether so many held-out sessions are the share asked for; rounding to one session is always near enough."""
    slack = max(1.0, TOLERANCE * terms.held_out * sessions)
    return 0 < held < sessions and abs(held - terms.held_out * sessions) <= slack


def _refusal(rows: Sequence[KeyedSession], groups: Components, terms: Terms) -> str:
    manner = "chronological split" if terms.chronological else "split"
    sizes = f"the largest of {len(groups.sizes)} groups that share a key holds {groups.largest} of {len(rows)} sessions"
    return (
        f"no {manner} by {', '.join(terms.by)} comes near {terms.held_out:.0%} held out: {sizes} "
        f"({groups.largest_share:.2%}), and a group cannot stand on both sides; leave out the sessions that join the "
        f"sides (--quarantine), or split by fewer keys (largest group: {_subsets(rows, terms.by)})"
    )


def _subsets(rows: Sequence[KeyedSession], by: Sequence[str]) -> str:
    """The largest group under every smaller choice of keys, for a reader who has to choose."""
    keys = [key for key in KEYS if key in by and key != "session"]
    smaller = [chosen for size in range(len(keys)) for chosen in itertools.combinations(keys, size)]
    shares = {("session", *chosen): components(rows, chosen).largest_share for chosen in smaller}
    return "; ".join(f"{','.join(chosen)} {share:.2%}" for chosen, share in shares.items())
