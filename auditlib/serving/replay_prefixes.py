"""Which prefixes an artifact's fixed batch holds: seen ones in equal shares of every kind, filled up with made-up ones.

Nothing here is drawn by chance: the same run gives the same prefixes on every machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from auditlib.decoders.rows import Row
from auditlib.events.automaton import OrderAutomaton
from auditlib.events.order import CompiledOrder
from auditlib.serving.fixed_batch import Stratum

T = TypeVar("T")

LEAST = 256
_TRIES = 16  # for each made-up prefix: an order that permits few sequences soon repeats itself
_EVERYDAY = 32


@dataclass(frozen=True, slots=True)
class Chosen:
    """A prefix (ids, start included) under the rules for sessions with these attributes."""

    row: Row
    attributes: Mapping[str, str]
    stratum: Stratum


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules in force for sessions with these attributes."""

    attributes: Mapping[str, str]
    automaton: OrderAutomaton

    def chosen(self, row: Row, seen: int) -> Chosen | None:
        """The prefix with its stratum; None where these rules forbid it."""
        state = self.automaton.state_after(row[1:])
        return None if state < 0 else Chosen(row, self.attributes, Stratum(_band(len(row)), state, seen))


def choose_prefixes(
    seen: Mapping[Row, int], order: CompiledOrder, longest: int, least: int = LEAST
) -> tuple[Chosen, ...]:
    """At least `least` distinct prefixes of at most `longest` ids, start included, where the order permits so many.

    `seen` maps held-out prefixes to how many sessions begin so. The start token alone, a prefix of one event and the
    longest possible ones are always among them; of the rest, bands of length, states of the order and frequent and
    rare prefixes get equal shares as far as there are any.
    """
    rules = [_Rules(attributes, automaton) for attributes, automaton in _kinds_of_sessions(order)]
    known = list(_known(seen, rules, longest))
    edges = list(_edges(order.event_map.start, seen, rules, longest))
    taken = {(id(one.attributes), one.row): one for one in edges}
    for one in _in_turns(_by_kind(known)):
        if len(taken) >= least:
            break
        taken.setdefault((id(one.attributes), one.row), one)
    everyday = min(longest, max([_EVERYDAY, *(2 * len(one.row) for one in known)]))
    for one in _made_up(order.event_map.start, seen, rules, everyday, _TRIES * max(0, least - len(taken))):
        if len(taken) >= least:
            break
        taken.setdefault((id(one.attributes), one.row), one)
    return tuple(sorted(taken.values(), key=lambda one: (len(one.row), one.row, sorted(one.attributes.items()))))


def _kinds_of_sessions(order: CompiledOrder) -> Iterator[tuple[dict[str, str], OrderAutomaton]]:
    """Attributes of one session for each combination of conditions that sessions can meet, and the rules for it."""
    values: dict[str, dict[str | None, None]] = {}
    for condition in order.conditions:
        values.setdefault(condition.attribute, {None: None}).update(dict.fromkeys(condition.values))
    found: set[int] = set()
    for combination in product(*values.values()):
        pairs = zip(values, combination, strict=True)
        attributes = {name: value for name, value in pairs if value is not None}
        automaton = order.automaton(attributes)
        if id(automaton) not in found:
            found.add(id(automaton))
            yield attributes, automaton


def _known(seen: Mapping[Row, int], rules: Sequence[_Rules], longest: int) -> Iterator[Chosen]:
    """Each seen prefix under rules that permit it: of several, by turns; those that none permits are left out."""
    for number, (row, weight) in enumerate(sorted(seen.items())):
        if len(row) <= longest:
            turned = [rules[(number + turn) % len(rules)] for turn in range(len(rules))]
            permitted = (one.chosen(row, weight) for one in turned)
            first = next((one for one in permitted if one is not None), None)
            if first is not None:
                yield first


