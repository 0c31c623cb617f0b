"""What a decoder predicts for the held-out sessions on the full path, and how good that is."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.audits.base import Subject
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Row
from auditlib.audits.shift import ShiftStudy

_CLEAR_ROUNDOFFS = 32


def session_rows(subject: Subject) -> dict[Row, int]:
    """Distinct held-out rows with their ends and how many sessions have each; cut so that the context holds them."""
    longest = subject.decoder.context_length + 1  # one more: the last event is predicted, never read
    counted = Counter(subject.row(session)[:longest] for session in subject.held_out)
    # In one order, as sums of floats depend on it: sessions that come in another give the same figures.
    return dict(sorted(counted.items(), key=lambda item: (len(item[0]), item[0])))


@dataclass
class NextEvents:
    """Next-event figures over every prefix with at least one event, the end included; weighted by sessions.

    `clear_hits` counts right predictions that lead by more than rounding: a tie broken by chance proves nothing.
    """

    dtype: torch.dtype
    shifts: ShiftStudy
    events: int = 0
    hits: int = 0
    clear_hits: int = 0
    _nll: float = 0.0
    _told: Counter[int] = field(default_factory=Counter)

    def read(self, checked: CheckedDecoder, rows: dict[Row, int]) -> None:
        """Read rows of any lengths, unpadded, and add what was predicted."""
        logits = checked.whole([row[:-1] for row in rows])
        for line, (row, weight) in zip(logits, rows.items(), strict=True):
            used = line[: len(row) - 1]
            self.shifts.add(used, row, weight)
            self._score(used[1:], torch.tensor(row[2:]), weight)

    @property
    def accuracy(self) -> float:
        """Share of events predicted."""
        return self.hits / self.events if self.events else math.nan

    @property
    def nll(self) -> float:
        """Nats an event."""
        return self._nll / self.events if self.events else math.nan

    @property
    def clear_accuracy(self) -> float:
        """Share of events predicted with a clear lead."""
        return self.clear_hits / self.events if self.events else math.nan

    @property
    def commonest(self) -> float:
        """Accuracy of always predicting the commonest event."""
        return max(self._told.values(), default=0) / self.events if self.events else math.nan

    def _score(self, logits: Tensor, told: Tensor, weight: int) -> None:
        if not len(told):
            return
        scores = logits.double().cpu()
        lead = scores.topk(2).values
        rounding = _CLEAR_ROUNDOFFS * torch.finfo(self.dtype).eps / 2 * scores.abs().amax(-1)
        right = scores.argmax(-1) == told
        self.events += weight * len(told)
        self.hits += weight * int(right.sum())
        self.clear_hits += weight * int((right & (lead[:, 0] - lead[:, 1] > rounding)).sum())
        self._nll += weight * float(F.cross_entropy(scores, told, reduction="sum"))
        for event in told.tolist():
            self._told[event] += weight
