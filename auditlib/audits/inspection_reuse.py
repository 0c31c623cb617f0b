"""One prefix's cache offered to another: the guard's answer, and what a service without a guard would have said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder
from auditlib.decoders.capabilities import Attentive, Described
from auditlib.decoders.protocol import Decoder
from auditlib.decoding.cache_guard import GuardedDecoder
from auditlib.errors import CacheRejectedError, DecoderError
from auditlib.events.event_map import EventMap


@dataclass(frozen=True, slots=True)
class Reuse:
    """What became of a cache that was offered to a request.

    `field` and `reason` say why the guard refused it, both empty when it was taken. `gap` is the largest logit
    difference between the answer that the cache would have given and the right one, NaN when the decoder itself would
    not have gone on from it, for the reason in `problem`. `answers`: event, id, right and from_cache (probabilities),
    most probable first; empty where there is no answer.
    """

    field: str
    reason: str
    gap: float
    answers: pd.DataFrame
    problem: str

    @property
    def accepted(self) -> bool:
        """Whether the cache was made for exactly this request."""
        return not self.field


def try_reuse(
    decoder: Decoder,
    event_map: EventMap,
    order_digest: str,
    held: Sequence[int],
    asked: Sequence[int],
    device: str = "cpu",
) -> Reuse:
    """Offer the cache of prefix `held` to a request for prefix `asked`, whose last event is to be appended.

    A service that continues `asked` looks for the cache of everything but its last event; this is where it could take
    the wrong one. DecoderError when `asked` has no event behind the start.
    """
    if len(asked) < 2:
        raise DecoderError("a request without an event behind the start has nothing to append; choose a longer one")
    dtype = decoder.dtype if isinstance(decoder, Described) else torch.float32
    guard = GuardedDecoder(decoder, event_map.digest, order_digest, dtype=dtype, device=device)
    checked = CheckedDecoder(guard, device, lambda: None)
    _, cache = checked.prefill(*_row(checked, held))
    field, reason = "", ""
    try:
        guard.require(cache, guard.identity([asked[:-1]]))
    except CacheRejectedError as refused:
        field, reason = refused.field, str(refused)
    right = checked.full(*_row(checked, asked))[0, -1]
    try:
        # Past the guard, as a service that has none.
        plain = CheckedDecoder(decoder, device, lambda: None)
        wrong = plain.extend(*_row(plain, asked[-1:]), cache.inner)[0][0, -1]
    except Exception as problem:  # noqa: BLE001  # a stranger's decoder may refuse in any way
        return Reuse(field, reason, float("nan"), pd.DataFrame(), f"{type(problem).__name__}: {problem}")
    gap = float((wrong.double() - right.double()).abs().max())
    return Reuse(field, reason, gap, _answers(event_map, right, wrong), "")


def attention_of(decoder: Decoder, ids: Sequence[int], device: str = "cpu") -> Tensor | None:
    """Attention [layers, heads, T, T] in a prefix; None where the decoder does not offer it.

    DecoderError when what it offers is not a share of earlier events.
    """
    if not isinstance(decoder, Attentive):
        return None
    found = decoder.attention(torch.tensor(ids, dtype=torch.int64, device=device)).float().cpu()
    size = len(ids)
    shaped = found.dim() == 4 and found.shape[2:] == (size, size)
    # Sums of shares in 16 bits come no closer to 1 than a hundredth.
    if not shaped or not torch.allclose(found.sum(-1), torch.ones(()), atol=1e-2) or bool(found.triu(1).any()):
        raise DecoderError("the decoder's attention is no share of earlier events; its adapter must be mended")
    return found


def _row(checked: CheckedDecoder, row: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Events and validity [1, T] of one row."""
    return checked.stack([tuple(row)])  # noqa: PD013  no data frame


def _answers(event_map: EventMap, right: Tensor, wrong: Tensor) -> pd.DataFrame:
    named = [event_map.end, *event_map.domain]
    chances = [logits.double().softmax(-1).cpu()[torch.tensor(named)].tolist() for logits in (right, wrong)]
    names = [event_map.name(event) for event in named]
    table = pd.DataFrame({"event": names, "id": named, "right": chances[0], "from_cache": chances[1]})
    return table.sort_values(["right", "id"], ascending=[False, True], ignore_index=True)
