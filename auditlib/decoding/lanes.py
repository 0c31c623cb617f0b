"""The rows that generation still works on, kept side by side: one lane a row, ordered by the prefix it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """N live rows: prefix `owners` [N], order `states` [N], `scores` [N], new `events` [N, max_new] up to `steps`.

    `rooms` [N] is how many new events a row may get in all, `contexts` [N] how many its context could hold; `draws`
    [N, max_new] are its uniform numbers (no columns unless sampled). Everything about a row moves together.
    """

    automata: tuple[OrderAutomaton, ...]
    owners: npt.NDArray[np.int64]
    states: npt.NDArray[np.int32]
    scores: npt.NDArray[np.float64]
    events: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.int64]
    draws: npt.NDArray[np.float64]
    steps: int = 0

    @classmethod
    def opening(
        cls,
        prefixes: Sequence[tuple[int, ...]],
        automata: Sequence[OrderAutomaton],
        setting: Setting,
        max_new: int,
        context_length: int,
    ) -> Lanes:
        """One lane a prefix, or one for each of its samples. Beams start as one lane: equal ones would never part."""
        copies = setting.width if setting.kind == "sampled" else 1
        owners = np.repeat(np.arange(len(prefixes)), copies)
        states = [automaton.state_after(prefix[1:]) for prefix, automaton in zip(prefixes, automata, strict=True)]
        draws = np.empty((len(owners), 0))
        if setting.kind == "sampled":
            draws = np.array([draws_of(setting, prefix, n, max_new) for prefix in prefixes for n in range(copies)])
        return cls(
            tuple(automata[owner] for owner in owners.tolist()),
            owners,
            np.array(states, dtype=np.int32)[owners],
            np.zeros(len(owners)),
            np.zeros((len(owners), max_new), dtype=np.int64),
            np.array([context_length - len(prefix) for prefix in prefixes])[owners],
            draws,
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
        )

    def grown(self, parents: npt.NDArray[np.int64], events: npt.NDArray[np.int64], gains: Tensor) -> Lanes:
        """Lanes that continue row `parents[i]` with `events[i]`; scores grow by `gains[parent, event]`."""
        # States, scores and events are taken by parent first: a mask from another parent's state is the classic fault.
        lanes = self.take(parents)
        lanes.events[:, self.steps] = events  # take copied it
        return replace(
            lanes,
            states=masks.next_states(lanes.automata, lanes.states, events),
            scores=lanes.scores + gains.numpy()[parents, events],
            steps=self.steps + 1,
        )

    def left(self) -> npt.NDArray[np.int64]:
        """How many more new events [N] each row may get: cap and context together."""
        return np.minimum(self.events.shape[1], self.contexts) - self.steps

    def allowed(self, vocabulary_size: int) -> Tensor:
        """What the order allows [N, V] so that each row can still end in time."""
        return masks.order_mask(self.automata, self.states, self.left(), vocabulary_size)

    def allowed_without_budget(self, vocabulary_size: int) -> Tensor:
        """What the order would allow [N, V] if the budget had no end."""
        return masks.order_mask(self.automata, self.states, np.full(len(self), _UNLIMITED), vocabulary_size)

    def emitted(self, row: int) -> tuple[int, ...]:
        """New events of one row."""
        return tuple(self.events[row, : self.steps].tolist())

    def short_of(self, row: int) -> Stop:
        """Which budget runs out first for a row: the cap, or the context."""
        return "context full" if self.contexts[row] < self.events.shape[1] else "capped"