def _by_kind(known: Sequence[Chosen]) -> list[list[Chosen]]:
    """Prefixes by attributes and band of length; within one, states take turns, and so do frequent and rare ones."""
    kinds: dict[tuple[int, int], dict[int, list[Chosen]]] = {}
    for one in known:
        states = kinds.setdefault((len(one.row).bit_length(), id(one.attributes)), {})
        states.setdefault(one.stratum.state, []).append(one)
    # Attributes came in a fixed order, so the first prefix of each kind puts the kinds in a fixed order too.
    ordered = sorted(
        kinds.values(), key=lambda states: min((len(o.row), o.row) for own in states.values() for o in own)
    )
    return [list(_in_turns([_ends_first(states[state]) for state in sorted(states)])) for states in ordered]


def _ends_first(own: list[Chosen]) -> list[Chosen]:
    """The most frequent, the rarest, the second most frequent, the second rarest, and so on."""
    ranked = sorted(own, key=lambda one: (-one.stratum.seen, one.row))
    half = (len(ranked) + 1) // 2
    return list(_in_turns([ranked[:half], ranked[half:][::-1]]))


def _in_turns(lists: Sequence[Sequence[T]]) -> Iterator[T]:
    """One of each list, then the next of each, until all are empty."""
    nothing = object()
    for turn in zip_longest(*lists, fillvalue=nothing):
        yield from (one for one in turn if one is not nothing)  # type: ignore[misc]


def _edges(start: int, seen: Mapping[Row, int], rules: Sequence[_Rules], longest: int) -> Iterator[Chosen]:
    """The start token alone, one event, and for every kind of session the longest prefix and one shorter by one."""
    single = max((row for row in seen if len(row) == 2), key=lambda row: (seen[row], row), default=(start,))
    rows: list[tuple[_Rules, Row]] = [(rules[0], (start,)), *((one, single) for one in rules)]
    for one in rules:
        walk = _Walk(one.automaton, longest)
        rows += [(one, walk.row(start, length, "longest")) for length in sorted({longest, max(1, longest - 1)})]
    for one, row in rows:
        found = one.chosen(row, seen.get(row, 0))
        if found is not None:
            yield found


def _made_up(
    start: int, seen: Mapping[Row, int], rules: Sequence[_Rules], longest: int, tries: int
) -> Iterator[Chosen]:
    walks = [_Walk(one.automaton, longest) for one in rules] if tries else []
    for number in range(tries):
        one, walk = rules[number % len(rules)], walks[number % len(rules)]
        row = walk.row(start, 1 + number // len(rules) % longest, f"made up {number}")
        found = one.chosen(row, seen.get(row, 0))
        if found is not None:
            yield found


class _Walk:
    """Ways through an automaton that never run into a state from which too few events can follow."""

    def __init__(self, automaton: OrderAutomaton, most: int) -> None:
        self._step = automaton.step
        self._start = automaton.start
        self._lasts = _how_long(automaton.step, most)

    def row(self, start: int, length: int, name: str) -> Row:
        """Start and events, `length` ids together or as many as the order permits; the same for the same name."""
        state = self._start
        row: Row = (start,)
        for left in range(min(length - 1, int(self._lasts[state])), 0, -1):
            after = self._step[state]
            events = np.flatnonzero((after >= 0) & (self._lasts[after] >= left - 1))
            event = int(events[_number(f"{name} {left}") % len(events)])
            state, row = int(after[event]), (*row, event)
        return row


def _how_long(step: npt.NDArray[np.integer], most: int) -> npt.NDArray[np.int64]:
    """How many events can follow each state [S], counted up to `most`."""
    lasts = np.zeros(len(step), dtype=np.int64)
    alive = np.ones(len(step), dtype=bool)
    for count in range(most):
        longer = ((step >= 0) & alive[step]).any(axis=1)
        if (longer == alive).all():  # who is alive now is on a way that never ends
            lasts[alive] = most
            break
        alive = longer
        lasts[alive] = count + 1
    return lasts


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _band(length: int) -> str:
    """The band of lengths that holds `length`: 1, 2-3, 4-7, 8-15 and so on."""
    first = 1 << (length.bit_length() - 1)
    return str(first) if first == 1 else f"{first}-{2 * first - 1}"
