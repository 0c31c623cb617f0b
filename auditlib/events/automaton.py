"""The event order as one automaton: what may come next, whether the end is in reach, which event is wrong first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from auditlib.events.clashes import smallest_clash
from auditlib.events.event_map import EventMap
from auditlib.events.machine import DEAD, OUT_OF_REACH, Flags, Machine, Table
from auditlib.events.product import Product, product

Kind = Literal["forbidden", "missing", "after end", "padding", "not an event"]


@dataclass(frozen=True, slots=True)
class WrongEvent:
    """The first wrong event of a row: its place in the row (from 0), its id, the rules it breaks, and how.

    "forbidden": the rules do not allow it here. "missing": it is the end, and the rules still wait for something.
    "after end", "padding", "not an event" (start, or an id without meaning): no rule is needed to say no.
    """

    position: int
    event: int
    rules: tuple[str, ...]
    kind: Kind


@dataclass(frozen=True, eq=False)
class OrderAutomaton:
    """Deterministic automaton over the V ids of an event map, with S states; immutable.

    step [S, V]: next state, or -1 where the event is wrong (the end leads nowhere: nothing comes after it).
    legal [S, V]: whether the event may come; in the end's column, whether the session may end here.
    to_end [S]: fewest events up to and including the end. No state is without a way to the end.
    """

    event_map: EventMap
    machines: tuple[Machine, ...]
    all_rules: Product = field(repr=False)
    start: int = 0

    @classmethod
    def of(cls, event_map: EventMap, machines: Sequence[Machine]) -> OrderAutomaton:
        """Automaton of rules that do not contradict each other; TooManyStatesError beyond the limit of states."""
        return cls(event_map, tuple(machines), product(machines, len(event_map.domain)))

    @property
    def states(self) -> int:
        """Number of states."""
        return len(self.all_rules.accepts)

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the rules in force."""
        return tuple(machine.name for machine in self.machines)

    @cached_property
    def step(self) -> Table:
        """Next state [S, V], or -1."""
        return self._moves[:-1]

    @cached_property
    def legal(self) -> Flags:
        """What may come in each state [S, V], the end included; never padding or start."""
        return _frozen(self._needed[:-1] < OUT_OF_REACH)

    @cached_property
    def to_end(self) -> Table:
        """Fewest events [S] up to and including the end."""
        return _frozen(self.all_rules.to_end.copy())

    @cached_property
    def _moves(self) -> Table:
        """`step` with one more row of -1, which the state -1 reads: what is wrong stays wrong."""
        moves = np.full((self.states + 1, self.event_map.size), DEAD, dtype=np.int32)
        moves[:-1, list(self.event_map.domain)] = self.all_rules.step
        return _frozen(moves)

    @cached_property
    def _needed(self) -> Table:
        """Events needed [S + 1, V] for a session to end when this event comes next, itself and the end counted."""
        after_end = np.append(self.all_rules.to_end, OUT_OF_REACH)
        # Computed once, so that a decoding step costs one gather and one comparison.
        needed = np.minimum(after_end[self._moves] + 1, OUT_OF_REACH).astype(np.int32)
        needed[:-1, self.event_map.end] = np.where(self.all_rules.accepts, 1, OUT_OF_REACH)
        return _frozen(needed)

    def advance(self, state: int, event: int) -> int:
        """State after one more event; -1 when it is wrong, and for ever after."""
        if not 0 <= event < self.event_map.size:  # numpy would read a negative id from the end
            return DEAD
        return int(self._moves[state, event])

    def advance_all(self, states: npt.NDArray[np.integer], events: npt.NDArray[np.integer]) -> Table:
        """States [B] after one more event each [B]; -1 where it is wrong."""
        inside = (events >= 0) & (events < self.event_map.size)
        return np.where(inside, self._moves[states, np.where(inside, events, 0)], np.int32(DEAD))

    def state_after(self, ids: Sequence[int]) -> int:
        """State after a session's events (no start, no end); -1 when one of them is wrong."""
        state = self.start
        for event in ids:
            state = self.advance(state, event)
        return state

    def allowed(self, states: npt.NDArray[np.integer], remaining: npt.NDArray[np.integer]) -> Flags:
        """Which ids [B, V] may come next so that the session can still end within `remaining` [B] new events.

        The end counts as one of them: where one remains, only the end is left. A row of the state -1, and one whose
        end is out of reach, allows nothing.
        """
        within: Flags = self._needed[states] <= np.asarray(remaining)[:, None]
        return within

    def first_wrong(self, ids: Sequence[int], ended: bool) -> WrongEvent | None:
        """First wrong event of a session's ids (no start; the end may be the last), or None.

        `ended`: the session is over, so that what is still missing counts, whether or not the end's id stands there.
        """
        state, end = self.start, self.event_map.end
        for position, event in enumerate(ids):
            if event == end:
                return self._wrong_end(state, position) or self._wrong_tail(ids, position + 1)
            after = self.advance(state, event)
            if after == DEAD:
                return self._wrong(state, position, event)
            state = after
        return self._wrong_end(state, len(ids)) if ended else None

    def forbidding(self, state: int, event: int) -> tuple[str, ...]:
        """Names of the rules that make an event (or the end) wrong in a state; empty when it is legal there.

        Where no rule alone says no, the event leads where these rules together leave no way to the end.
        """
        if state == DEAD or not 0 <= event < self.event_map.size or self.legal[state, event]:
            return ()  # nothing to blame: it is legal, or was wrong before, or no rule speaks of such an id
        local = self.all_rules.parts[state]
        if event == self.event_map.end:
            return self._named(not m.accepts[at] for m, at in zip(self.machines, local, strict=True))
        if event not in self._columns:
            return ()
        after = [m.step[at, self._columns[event]] for m, at in zip(self.machines, local, strict=True)]
        if DEAD in after:  # single rules break; else each could still be kept, but not all of them
            return self._named(part == DEAD for part in after)
        return tuple(self.machines[n].name for n in smallest_clash(self.machines, [int(part) for part in after]))

    def _wrong(self, state: int, position: int, event: int) -> WrongEvent:
        if event == self.event_map.padding:
            return WrongEvent(position, event, (), "padding")
        if event not in self._columns:
            return WrongEvent(position, event, (), "not an event")
        return WrongEvent(position, event, self.forbidding(state, event), "forbidden")

    def _wrong_end(self, state: int, position: int) -> WrongEvent | None:
        end = self.event_map.end
        return None if self.legal[state, end] else WrongEvent(position, end, self.forbidding(state, end), "missing")

    def _wrong_tail(self, ids: Sequence[int], position: int) -> WrongEvent | None:
        return WrongEvent(position, ids[position], (), "after end") if position < len(ids) else None

    def _named(self, guilty: Iterable[bool]) -> tuple[str, ...]:
        return tuple(name for name, is_guilty in zip(self.rules, guilty, strict=True) if is_guilty)

    @cached_property
    def _columns(self) -> dict[int, int]:
        return {event: column for column, event in enumerate(self.event_map.domain)}


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
