"""One rule as a table over the events of a map: small, without dead states, smallest of its kind."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditlib.events.templates import Letter, Shape

DEAD = -1
OUT_OF_REACH = np.int32(2**30)

Table = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """A named deterministic machine: `step` [S, E] (next state, or -1: broken for good) and `accepts` [S].

    E counts the events of a map's domain, in its order. State 0 is the start. From every state but a broken start a
    session that is accepted can still be reached.
    """

    name: str
    step: Table
    accepts: Flags


def to_machine(name: str, shape: Shape, letters: Sequence[Letter]) -> Machine:
    """Table of a template's shape; `letters` says for each event of the domain what the rule sees of it."""
    alphabet = sorted(set(letters))
    step, accepts = _tabulate(shape, alphabet)
    step, accepts = _merge_equals(_cut_dead(step, accepts), accepts)
    columns = [alphabet.index(letter) for letter in letters]  # most events look alike to a rule
    return Machine(name, np.ascontiguousarray(step[:, columns]), accepts)


def ways_out(step: Table, accepts: Flags) -> Table:
    """Fewest events [S] from each state up to and including the end; OUT_OF_REACH where there is no way."""
    distance = np.where(accepts, np.int32(1), OUT_OF_REACH)
    while True:
        after = np.append(distance, OUT_OF_REACH)[step]  # [S, E]; a -1 reads the appended last entry
        shorter = np.minimum(distance, np.minimum(after.min(axis=1, initial=OUT_OF_REACH) + 1, OUT_OF_REACH))
        if np.array_equal(shorter, distance):
            return distance.astype(np.int32)
        distance = shorter


def _tabulate(shape: Shape, alphabet: Sequence[Letter]) -> tuple[Table, Flags]:
    number: dict[Hashable, int] = {shape.start: 0}
    states, rows = [shape.start], []
    for state in states:  # grows while it is read: breadth first
        row = []
        for letter in alphabet:
            after = shape.step(state, letter)
            if after is not None and after not in number:
                number[after] = len(states)
                states.append(after)
            row.append(DEAD if after is None else number[after])
        rows.append(row)
    accepts = np.array([shape.accepts(state) for state in states], dtype=np.bool_)
    return np.array(rows, dtype=np.int32).reshape(len(states), len(alphabet)), accepts


def _cut_dead(step: Table, accepts: Flags) -> Table:
    # Then a rule breaks at the first event that nothing can save, not at the end of the session.
    alive = np.append(ways_out(step, accepts) < OUT_OF_REACH, False)
    return np.where(alive[step], step, np.int32(DEAD))


def _merge_equals(step: Table, accepts: Flags) -> tuple[Table, Flags]:
    """The same language with no two states alike (Moore 1956), reached states only, start first."""
    blocks = np.unique(accepts, return_inverse=True)[1]  # numbered from 0 without a gap, as every later round
    while True:
        after = np.append(blocks, DEAD)[step]
        finer = np.unique(np.column_stack([blocks, after]), axis=0, return_inverse=True)[1].reshape(-1)
        if finer.max() == blocks.max():
            return _renumber(step, accepts, finer)
        blocks = finer


def _renumber(step: Table, accepts: Flags, blocks: npt.NDArray[np.intp]) -> tuple[Table, Flags]:
    order, seen = [0], {int(blocks[0]): 0}
    for state in order:  # one state stands for its block
        for after in step[state]:
            if after != DEAD and int(blocks[after]) not in seen:
                seen[int(blocks[after])] = len(order)
                order.append(int(after))
    kept = step[order]
    new = np.array([seen.get(int(block), DEAD) for block in blocks] + [DEAD], dtype=np.int32)
    return new[kept], accepts[order]
