"""Which event a decoder predicts: the next one, or, after training on shifted targets gone wrong, another."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

SHIFTS = (-1, 0, 1, 2, 3)
TRUE_SHIFT = 1
_NATS, _SHARE = 0.05, 0.05


@dataclass(frozen=True, slots=True)
class Fit:
    """How well logits tell the event some places further on, beside what simpler predictors reach.

    `entropy` is that of the events told (what the best constant prediction pays), `constant` and `by_last` the accuracy
    of the commonest event, and of the commonest event for each last event; all on the same weighted positions.
    """

    nll: float
    accuracy: float
    entropy: float
    constant: float
    by_last: float

    @property
    def learnt(self) -> bool:
        """Whether the logits beat a constant prediction, and tell about as much as the last event alone would."""
        better = self.nll < self.entropy - _NATS and self.accuracy > self.constant
        return better and self.accuracy >= self.by_last - _SHARE

    @property
    def missed(self) -> bool:
        """Whether the logits tell clearly less than the last event alone, or pay more than a constant prediction."""
        return self.accuracy < self.by_last - _SHARE or self.nll > self.entropy + _NATS


class ShiftStudy:
    """Collects logits with the rows they belong to, and weighs them against every shift."""

    def __init__(self) -> None:
        self._nll = dict.fromkeys(SHIFTS, 0.0)
        self._hits = dict.fromkeys(SHIFTS, 0.0)
        # Weighted counts of (last event, told event).
        self._told: dict[int, Counter[tuple[int, int]]] = {shift: Counter() for shift in SHIFTS}

    def add(self, logits: Tensor, row: tuple[int, ...], weight: int) -> None:
        """Note logits [T, V] after each event of `row`, which has T + 1; the first place is left out."""
        guesses = F.log_softmax(logits.double().cpu(), -1)
        events = torch.tensor(row)
        for shift in SHIFTS:
            places = torch.arange(1, len(guesses))
            # The start token is no event that could be told: it stands in front of every row.
            places = places[(places + shift >= 1) & (places + shift < len(row))]
            told = events[places + shift]
            self._nll[shift] -= weight * float(guesses[places, told].sum())
            self._hits[shift] += weight * float((guesses[places].argmax(-1) == told).sum())
            for pair in zip(events[places].tolist(), told.tolist(), strict=True):
                self._told[shift][pair] += weight

    def fit(self, shift: int) -> Fit | None:
        """The fit of one shift; None where no position has an event there."""
        total = self._told[shift].total()
        if not total:
            return None
        nll = self._nll[shift] / total
        told: Counter[int] = Counter()
        commonest: dict[int, int] = {}
        for (last, event), count in self._told[shift].items():
            told[event] += count
            commonest[last] = max(commonest.get(last, 0), count)
        entropy = -sum(count / total * math.log(count / total) for count in told.values())
        constant, by_last = max(told.values()) / total, sum(commonest.values()) / total
        return Fit(math.inf if math.isnan(nll) else nll, self._hits[shift] / total, entropy, constant, by_last)

    def wrong_by(self) -> tuple[float, int]:
        """Nats by which a wrong shift beats the true one, and that shift; 0 and the true shift when none does.

        A lower loss alone proves nothing: where events repeat, a sound decoder tells the current event better than the
        next. So the wrong shift must also be learnt (about as good as the last event alone would tell it), and the true
        one missed.
        """
        true = self.fit(TRUE_SHIFT)
        if true is None or not true.missed:
            return 0.0, TRUE_SHIFT
        wrong = {shift: self.fit(shift) for shift in SHIFTS if shift != TRUE_SHIFT}
        beaten = [(true.nll - fit.nll, shift) for shift, fit in wrong.items() if fit and fit.learnt]
        return max([(0.0, TRUE_SHIFT), *((by, shift) for by, shift in beaten if by > 0)])
