"""Probes of a decoding setting: its effective cap, its scores, and what its filters keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.emitted import Bounds, Emitted
from auditlib.audits.held_out import Row, batches
from auditlib.audits.policy_runs import Runs, places
from auditlib.audits.prefix_set import PrefixCase
from auditlib.decoders.protocol import Decoder
from auditlib.decoding import filters
from auditlib.decoding.generated import Generated, normalised
from auditlib.decoding.policies import Setting

Keep = Callable[[Tensor, Setting], Tensor]
"""Filters: scores [N, V] → the same with -inf at what they drop."""

_SOME = 16
_AVERSION = 1e4  # logits: enough that no end is ever chosen while anything else may be


class EndAverse:
    """A decoder that all but never ends a session: under it, only the cap and the order can."""

    def __init__(self, decoder: Decoder, end: int) -> None:
        self._decoder, self._end = decoder, end
        self.revision = decoder.revision
        self.vocabulary_size = decoder.vocabulary_size
        self.context_length = decoder.context_length

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits of the decoder, the end's lowered; so in each verb that gives logits."""
        return self._averse(self._decoder.full(events, valid))

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """See `full`."""
        logits, cache = self._decoder.prefill(events, valid)
        return self._averse(logits), cache

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """See `full`."""
        logits, cache = self._decoder.extend(events, valid, cache)
        return self._averse(logits), cache

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """The decoder's own."""
        return self._decoder.reorder(cache, parents)

    def cache_bytes(self, cache: Any) -> int:
        """The decoder's own."""
        return self._decoder.cache_bytes(cache)

    def _averse(self, logits: Tensor) -> Tensor:
        logits = logits.clone()  # the decoder may keep what it gave
        logits[..., self._end] -= _AVERSION
        return logits


def wrong_caps(runs: Runs, setting: Setting, cases: Sequence[PrefixCase]) -> tuple[int, int]:
    """How many sequences stop elsewhere than at their cap though the decoder never wants to end; how many ran.

    Under the order mask a sequence may end earlier only in a state that allows nothing but the end.
    """
    some = [cases[place] for place in places(len(cases), _SOME)]
    # A single hypothesis: wider beams take an unwanted end where the order leaves fewer ways on than beams.
    single = replace(setting, width=1)
    averse = EndAverse(runs.subject.decoder, runs.subject.event_map.end)
    bounds, end = runs.bounds(setting), runs.subject.event_map.end
    wrong = looked = 0
    for case, hypotheses in zip(some, runs.run(single, some, decoder=averse), strict=True):
        for found in hypotheses:
            looked += 1
            wrong += not _fills(case, found, bounds, end)
    return wrong, looked


def _fills(case: PrefixCase, found: Generated, bounds: Bounds, end: int) -> bool:
    room = bounds.room(case)
    if len(found.events) == room and found.cap == room:
        return True
    if not bounds.order_mask or len(found.events) > room:
        return False
    # Short of its room: right only where the order left nothing but the end, or no way to it from the outset.
    ended = found.events[-1:] == (end,)
    state = case.automaton.state_after((*case.row[1:], *found.events[: len(found.events) - ended]))
    if state < 0 or found.cap != room:
        return False
    if ended:
        legal = case.automaton.legal[state]
        return bool(legal[end]) and int(legal.sum()) == 1
    return not found.events and int(case.automaton.to_end[state]) > room


def score_error(runs: Runs, setting: Setting, emitted: Sequence[Emitted]) -> float:
    """Largest error of a beam score: against one full pass over its events, or against a better beam ranked behind it.

    `emitted` are the hypotheses of one prefix after those of another, best first. NaN where a score is none.
    """
    scores = _full_scores(runs, emitted)
    errors = [abs(score - one.found.score) for score, one in zip(scores, emitted, strict=True)]
    ranks = [normalised(score, len(one.found.events), setting) for score, one in zip(scores, emitted, strict=True)]
    pairs = zip(emitted, emitted[1:], ranks, ranks[1:], strict=False)
    errors += [behind - ahead for one, other, ahead, behind in pairs if one.case is other.case]
    return float(torch.tensor([0.0, *errors], dtype=torch.float64).max())  # max() of Python would lose a NaN


def _full_scores(runs: Runs, emitted: Sequence[Emitted]) -> list[float]:
    """Sum of the log-probabilities of the new events of each sequence, from the full path on whole rows."""
    order = sorted(range(len(emitted)), key=lambda place: len(emitted[place].row))
    scores = [0.0] * len(emitted)
    following = iter(order)
    for rows, logits in _whole(runs, [emitted[place].row for place in order]):
        likely = logits.double().log_softmax(-1)
        for line, row in zip(likely, rows, strict=True):
            place = next(following)
            start = len(emitted[place].case.row)  # the first new event is predicted one position earlier
            new = torch.tensor(row[start:], dtype=torch.int64)
            scores[place] = float(line[start - 1 : len(row) - 1].gather(-1, new[:, None]).sum())
    return scores


def filter_errors(
    runs: Runs, setting: Setting, cases: Sequence[PrefixCase], keep: Keep | None = None
) -> tuple[int, int]:
    """After how many prefixes the filters keep other events than their definition says; how many were looked at."""
    wrong = looked = 0
    for rows, logits in _whole(runs, [case.row for case in cases]):
        after = logits[torch.arange(len(rows)), torch.tensor([len(row) - 1 for row in rows])]
        kept = (keep or filters.filtered)(after, setting) > -torch.inf
        for line, mine in zip(after.double(), kept.tolist(), strict=True):
            looked += 1
            wrong += not _as_defined(line, mine, setting)
    return wrong, looked


def _as_defined(logits: Tensor, kept: Sequence[bool], setting: Setting) -> bool:
    """Whether `kept` [V] are the events that temperature, top-k and top-p leave, worked out one event after another."""
    values = logits.tolist()
    ranked = sorted((n for n in range(len(values)) if values[n] > -torch.inf), key=lambda n: (-values[n], n))
    ranked = ranked[: setting.top_k or len(ranked)]
    mass, survivors = 0.0, list[int]()
    for event, likely in zip(ranked, (logits[ranked] / setting.temperature).softmax(-1).tolist(), strict=True):
        if survivors and setting.top_p < 1 and abs(mass - setting.top_p) < 1e-9:
            return True  # within rounding of the threshold either answer is right
        if survivors and setting.top_p < 1 and mass >= setting.top_p:
            break
        survivors.append(event)
        mass += likely
    return sorted(survivors) == [event for event, stays in enumerate(kept) if stays]


def _whole(runs: Runs, rows: Sequence[Row]) -> Iterator[tuple[list[Row], Tensor]]:
    """Rows in batches with their logits [B, T, V] of the full path, unpadded, on the CPU."""
    checked = CheckedDecoder(runs.subject.decoder, runs.subject.device, runs.watch.tick, as_given=True)
    for batch in batches(rows, runs.subject.decoder.vocabulary_size, runs.subject.most_rows):
        yield batch, checked.whole(batch).cpu()
