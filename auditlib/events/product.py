"""All rules at once: the reachable part of the product of their machines, without states that lead nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditlib.events.machine import DEAD, OUT_OF_REACH, Flags, Machine, Table, ways_out

MOST_STATES = 20_000
_ROWS_AT_ONCE = 2_048


class TooManyStatesError(Exception):
    """The product passed its limit; whoever asked knows which rules and says so."""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Machines in step: `step` [S, E], `accepts` [S], `to_end` [S], and each machine's own state, `parts` [S, R].

    State 0 is the start. No state and no step leads where the end cannot be reached, unless `empty`: then no session
    is accepted at all, and the start is the only state.
    """

    step: Table
    accepts: Flags
    to_end: Table
    parts: npt.NDArray[np.int32]

    @property
    def empty(self) -> bool:
        """True when no session satisfies all machines."""
        return bool(self.to_end[0] >= OUT_OF_REACH)


def product(
    machines: Sequence[Machine], events: int, limit: int = MOST_STATES, starts: Sequence[int] | None = None
) -> Product:
    """Product of machines over a domain of `events` events, from their starts or from the states given.

    Raises TooManyStatesError beyond `limit` states.
    """
    classes, kinds = _kinds_of_events(machines, events)  # a map of 200 events often has 20 that rules tell apart
    first = np.array([[0] * len(machines) if starts is None else starts], dtype=np.int32)  # [1, R]
    step, parts = _explore(machines, classes, first, limit)
    accepts = np.ones(len(parts), dtype=np.bool_)
    for column, machine in enumerate(machines):
        accepts &= machine.accepts[parts[:, column]]
    return _cut(step[:, kinds], accepts, parts)


def implies(machines: Sequence[Machine], other: Machine, limit: int = MOST_STATES) -> bool:
    """Whether every session that all machines accept is accepted by the other one too."""
    broken = len(other.accepts)
    step = np.where(other.step == DEAD, np.int32(broken), other.step)
    step = np.vstack([step, np.full((1, step.shape[1]), broken, dtype=np.int32)])
    watched = Machine(other.name, step, np.ones(broken + 1, dtype=np.bool_))  # forbids nothing, but remembers
    whole = product([*machines, watched], step.shape[1], limit)
    content = np.append(other.accepts, False)[whole.parts[:, -1]]
    # Every state of a product has a way to the end, so what breaks the other one on its way shows at some end.
    return bool((content | ~whole.accepts).all())


def _kinds_of_events(machines: Sequence[Machine], events: int) -> tuple[list[int], npt.NDArray[np.intp]]:
    """One event for each kind that all machines treat alike, and the kind of every event."""
    if not machines:
        return [0][:events], np.zeros(events, dtype=np.intp)
    columns = np.concatenate([machine.step for machine in machines])  # [sum of S, E]
    _, first, kinds = np.unique(columns, axis=1, return_index=True, return_inverse=True)
    return [int(event) for event in first], kinds.reshape(-1)


def _explore(
    machines: Sequence[Machine], classes: list[int], first: npt.NDArray[np.int32], limit: int
) -> tuple[Table, npt.NDArray[np.int32]]:
    tables = [machine.step[:, classes] for machine in machines]
    known, found, steps = {first.tobytes(): 0}, [first], []
    for block in found:  # grows while it is read: breadth first
        # Cut into blocks, so that a wide front of many rules does not need all of its memory at once.
        after = np.zeros((len(block), len(classes), len(machines)), dtype=np.int32)  # [F, kinds, R]
        for column, table in enumerate(tables):
            after[:, :, column] = table[block[:, column]]
        alive = (after >= 0).all(axis=2)
        numbers, fresh = _number(after[alive], known)
        if len(known) > limit:
            raise TooManyStatesError
        step = np.full(alive.shape, DEAD, dtype=np.int32)
        step[alive] = numbers
        steps.append(step)
        found.extend(np.array_split(fresh, -(-len(fresh) // _ROWS_AT_ONCE)) if len(fresh) else [])
    return np.concatenate(steps), np.concatenate(found)


def _number(rows: npt.NDArray[np.int32], known: dict[bytes, int]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Number of each row of local states, and the rows that were not known before, in the order of their numbers."""
    # Bytes as keys: the states of many rules do not fit into one integer, and sorting rows of them is slower.
    width = rows.shape[1] * rows.itemsize
    data = rows.tobytes()
    keys = [data[at : at + width] for at in range(0, len(data), width)] if width else [b""] * len(rows)
    before = len(known)
    numbers: list[int] = []
    fresh: list[int] = []
    for place, key in enumerate(keys):
        number = known.setdefault(key, len(known))
        if number == before + len(fresh):
            fresh.append(place)
        numbers.append(number)
    return numbers, rows[fresh]


def _cut(step: Table, accepts: Flags, parts: npt.NDArray[np.int32]) -> Product:
    to_end = ways_out(step, accepts)
    alive = to_end < OUT_OF_REACH
    alive[0] = True  # an empty product keeps its start, to be looked at
    new = np.append(np.cumsum(alive) - 1, DEAD).astype(np.int32)
    new[:-1][to_end >= OUT_OF_REACH] = DEAD
    return Product(new[step[alive]], accepts[alive], to_end[alive], parts[alive])
