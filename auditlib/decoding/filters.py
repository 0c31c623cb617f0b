"""Filters of the sampled policies, in the one order that is declared: temperature, then top-k, then top-p."""

from __future__ import annotations

import torch
from torch import Tensor

from auditlib.decoding.policies import Setting


def filtered(scores: Tensor, setting: Setting) -> Tensor:
    """Logits [N, V] in float64 with -inf at events that the setting's filters drop; at least one event a row survives.

    `scores` are logits or log-probabilities, -inf where an event is not allowed. Worked out in float64 whatever their
    dtype: cumulated halves of 16 bits can end below any `top_p`.
    """
    scores = scores.to(torch.float64) / setting.temperature
    if setting.top_k:
        scores = keep_top_k(scores, setting.top_k)
    return keep_top_p(scores, setting.top_p) if setting.top_p < 1 else scores


def keep_top_k(scores: Tensor, count: int) -> Tensor:
    """`scores` [N, V] with all but the `count` largest of each row at -inf; of equal ones the lower ids stay."""
    return _keep(scores, _ranking(scores), torch.arange(scores.shape[-1], device=scores.device) < count)


def keep_top_p(scores: Tensor, share: float) -> Tensor:
    """`scores` [N, V] with -inf outside the fewest likeliest events whose probabilities reach `share`.

    The event that crosses the share stays (Holtzman et al. 2020, arXiv 1904.09751), so a row always keeps its first.
    """
    ranking = _ranking(scores)
    likely = scores.gather(-1, ranking).softmax(-1)
    before = likely.cumsum(-1) - likely  # mass of the strictly likelier events
    kept = before < share
    kept[..., 0] = True
    return _keep(scores, ranking, kept)


def _ranking(scores: Tensor) -> Tensor:
    # Stable, so that ties fall to the lower id on every machine, as they do in argmax.
    return scores.sort(dim=-1, descending=True, stable=True).indices


def _keep(scores: Tensor, ranking: Tensor, kept: Tensor) -> Tensor:
    stays = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, ranking, kept.expand_as(ranking))
    return scores.masked_fill(~stays, -torch.inf)
