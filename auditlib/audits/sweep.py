"""Whole held-out rows through the cached path in large batches, a fixed number of events at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Row


@dataclass(frozen=True, slots=True)
class Advance:
    """How a row is read by the cached path: `first` events at once, then `size` at a time."""

    first: int
    size: int


def cached_logits(checked: CheckedDecoder, rows: Sequence[Row], advance: Advance, filler: int) -> tuple[Tensor, Tensor]:
    """Cached logits [B, T, V] of `rows`, and which of them [B, T] were given for an event of a row.

    Every row of a batch advances by the same number of events, without padding: a row that is over goes on with
    `filler` events, whose logits nobody looks at. So no other feature of the cache takes part, and rows of many
    lengths share a batch.
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    events, _ = checked.stack([row + (filler,) * (longest - len(row)) for row in rows])
    valid = torch.ones_like(events, dtype=torch.bool)
    first = min(advance.first, longest)
    last, cache = checked.prefill(events[:, :first], valid[:, :first])
    logits = last.new_zeros(*events.shape, last.shape[-1])
    logits[:, first - 1] = last
    for begin in range(first, longest, advance.size):
        new = slice(begin, min(begin + advance.size, longest))
        logits[:, new], cache = checked.extend(events[:, new], valid[:, new], cache)
    places = torch.arange(longest)
    # A prefill answers for its last event only: the columns before it were never filled.
    return logits, (places >= first - 1) & (places < lengths[:, None])
