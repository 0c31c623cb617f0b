"""An answer beside the one that the full prefix path gives: whether they differ, where, and whether it was a near tie.

Two paths round differently, so where two events are nearly as likely each path may take another one. How near is the
margin: what logits would have to move by, at least, for the full path to choose differently at that step.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np
import torch
from torch import Tensor

from auditlib.decoding.choices import draws_of
from auditlib.decoding.filters import filtered
from auditlib.decoding.generated import normalised
from auditlib.decoding.masks import order_mask
from auditlib.decoding.paths import CachedPath, FullPath, Row
from auditlib.decoding.policies import Setting
from auditlib.serving.engine import Finished
from auditlib.serving.request import Encoded
from auditlib.serving.served import Served

NO_CHOICE = 1e6
"""The margin (logits) where the full path had one event to choose only: no rounding makes it choose another."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How an answer compares with the full path's, whose events have the digest `digest`.

    Where they differ: the first differing new event (`step`, from 0), the full path's `margin` there and the largest
    `gap` between the two paths' logits there, for the row alone; None where they are equal. Margin and gap are None
    too where they were not measured, or are no finite numbers: such a difference is never a tie.
    """

    digest: str
    step: int | None = None
    margin: float | None = None
    gap: float | None = None

    @property
    def differs(self) -> bool:
        """Whether the two answers are not the same."""
        return self.step is not None

    def is_tie(self, tolerance: float) -> bool:
        """Whether rounding within `tolerance` (logits) explains the difference."""
        return self.margin is not None and self.margin <= 2 * tolerance


def events_digest(events: Sequence[int]) -> str:
    """`sha256:<hex>` of an answer's event ids, the end included where it was given."""
    return f"sha256:{hashlib.sha256('-'.join(map(str, events)).encode()).hexdigest()}"


def is_compared(request_id: str, share: float) -> bool:
    """Whether a request is among those that are compared; chosen by its id, so that the choice can be repeated."""
    number = int.from_bytes(hashlib.sha256(f"compare {request_id}".encode()).digest()[:8], "big")
    return number < share * 2**64


def apart(given: Finished, exact: Finished) -> Difference:
    """Whether and where `given` leaves `exact`, the answer by full prefixes; by how much is not measured."""
    return _apart(given.best.events, exact.best.events)


def _apart(given: Row, exact: Row) -> Difference:
    if given == exact:
        return Difference(events_digest(exact))
    step = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(given, exact, strict=False)))
    return Difference(events_digest(exact), step)


def compared(served: Served, given: Finished, exact: Finished) -> Difference:
    """How `given` compares with `exact`, the answer by full prefixes to the same request."""
    return compare_events(served, given.encoded, given.best.events, exact.best.events)


@torch.no_grad()
def compare_events(served: Served, encoded: Encoded, given: Row, exact: Row) -> Difference:
    """How the new events `given` compare with `exact`, those of the full path for the same request."""
    found = _apart(given, exact)
    if found.step is None:
        return found
    row = (*encoded.prefix, *exact[: found.step])
    full, cached = _logits(FullPath, served, row), _logits(CachedPath, served, row)
    # Where both say -inf they agree, although -inf less -inf is no number.
    gap = float(torch.where(full == cached, 0.0, (full - cached).abs()).max())
    if served.setting.kind == "beam":
        margin = _beam_margin(served, encoded.prefix, given, exact)
    else:
        margin = _margin(served, encoded, row, found.step, full)
    return replace(found, margin=_finite(margin), gap=_finite(gap))


def _finite(value: float) -> float | None:
    """The number, or None for what is none: neither JSON nor a reader of the log has a use for NaN and infinity."""
    return value if math.isfinite(value) else None


def _logits(path: type[FullPath | CachedPath], served: Served, row: Row) -> Tensor:
    """Logits [V] after one row, alone, in float64."""
    return path(served.decoder, served.event_map.padding, served.device).join([row], 1)[0].double()


def _margin(served: Served, encoded: Encoded, row: Row, step: int, logits: Tensor) -> float:
    scores = logits.log_softmax(-1)
    if served.setting.order_mask:
        automaton = served.order.automaton(encoded.request.attributes)
        room = min(encoded.max_new, served.decoder.context_length - len(encoded.prefix)) - step
        states = np.array([automaton.state_after(row[1:])], dtype=np.int32)
        allowed = order_mask([automaton], states, np.array([room]), len(scores))[0]
        scores = scores.masked_fill(~allowed, -torch.inf)
    if int((scores > -torch.inf).sum()) < 2:
        return NO_CHOICE
    if served.setting.kind == "sampled":
        return _sampled_margin(served.setting, scores, draws_of(served.setting, encoded.prefix, 0, step + 1)[step])
    best = scores.topk(2).values
    return float(best[0] - best[1])


def _sampled_margin(setting: Setting, scores: Tensor, draw: float) -> float:
    """How far a draw lies from choosing another event.

    When no logit moves by more than d, no sum of probabilities moves by more than d / 2, so a draw that lies p beside a
    border needs d of at least 2 p to fall on its other side. The borders of the filters count too.
    """
    wide = replace(setting, top_p=1.0)
    ordered = (scores / setting.temperature).sort(descending=True).values
    likely = filtered(scores[None], wide)[0].softmax(-1)
    # The last border is 1, which no draw reaches.
    borders = filtered(scores[None], setting)[0].softmax(-1).cumsum(-1)[:-1]
    nearest = [2 * float((borders - draw).abs().min())]
    if 0 < setting.top_k < len(ordered) and ordered[setting.top_k] > -torch.inf:
        nearest.append(float(ordered[setting.top_k - 1] - ordered[setting.top_k]))
    if setting.top_p < 1:
        nearest.append(2 * float((likely.sort(descending=True).values.cumsum(-1) - setting.top_p).abs().min()))
    return min(nearest) * setting.temperature  # from scaled logits back to the decoder's own


def _beam_margin(served: Served, prefix: Row, given: Row, exact: Row) -> float:
    """Difference of the two hypotheses' normalised scores, both recomputed by the full path.

    Beams that part at a pruned near tie and end far apart are not recognised as ties: that errs on the strict side.
    """
    scores = [normalised(_score(served, prefix, events), len(events), served.setting) for events in (given, exact)]
    return abs(scores[0] - scores[1])


def _score(served: Served, prefix: Row, events: Row) -> float:
    row = torch.tensor([[*prefix, *events[:-1]]], device=served.device)
    logits = served.decoder.full(row, torch.ones_like(row, dtype=torch.bool))[0, len(prefix) - 1 :]
    new = torch.tensor(events, device=logits.device)
    return float(logits.double().log_softmax(-1).gather(-1, new[:, None]).sum()) if len(events) else 0.0
