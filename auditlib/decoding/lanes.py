"""The rows that generation still works on, kept side by side: one lane a row, ordered by the prefix it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from auditlib.decoding import masks
from auditlib.decoding.choices import draws_of
from auditlib.decoding.generated import Stop
from auditlib.decoding.policies import Setting
from auditlib.events.automaton import OrderAutomaton

_UNLIMITED = np.iinfo(np.int32).max // 2


@dataclass(frozen=True, slots=True)
class Lanes:
    """N live rows: prefix `owners` [N], order `states` [N], `scores` [N], new `events` [N, W] up to `steps` [N].

    `caps` [N] is how many new events a row may get at most, `contexts` [N] how many its context could hold; `draws`
    [N, W] are its uniform numbers (no columns unless sampled), and `samples` [N] which of its prefix's samples it is,
    from 0. Everything about a row moves together, and no row's
    numbers depend on when another one joined.
    """

    automata: tuple[OrderAutomaton, ...]
    owners: npt.NDArray[np.int64]
    states: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]
    events: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.int64]
    draws: npt.NDArray[np.float64]
    caps: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    samples: npt.NDArray[np.int64]

    @classmethod
    def opening(
        cls,
        prefixes: Sequence[tuple[int, ...]],
        automata: Sequence[OrderAutomaton],
        setting: Setting,
        caps: Sequence[int],
        context_length: int,
    ) -> Lanes:
        """One lane a prefix, or one for each of its samples. Beams start as one lane: equal ones would never part."""
        copies = setting.width if setting.kind == "sampled" else 1
        contexts = [context_length - len(prefix) for prefix in prefixes]
        # No wider than any row can get: a cap far beyond the context would cost memory that nobody fills.
        width = max((0, *map(min, caps, contexts)))
        owners = np.repeat(np.arange(len(prefixes)), copies)
        states = [automaton.state_after(prefix[1:]) for prefix, automaton in zip(prefixes, automata, strict=True)]
        draws = np.empty((len(owners), 0))
        if setting.kind == "sampled":
            drawn = [draws_of(setting, prefix, n, width) for prefix in prefixes for n in range(copies)]
            draws = np.array(drawn).reshape(len(owners), width)
        return cls(
            tuple(automata[owner] for owner in owners.tolist()),
            owners,
            np.array(states, dtype=np.int32)[owners],
            np.zeros(len(owners)),
            np.zeros((len(owners), width), dtype=np.int64),
            np.array(contexts, dtype=np.int64)[owners],
            draws,
            np.array(caps, dtype=np.int64)[owners],
            np.zeros(len(owners), dtype=np.int64),
            np.tile(np.arange(copies), len(prefixes)),
        )

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, rows: npt.NDArray[np.integer]) -> Lanes:
        """The lanes `rows` (indices [M]), which may repeat."""
        return replace(
            self,
            automata=tuple(self.automata[row] for row in rows.tolist()),
            owners=self.owners[rows],
            states=self.states[rows],
            scores=self.scores[rows],
            events=self.events[rows],
            contexts=self.contexts[rows],
            draws=self.draws[rows],
            caps=self.caps[rows],
            steps=self.steps[rows],
            samples=self.samples[rows],
        )

    def joined(self, others: Lanes) -> Lanes:
        """These lanes, and behind them the others."""
        width = max(self.events.shape[1], others.events.shape[1])
        draws = max(self.draws.shape[1], others.draws.shape[1])
        both = (self, others)
        return Lanes(
            self.automata + others.automata,
            np.concatenate([one.owners for one in both]),
            np.concatenate([one.states for one in both]),
            np.concatenate([one.scores for one in both]),
            np.concatenate([_widened(one.events, width) for one in both]),
            np.concatenate([one.contexts for one in both]),
            np.concatenate([_widened(one.draws, draws) for one in both]),
            np.concatenate([one.caps for one in both]),
            np.concatenate([one.steps for one in both]),
            np.concatenate([one.samples for one in both]),
        )

    def grown(self, parents: npt.NDArray[np.int64], events: npt.NDArray[np.int64], gains: Tensor) -> Lanes:
        """Lanes that continue row `parents[i]` with `events[i]`; scores grow by `gains[parent, event]`."""
        # States, scores and events are taken by parent first: a mask from another parent's state is the classic fault.
        lanes = self.take(parents)
        lanes.events[np.arange(len(lanes)), lanes.steps] = events  # take copied it
        return replace(
            lanes,
            states=masks.next_states(lanes.automata, lanes.states, events),
            scores=lanes.scores + gains.numpy()[parents, events],
            steps=lanes.steps + 1,
        )

    def newest(self) -> npt.NDArray[np.int64]:
        """Each row's newest event [N]; every row has one."""
        found: npt.NDArray[np.int64] = self.events[np.arange(len(self)), self.steps - 1]
        return found

    def next_draws(self) -> npt.NDArray[np.float64]:
        """The uniform number [N] that each row's next event is drawn by."""
        found: npt.NDArray[np.float64] = self.draws[np.arange(len(self)), self.steps]
        return found

    def left(self) -> npt.NDArray[np.int64]:
        """How many more new events [N] each row may get: cap and context together."""
        return np.minimum(self.caps, self.contexts) - self.steps

    def allowed(self, vocabulary_size: int) -> Tensor:
        """What the order allows [N, V] so that each row can still end in time."""
        return masks.order_mask(self.automata, self.states, self.left(), vocabulary_size)

    def allowed_without_budget(self, vocabulary_size: int) -> Tensor:
        """What the order would allow [N, V] if the budget had no end."""
        return masks.order_mask(self.automata, self.states, np.full(len(self), _UNLIMITED), vocabulary_size)

    def emitted(self, row: int) -> tuple[int, ...]:
        """New events of one row."""
        return tuple(self.events[row, : self.steps[row]].tolist())

    def short_of(self, row: int) -> Stop:
        """Which budget runs out first for a row: the cap, or the context."""
        return "context full" if self.contexts[row] < self.caps[row] else "capped"


def _widened(columns: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """`columns` [N, W] with zeros behind, up to `width` columns."""
    return np.pad(columns, ((0, 0), (0, width - columns.shape[1])))
