"""Decisions of the cached path: the next event it would choose, wherever that is not a tie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_TOP = (1, 3)


@dataclass
class Decisions:
    """Counts of top-1 and top-3 choices: compared, different, and left out as ties; the largest divergence in nats."""

    compared: int = 0
    different: int = 0
    ties: int = 0
    divergence: float = 0.0

    def add(self, cached: Tensor, exact: Tensor, margin: float) -> None:
        """Compare logits [N, V]. Where the exact choice leads by less than `margin`, either outcome is right."""
        for top in _TOP:
            # With no more events than places, every event is chosen and no choice can differ.
            if top < exact.shape[-1]:
                self._choices(cached, exact.double(), top, margin)
        logs = F.log_softmax(exact.double(), -1)
        apart = (logs.exp() * (logs - F.log_softmax(cached.double(), -1))).sum(-1)  # Kullback and Leibler 1951
        largest = float(torch.where(apart.isnan(), torch.inf, apart).max()) if len(apart) else 0.0
        self.divergence = max(self.divergence, largest)

    def _choices(self, cached: Tensor, exact: Tensor, top: int, margin: float) -> None:
        leading = exact.topk(top + 1)
        clear = leading.values[:, top - 1] - leading.values[:, top] >= margin
        chosen = torch.zeros_like(exact, dtype=torch.bool).scatter_(1, leading.indices[:, :top], value=True)
        cached_chosen = torch.zeros_like(chosen).scatter_(1, cached.topk(top).indices, value=True)
        wrong = (chosen != cached_chosen).any(-1) & clear
        self.compared += int(clear.sum())
        self.different += int(wrong.sum())
        self.ties += int((~clear).sum())
