"""One emitted sequence, judged again from its ids alone: what the loop says about it is compared, never believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from auditlib.audits.held_out import Row
from auditlib.audits.prefix_set import PrefixCase
from auditlib.decoding.generated import Generated
from auditlib.events.automaton import WrongEvent
from auditlib.events.event_map import EventMap

STOPPED_EARLY = "stopped early"
"""Recounted stop of a sequence that had budget and legal events left; no tag is right for it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most new events of the policy, the context length, and whether the order mask was on."""

    max_new: int
    context: int
    order_mask: bool

    def room(self, case: PrefixCase) -> int:
        """New events that a prefix may get."""
        return min(self.max_new, self.context - len(case.row))


@dataclass(frozen=True, slots=True)
class Emitted:
    """What the ids of one hypothesis show.

    `padding`: padding ids among the new events. `after_end`: events behind the end. `wrong`: the first event that
    breaks the order, its position counted in the whole row (start is 0); `wrong_events` all of them, each judged as if
    the ones before it had not been. `forced`: only the budget left nothing but the end.
    """

    case: PrefixCase
    hypothesis: int
    found: Generated
    stop: str
    forced: bool
    padding: int
    after_end: int
    wrong: WrongEvent | None
    wrong_events: int
    over_cap: bool

    @property
    def row(self) -> Row:
        """Prefix and new events."""
        return (*self.case.row, *self.found.events)

    @property
    def chosen_end(self) -> bool:
        """Whether it ended without the budget forcing it to."""
        return self.stop == "end" and not self.forced

    @property
    def mislabelled(self) -> bool:
        """Whether the loop's own tags say something else than the ids."""
        tags = (self.found.stop, self.found.forced, self.found.chosen_end)
        return tags != (self.stop, self.forced, self.chosen_end)


def recount(case: PrefixCase, hypothesis: int, found: Generated, event_map: EventMap, bounds: Bounds) -> Emitted:
    """What one hypothesis of a prefix shows, from its ids, the order and the bounds."""
    new = found.events
    until = new.index(event_map.end) + 1 if event_map.end in new else len(new)
    ended = until > 0 and event_map.end in new
    # Padding is counted under its own name; the order is asked about the events around it.
    places = [place for place in range(until) if new[place] != event_map.padding]
    wrong = _first_wrong(case, [new[place] for place in places], places, ended)
    return Emitted(
        case,
        hypothesis,
        found,
        _stop(case, new, ended, bounds),
        ended and bounds.order_mask and _only_budget_ends(case, new[: until - 1], bounds, event_map),
        new.count(event_map.padding),
        len(new) - until,
        wrong,
        _wrong_events(case, [new[place] for place in places], event_map.end) if wrong else 0,
        len(new) > bounds.room(case) or found.cap != bounds.room(case),
    )


def _first_wrong(case: PrefixCase, events: Sequence[int], places: Sequence[int], ended: bool) -> WrongEvent | None:
    behind = len(case.row) - 1  # the order counts without the start token
    wrong = case.automaton.first_wrong((*case.row[1:], *events), ended)
    if wrong is None:
        return None
    place = places[wrong.position - behind] if wrong.position - behind < len(places) else len(places)
    return WrongEvent(len(case.row) + place, wrong.event, wrong.rules, wrong.kind)


def _wrong_events(case: PrefixCase, events: Sequence[int], end: int) -> int:
    state, wrong = case.automaton.state_after(case.row[1:]), 0
    for event in events:
        if event == end:
            return wrong + (not case.automaton.legal[state, end])
        after = case.automaton.advance(state, event)
        wrong += after < 0
        state = state if after < 0 else after  # as if the wrong event had not been
    return wrong


def _stop(case: PrefixCase, new: Row, ended: bool, bounds: Bounds) -> str:
    left = bounds.room(case) - len(new)
    short = "context full" if bounds.context - len(case.row) < bounds.max_new else "capped"
    if ended:
        return "end"
    if left <= 0:
        return short
    if bounds.order_mask:
        state = case.automaton.state_after((*case.row[1:], *new))
        if state < 0:
            return "no legal event"
        if case.automaton.to_end[state] > left:  # the end was out of reach: the budget is what was missing
            return short
    return STOPPED_EARLY


def _only_budget_ends(case: PrefixCase, before: Row, bounds: Bounds, event_map: EventMap) -> bool:
    state = case.automaton.state_after((*case.row[1:], *before))
    if state < 0 or not case.automaton.legal[state, event_map.end]:
        return False
    left = np.array([bounds.room(case) - len(before)])
    within = case.automaton.allowed(np.array([state]), left)[0]
    # The order knows other ways on, and the budget leaves none of them.
    return int(within.sum()) <= 1 < int(case.automaton.legal[state].sum())
