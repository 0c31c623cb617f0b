"""Probes of causality for decoders that offer more than contract 1: exact gradients, and poison in keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from auditlib.audits.causal_probes import Laid
from auditlib.audits.changes import Change, Moved, moved
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.held_out import Material, Row
from auditlib.decoders.capabilities import Alter, Alterable, Differentiable, Inspectable

_POISON = 1e18
_MOST_EVENTS, _MOST_LOGITS = 24, 1 << 23


def jacobian(decoder: Differentiable, material: Material, laid: Laid, device: str, seen: Change) -> None:
    """Note the absolute gradient of each logit by the embeddings of later and of invalid positions.

    One line of the batch a logit, so that no two gradients can cancel: a signed sum over logits vanishes behind a
    normalisation although its parts do not.
    """
    events, valid = (tensor[None] for tensor in laid.tensors(material.padding, device))
    columns = range(laid.left, laid.left + len(laid.row))
    asked_events = max(2, min(_MOST_EVENTS, _MOST_LOGITS // (len(laid.row) * events.shape[1] * material.vocabulary)))
    ids = range(0, material.vocabulary, max(1, material.vocabulary // asked_events))
    asked = torch.tensor([(column, event) for column in columns for event in ids], device=device)
    embeddings = decoder.embed(events).detach().repeat(len(asked), 1, 1).requires_grad_()
    logits = decoder.full_from_embeddings(embeddings, valid.repeat(len(asked), 1))
    chosen = logits[torch.arange(len(asked), device=device), asked[:, 0], asked[:, 1]]
    (gradient,) = torch.autograd.grad(chosen.sum(), embeddings)
    felt = gradient.double().abs().amax(-1)  # [N, T]: of logit n, by position t
    felt = torch.where(felt.isnan(), torch.inf, felt)
    forbidden = (torch.arange(events.shape[1], device=device) > asked[:, :1]) | ~valid
    seen.note("full", Moved(felt, (felt != 0).long()), forbidden, [laid.row] * len(asked), -laid.left)


def poison_full(decoder: Alterable, material: Material, laid: Laid, device: str, seen: Change) -> None:
    """Huge keys and values at every later and every invalid position: masked slots must have exactly no weight.

    A mask that only adds a large negative number is beaten by a larger score. Both signs are tried, as the sign of a
    score depends on the query.
    """
    events, valid = laid.tensors(material.padding, device)
    columns = torch.arange(laid.left, laid.left + len(laid.row), device=device).repeat(2)
    base, masks = events.repeat(len(columns), 1), valid.repeat(len(columns), 1)
    forbidden = (torch.arange(len(events), device=device) > columns[:, None]) | ~masks
    signs = _signs(len(laid.row), device)
    with torch.no_grad():
        clean = decoder.full_altered(base, masks, _poison(torch.zeros_like(forbidden), signs))
        dirty = decoder.full_altered(base, masks, _poison(forbidden, signs))
    seen.note("full", moved(clean, dirty), ~forbidden, [laid.row] * len(columns), -laid.left)


def poison_append(decoder: Alterable, checked: CheckedDecoder, row: Row, prompt: int, seen: Change) -> None:
    """The same for the later events of one append onto a cache of `prompt` events."""
    chunk = len(row) - prompt
    columns, signs = torch.arange(chunk, device=checked.device).repeat(2), _signs(chunk, checked.device)
    later = torch.arange(chunk, device=checked.device) > columns[:, None]
    events, valid = checked.stack([row] * len(columns))

    def appended(poisoned: Tensor) -> Tensor:
        """Logits [2K, K, V] of the K appended events; each time after a new prefill, as an append spends its cache."""
        _, cache = checked.prefill(events[:, :prompt], valid[:, :prompt])
        with torch.no_grad():
            return decoder.extend_altered(events[:, prompt:], valid[:, prompt:], cache, _poison(poisoned, signs))[0]

    found = moved(appended(torch.zeros_like(later)), appended(later))
    seen.note("extend", found, ~later, [row] * len(columns), prompt)


def poison_unread_slots(decoder: Inspectable, checked: CheckedDecoder, material: Material, seen: Change) -> None:
    """Huge numbers in the slots that shorter rows have not filled yet; then two single events."""
    rows = material.rows(4, 9, "unread slots")
    room = max(1, material.context - 2)
    lengths = [min(length, room) for length in (3, 7, 1, 5)]
    steps = min(2, material.context - max(lengths))
    clean = _continued(decoder, checked, rows, lengths, steps, 0.0)
    for sign in (1.0, -1.0):
        for step, found in enumerate(_continued(decoder, checked, rows, lengths, steps, sign)):
            same = torch.ones(len(rows), 1, dtype=torch.bool, device=checked.device)
            read = [row[: length + step + 1] for row, length in zip(rows, lengths, strict=True)]
            seen.note("extend", moved(clean[step], found), same, read, max(lengths) + step)


def _continued(
    decoder: Inspectable, checked: CheckedDecoder, rows: list[Row], lengths: list[int], steps: int, sign: float
) -> list[Tensor]:
    """Logits [B, 1, V] of single events after prompts of `lengths`, with poison of that sign (0: none) in between."""
    width = max(lengths)
    prompts = [row[:length] + row[:1] * (width - length) for row, length in zip(rows, lengths, strict=True)]
    events, _ = checked.stack(prompts)
    valid = torch.arange(width, device=checked.device) < torch.tensor(lengths, device=checked.device)[:, None]
    _, cache = checked.prefill(events, valid)
    if sign:
        _spoil(decoder, cache, sign)
    found = []
    for step in range(steps):
        new, all_valid = checked.stack([(row[length + step],) for row, length in zip(rows, lengths, strict=True)])
        logits, cache = checked.extend(new, all_valid, cache)
        found.append(logits)
    return found


def _signs(count: int, device: str) -> Tensor:
    """`count` times plus, then as many times minus."""
    return torch.tensor([1.0] * count + [-1.0] * count, device=device)


def _poison(where: Tensor, signs: Tensor) -> Alter:
    """Puts poison of each row's sign at the positions `where` [B, T] of keys and values [B, H, T, D]."""

    def alter(_: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values with poison at `where`, whatever the layer; what stood elsewhere is left as it was."""
        amount = (signs * _amount(keys.dtype)).to(keys.dtype)[:, None, None, None]
        spots = where[:, None, :, None]
        return torch.where(spots, amount, keys), torch.where(spots, amount, values)

    return alter


def _amount(dtype: torch.dtype) -> float:
    """Poison that stays finite when multiplied with a query: far above every honest number, below overflow."""
    return float(min(_POISON, torch.finfo(dtype).max ** 0.5 / 8))


def _spoil(decoder: Inspectable, cache: Any, sign: float) -> None:
    """Fill every slot from a row's length on, in place."""
    with torch.no_grad():
        keys, values, lengths = decoder.stored(cache)  # [layers, B, H, S, D]
        for row, length in enumerate(lengths.tolist()):
            for stored in (keys, values):
                stored[:, row, :, length:] = sign * _amount(stored.dtype)
