"""The order mask and the states behind it: the only place where generation asks the event order anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from auditlib.events.automaton import OrderAutomaton

Integers = npt.NDArray[np.integer]


def order_mask(
    automata: Sequence[OrderAutomaton], states: Integers, remaining: Integers, vocabulary_size: int
) -> Tensor:
    """Events [N, V] (bool, on the CPU) that row i may emit next, in state `states[i]` of `automata[i]`.

    Legal there, and the end stays within reach of the `remaining[i]` new events, itself counted. Ids that the event
    map does not know are never allowed, nor anything in state -1.
    """
    # A decoder's vocabulary may be larger than the map; what the map does not name stays forbidden.
    allowed = np.zeros((len(states), vocabulary_size), dtype=bool)
    for automaton, rows in _by_automaton(automata):
        allowed[rows, : automaton.event_map.size] = automaton.allowed(states[rows], remaining[rows])
    return torch.from_numpy(allowed)


def next_states(automata: Sequence[OrderAutomaton], states: Integers, events: Integers) -> npt.NDArray[np.int32]:
    """States [N] after one more event each; -1 where it is wrong, and for ever after."""
    after = np.empty(len(states), dtype=np.int32)
    for automaton, rows in _by_automaton(automata):
        after[rows] = automaton.advance_all(states[rows], events[rows])
    return after


def _by_automaton(automata: Sequence[OrderAutomaton]) -> Iterator[tuple[OrderAutomaton, npt.NDArray[np.bool_]]]:
    """Each distinct automaton with the rows [N] that follow it: sessions of like attributes share one."""
    names = np.fromiter(map(id, automata), dtype=np.int64, count=len(automata))
    for automaton in {id(automaton): automaton for automaton in automata}.values():
        yield automaton, names == id(automaton)
