"""Logits saved beside a revision: a later load that computes something else is refused.

Shapes: N prefixes, T positions, M valid positions in all, V events.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auditlib.decoders.protocol import Decoder
from auditlib.decoders.tensor_file import read_tensors, write_tensors
from auditlib.errors import DecoderError, IntegrityError, RevisionError

REFERENCE = "reference.safetensors"
LARGEST_REFERENCE = 64 << 20

# How far a load may be off, relative to max(1, |logit|). Float64 noise is about 1e-14; the wider limits are for
# decoders without a float64 path, where they still see wrong weights but no longer a subtle change.
_LIMITS = {torch.float64: 1e-9, torch.float32: 1e-3}
_WIDEST_LIMIT = 0.2


def make_reference(decoder: Decoder, rows: Sequence[Sequence[int]], count: int = 24) -> bytes:
    """Safetensors bytes of fixed prefixes of `rows` (ids from start to end) with the logits of `decoder` in float64.

    Among the prefixes are a one-event one, short and long ones, and two at the context boundary (full, and one less).
    """
    prefixes = reference_prefixes(rows, decoder.context_length, count)
    events = torch.zeros(len(prefixes), max(map(len, prefixes)), dtype=torch.int64)
    valid = torch.zeros_like(events, dtype=torch.bool)
    for row, prefix in enumerate(prefixes):
        events[row, : len(prefix)] = torch.tensor(prefix)
        valid[row, : len(prefix)] = True
    logits = _logits(decoder, events, valid)
    if logits.dtype != torch.float64:
        raise DecoderError(f"reference logits are made in float64, this decoder computes in {logits.dtype}")
    return write_tensors({"events": events, "valid": valid, "logits": logits})


def reference_prefixes(rows: Sequence[Sequence[int]], context: int, count: int) -> list[tuple[int, ...]]:
    """About `count` distinct prefixes of `rows`, the same for the same rows, and constructed ones at the boundary."""
    whole = sorted({tuple(row[:-1])[:context] for row in rows if len(row) > 1}, key=lambda row: (len(row), row))
    if not whole:
        raise DecoderError("reference logits need at least one held-out session")
    spread = [whole[index * (len(whole) - 1) // max(1, count - 1)] for index in range(count)]
    cut = [row[: 1 + (3 * number) % len(row)] for number, row in enumerate(spread)]
    longest = whole[-1]
    again = longest[1:] or longest
    filled = longest + again * (context // len(again) + 1)
    boundary = [filled[:context], filled[: max(1, context - 1)]]
    return list(dict.fromkeys([longest[:1], *spread, *cut, *boundary]))


def check_reference(data: bytes, decoder: Decoder, where: str) -> None:
    """Raise IntegrityError unless `decoder` reproduces the saved logits, RevisionError for a file without sense."""
    tensors = read_tensors(data, where)
    if set(tensors) != {"events", "valid", "logits"}:
        raise RevisionError(f"{where}: holds {sorted(tensors)[:5]}; it must hold events, valid and logits")
    events, valid, saved = tensors["events"], tensors["valid"], tensors["logits"]
    _check_shapes(events, valid, saved, decoder, where)
    found = _logits(decoder, events, valid)
    limit = _LIMITS.get(getattr(decoder, "dtype", found.dtype), _WIDEST_LIMIT)
    gaps = (found.double() - saved).abs() / saved.abs().clamp(min=1.0)
    worst = gaps.max()
    if not bool(worst <= limit):  # a NaN is no agreement
        raise IntegrityError(
            f"{where}: the decoder's logits differ from the saved ones by {float(worst):.3g}, more than {limit:g}: "
            "weights, code or device compute something else than when the revision was made; restore it or audit anew"
        )


def _check_shapes(events: Tensor, valid: Tensor, saved: Tensor, decoder: Decoder, where: str) -> None:
    fits = (
        events.dim() == 2
        and (events.dtype, valid.dtype, saved.dtype) == (torch.int64, torch.bool, torch.float64)
        and valid.shape == events.shape
        and bool(valid.any(1).all())
        and saved.shape == (int(valid.sum()), decoder.vocabulary_size)
        and len(saved) > 0
        and 0 <= int(events.min()) <= int(events.max()) < decoder.vocabulary_size
        and int(valid.sum(1).max()) <= decoder.context_length
    )
    if not fits:
        raise RevisionError(f"{where}: events, valid and logits do not fit each other or the decoder")


def _logits(decoder: Decoder, events: Tensor, valid: Tensor) -> Tensor:
    """Logits [M, V] of the valid positions, on the CPU; prefixes of one length together, so that few are padded."""
    device = getattr(decoder, "device", torch.device("cpu"))
    lengths = valid.sum(1)
    found = torch.empty(0)
    for length in sorted(set(lengths.tolist())):
        rows = (lengths == length).nonzero()[:, 0]
        logits = decoder.full(events[rows].to(device), valid[rows].to(device)).cpu()
        if not len(found):
            found = logits.new_zeros(*events.shape, logits.shape[-1])
        found[rows] = logits
    return found[valid]
