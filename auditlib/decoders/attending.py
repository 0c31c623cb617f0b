"""What each event of an `event_gpt` attends to: the others of its own call, or everything that the cache has stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.decoders.capabilities import Alter
from auditlib.decoders.key_value_cache import Append, write_new
from auditlib.decoders.layers import Attend


def altered(alter: Alter | None, attend: Attend) -> Attend:
    """`attend` after `alter`."""
    if alter is None:
        return attend
    return lambda layer, queries, keys, values: attend(layer, queries, *alter(layer, keys, values))


def attend_in_place(valid: Tensor | None) -> Attend:
    """Causal attention among the events at hand; `valid` [B, T] is None where all are valid."""
    if valid is None:
        return lambda _, queries, keys, values: F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
    size = valid.shape[1]
    earlier = torch.ones(size, size, dtype=torch.bool, device=valid.device).tril_()
    # Padding may see itself: a query that sees nothing gives NaN on some backends.
    itself = torch.eye(size, dtype=torch.bool, device=valid.device)
    mask = ((valid[:, None] & earlier) | itself)[:, None]  # [B, 1, T, T]
    return lambda _, queries, keys, values: F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)


def attend_to_store(store: Tensor, append: Append, window: int | None) -> Attend:
    """Attention of new events to all stored ones up to themselves, after storing them."""
    first = 0
    mask: Tensor | None = None
    if append.one_each:
        # One event a row, all at the same place: what it may see is a plain slice.
        first = max(0, append.longest - (window or append.longest))
    else:
        mask = append.visible(window)

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Mixed values [B, H, K, D] of the new events; their keys and values go into the store first."""
        write_new(store[layer], keys, values, append)
        seen = store[layer, :, :, :, first : append.longest]
        return F.scaled_dot_product_attention(queries, seen[0], seen[1], attn_mask=mask)

    return attend
