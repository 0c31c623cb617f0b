"""Event grammar: in every state, under every budget, the mask of the generation loop allows what it should. Proved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pandas as pd

from auditlib.audits.base import Audit, Findings, Measurement, Subject
from auditlib.audits.work import Piece, Watch
from auditlib.decoding.lanes import Lanes
from auditlib.events.automaton import OrderAutomaton

Flags = npt.NDArray[np.bool_]
_ALL_BUDGETS, _FIRST, _LAST = 1024, 1000, 24


@dataclass
class Tally:
    """Cells and rows that are not as they should be, over everything enumerated so far."""

    illegal: int = 0
    empty: int = 0
    out_of_reach: int = 0
    not_forced: int = 0
    withheld: int = 0
    looked: int = 0
    """(state, budget) pairs looked at."""

    def add(self, other: Tally) -> None:
        """Count another part in."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    @property
    def bad(self) -> int:
        """Everything that lets a session go wrong; what is withheld only narrows it."""
        return self.illegal + self.empty + self.out_of_reach + self.not_forced


class Expected:
    """What the mask of one automaton should be, worked out from its moves alone and not from its own distances."""

    def __init__(self, automaton: OrderAutomaton, vocabulary_size: int) -> None:
        width, end = automaton.event_map.size, automaton.event_map.end
        # One row more: state -1, which must allow nothing.
        self.legal = np.zeros((automaton.states + 1, vocabulary_size), dtype=bool)
        self.legal[:-1, :width] = automaton.legal
        self.end = end
        # Events needed until a session is over when this event comes next, itself and the end counted.
        self.needed = np.full(self.legal.shape, np.inf)
        self.needed[:, end] = 1
        step = np.where(automaton.legal & (automaton.step >= 0), automaton.step, -1)
        self.to_end = _distances(step, automaton.legal[:, end])
        inner = np.append(self.to_end, np.inf)[step] + 1
        inner[:, end] = 1
        self.needed[:-1, :width] = inner

    def judge(self, allowed: Flags, budget: int) -> Tally:
        """Compare a mask [S + 1, V], the state -1 last, under one budget."""
        reachable = np.append(self.to_end <= budget, False)
        due = self.legal & (self.needed <= budget)
        not_forced = np.delete(allowed, self.end, axis=1).any(axis=1).sum() if budget == 1 else 0
        return Tally(
            illegal=int((allowed & ~self.legal).sum()),
            empty=int((reachable & ~allowed.any(axis=1)).sum()),
            out_of_reach=int((allowed & self.legal & (self.needed > budget)).sum()),
            not_forced=int(not_forced),
            withheld=int((due & ~allowed).sum()),
            looked=len(allowed),
        )


def _distances(step: npt.NDArray[np.integer], may_end: Flags) -> npt.NDArray[np.float64]:
    """Fewest events [S] to and including the end: shortest ways by relaxation until nothing gets shorter."""
    found = np.where(may_end, 1.0, np.inf)
    while True:
        nearer = np.minimum(found, np.append(found, np.inf)[step].min(axis=1) + 1)
        if (nearer == found).all():
            return found
        found = nearer


def _measure(subject: Subject) -> Findings:
    room = min(subject.max_new_events, subject.decoder.context_length - 1)  # the start token takes one place
    budgets = [n for n in range(1, room + 1) if room <= _ALL_BUDGETS or n <= _FIRST or n > room - _LAST]
    automata = subject.order.automata()
    tallies = {flags: Tally() for flags in automata}
    watch = Watch(subject.progress)
    pieces: list[Piece] = [
        (f"{automaton.states} states", partial(_enumerate, subject, automaton, budgets, tallies[flags], watch))
        for flags, automaton in automata.items()
    ]
    watch.run(pieces)
    covered = {flags: _log_sequences(automaton, room) for flags, automaton in automata.items()}
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    table = _table(subject, tallies, covered)
    return Findings(_measurements(total, covered), {"flags": table}, _notes(subject, total, budgets, room))


def _enumerate(subject: Subject, automaton: OrderAutomaton, budgets: Sequence[int], total: Tally, watch: Watch) -> None:
    """Judge the mask as the loop asks for it, in every state, with the budget set by the cap and by the context."""
    expected = Expected(automaton, subject.decoder.vocabulary_size)
    for budget in budgets:
        watch.tick()
        for lanes in lanes_of(automaton, budget, subject.max_new_events):
            allowed = lanes.allowed(subject.decoder.vocabulary_size).numpy()
            total.add(expected.judge(allowed, budget))


