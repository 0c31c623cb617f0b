"""The distinct prefixes of a log as places at which a rule can refuse an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from auditlib.events.event_map import EventMap
from auditlib.events.machine import DEAD, Flags, Machine
from auditlib.events.prefixes import PrefixTrie

MOST_VARIANTS = 2_000


@dataclass(frozen=True, slots=True, eq=False)
class LogPrefixes:
    """Every distinct prefix of a log's sequences, the empty one first, with E event columns and one for the end.

    `levels` holds for each length the numbers of the parents and the columns of the newest events. `mass` [N, E + 1]
    sums to one: how often a prefix occurs, times how often an event occurs in the log.
    """

    levels: tuple[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]], ...]
    mass: npt.NDArray[np.float64]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[str]], event_map: EventMap) -> LogPrefixes:
        """Prefixes of the log's 2,000 most frequent sequences, so that a log of all-different sessions stays small."""
        by_weight = sorted(Counter(map(tuple, sequences)).items(), key=lambda item: (-item[1], item[0]))
        rows = {(event_map.start, *event_map.encode(names)): times for names, times in by_weight[:MOST_VARIANTS]}
        trie = PrefixTrie.from_counts(rows)
        column = {event: place for place, event in enumerate(event_map.domain)}
        begins = np.cumsum([0, *(len(level.event) for level in trie.levels)])
        levels = tuple(
            (level.parent + begin, np.array([column[int(event)] for event in level.event], dtype=np.intp))
            for level, begin in zip(trie.levels[1:], begins, strict=False)
        )
        # Events weigh as often as they occur: to forbid what never happens anyway says little.
        weight = np.concatenate([level.weight for level in trie.levels])
        events = np.concatenate([columns for _, columns in levels])
        times = np.bincount(events, weights=weight[1:], minlength=len(column))
        mass = np.outer(weight, np.append(times, sum(rows.values())))
        return cls(levels, mass / mass.sum())

    def refused(self, machine: Machine, *, broken: bool) -> Flags:
        """What a machine refuses after each prefix [N, E + 1], the end last; `broken` for all after a broken prefix."""
        table = np.vstack([machine.step, np.full((1, machine.step.shape[1]), DEAD)])  # the state -1 reads the last row
        states = np.zeros(1, dtype=np.int64)
        for parents, columns in self.levels:
            states = np.append(states, table[states[parents], columns])
        refused = np.column_stack([table[states] == DEAD, ~np.append(machine.accepts, False)[states]])
        refused[states == DEAD] = broken
        return refused

    def gain(self, machine: Machine, covered: Flags) -> float:
        """Share of events drawn as often as they occur that the machine refuses where `covered` does not."""
        return float(self.mass[self.refused(machine, broken=False) & ~covered].sum())
