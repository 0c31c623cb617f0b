"""Rows of event ids grouped for the model: each distinct row once with its weight, rows of like length together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

Row = tuple[int, ...]


def distinct(rows: Iterable[Sequence[int]], longest: int | None = None) -> dict[Row, int]:
    """Each distinct row with how often it occurs, shortest first; rows are cut to `longest` ids when given."""
    counted = Counter(tuple(row)[:longest] for row in rows)
    return dict(sorted(counted.items(), key=lambda item: (len(item[0]), item[0])))


def in_batches(counted: dict[Row, int], positions: int) -> Iterator[list[Row]]:
    """The rows in their order, in lists that fill at most `positions` places when padded to their longest row.

    A row longer than `positions` comes alone.
    """
    batch: list[Row] = []
    longest = 0
    for row in counted:
        longest = max(longest, len(row))
        if batch and longest * (len(batch) + 1) > positions:
            yield batch
            batch, longest = [], len(row)
        batch.append(row)
    if batch:
        yield batch


def padded(rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    """Events int64 [B, T] and valid bool [B, T] of the rows, padded on the right with id 0."""
    lengths = torch.tensor([len(row) for row in rows])
    valid = torch.arange(int(lengths.max())) < lengths[:, None]
    events = torch.zeros(valid.shape, dtype=torch.int64)
    events[valid] = torch.tensor([event for row in rows for event in row])
    return events, valid