def lanes_of(automaton: OrderAutomaton, budget: int, most: int) -> Iterator[Lanes]:
    """One lane a state, the state -1 last, with `budget` new events left: of the cap, and of the context."""
    states = np.append(np.arange(automaton.states), -1).astype(np.int32)
    count = len(states)
    # The loop's own lanes, so that what is proved is what it asks: its count of what is left, and then the mask.
    by_cap = Lanes(
        (automaton,) * count, np.arange(count), states, np.zeros(count), np.broadcast_to(np.int64(0), (count, most)),
        np.full(count, most + 1), np.empty((count, 0)), np.full(count, most), np.full(count, most - budget),
        np.zeros(count, dtype=np.int64),
    )  # fmt: skip
    yield by_cap
    if budget < most:
        yield replace(by_cap, contexts=np.full(count, budget), steps=np.zeros(count, dtype=np.int64))


def _log_sequences(automaton: OrderAutomaton, room: int) -> float:
    """Natural logarithm of how many whole sessions of at most `room` events, end included, the order allows."""
    end = automaton.event_map.end
    stops = np.where(automaton.legal[:, end], 0.0, -np.inf)
    ways = np.full(automaton.states + 1, -np.inf)  # the last entry is what a move to -1 reads
    for _ in range(room):
        ways[:-1] = np.logaddexp(stops, np.logaddexp.reduce(ways[automaton.step], axis=1))
    return float(ways[automaton.start])


def _measurements(total: Tally, covered: dict[tuple[bool, ...], float]) -> tuple[Measurement, ...]:
    sequences = float(np.logaddexp.reduce(list(covered.values())) / math.log(10)) if covered else -math.inf
    return (
        Measurement("allowed illegal cells", total.illegal, "cells", total.looked),
        Measurement("states with no event", total.empty, "states", total.looked),
        Measurement("ends out of reach", total.out_of_reach, "cells", total.looked),
        Measurement("end not forced", total.not_forced, "states", total.looked),
        Measurement("legal cells withheld", total.withheld, "cells", total.looked),
        Measurement("valid sequences covered (log10)", max(0.0, sequences), "log10", total.looked),
    )


def _table(
    subject: Subject, tallies: dict[tuple[bool, ...], Tally], covered: dict[tuple[bool, ...], float]
) -> pd.DataFrame:
    lines = []
    for flags, tally in tallies.items():
        held = [str(one) for one, flag in zip(subject.order.conditions, flags, strict=True) if flag]
        states = subject.order.automata()[flags].states
        cells = tally.looked * subject.decoder.vocabulary_size
        lines.append(
            (
                "; ".join(held) or "no condition", states, cells, tally.illegal, tally.empty, tally.out_of_reach,
                tally.not_forced, tally.withheld, max(0.0, covered[flags] / math.log(10)),
                "NOT PROVED" if tally.bad or not tally.looked else "PROVED",
            )
        )  # fmt: skip
    columns = (
        "flags", "states", "cells", "illegal", "empty", "out_of_reach", "not_forced", "withheld", "log10_sequences",
        "verdict",
    )  # fmt: skip
    return pd.DataFrame(lines, columns=columns)


def _notes(subject: Subject, total: Tally, budgets: Sequence[int], room: int) -> tuple[str, ...]:
    order = subject.order
    where = (
        f"{total.looked} pairs of state and budget, {len(order.automata())} combinations of session flags, "
        f"budgets {budgets[0]} to {budgets[-1]}, rules version {order.order.version!r}"
        if budgets
        else "no budget at all"
    )
    claim = "the mask of the generation loop allows only legal events, always one, always with the end within reach"
    proved = f"PROVED: {claim} ({where})." if total.looked and not total.bad else f"NOT PROVED: that {claim} ({where})."
    unchecked = ["whether the rules say what the domain means", "what a setting without the order mask emits"]
    if len(budgets) < room:
        unchecked.append(f"budgets {_FIRST + 1} to {room - _LAST}")
    return proved, f"NOT CHECKED here: {'; '.join(unchecked)}."


EVENT_GRAMMAR = Audit(
    "event grammar", "Does the order mask allow exactly what keeps every session valid and able to end?", _measure
)
