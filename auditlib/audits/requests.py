"""A cache offered to a request before the guard, and the requests that a cache is made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from auditlib.audits.base import Subject
from auditlib.audits.held_out import Row
from auditlib.audits.twins import Twins
from auditlib.decoders.protocol import Decoder
from auditlib.decoding.cache_guard import GuardedCache, GuardedDecoder
from auditlib.errors import CacheRejectedError, CancelledError, PrefixgateError

ACCEPTED = "accepted"


@dataclass(frozen=True, slots=True)
class Trial:
    """One request: what was altered, which field must say so, what is expected and what happened."""

    alteration: str
    field: str
    expected: str
    outcome: str
    detail: str

    @property
    def as_expected(self) -> bool:
        """Whether it was refused by the right field, or accepted where it is the cache's own."""
        return self.outcome == self.expected


def attempt(alteration: str, field: str, expected: str, call: Callable[[], object]) -> Trial:
    """What became of a request; a refusal for another reason, the decoder's own say, is as bad as acceptance."""
    try:
        call()
    except CacheRejectedError as refusal:
        return Trial(alteration, field, expected, f"rejected: {refusal.field}", str(refusal))
    except CancelledError:
        raise
    except PrefixgateError as problem:
        return Trial(alteration, field, expected, f"failed: {type(problem).__name__}", str(problem))
    return Trial(alteration, field, expected, ACCEPTED, "")


def guard_of(subject: Subject, decoder: Decoder, kind: type[GuardedDecoder] = GuardedDecoder) -> GuardedDecoder:
    """A guard for a decoder under the subject's event map and order; another `kind` only to show that it fails."""
    digests = subject.event_map.digest, subject.order.order.digest
    return kind(decoder, *digests, dtype=subject.dtype, device=subject.device)


@torch.no_grad()
def cache_of(guard: GuardedDecoder, *rows: Row) -> GuardedCache:
    """A cache of these rows."""
    return guard.prefill(*_tensors(guard, rows))[1]


@torch.no_grad()
def extended(guard: GuardedDecoder, cache: GuardedCache, *new: Row) -> GuardedCache:
    """The cache with new events a row, which may be none."""
    return guard.extend(*_tensors(guard, new), cache)[1]


def ask(guard: GuardedDecoder, made_of: Sequence[Row], asked: Sequence[Row]) -> None:
    """Offer a cache of some rows to a request for others."""
    guard.require(cache_of(guard, *made_of), guard.identity(asked))


def own_trials(
    subject: Subject, twins: Sequence[Twins], kind: type[GuardedDecoder] = GuardedDecoder
) -> Iterator[Trial]:
    """Requests that a cache is made for: after prefill, extend, an uneven extend, reorder, and a second loading."""
    guard = guard_of(subject, subject.decoder, kind)
    reloaded = guard_of(subject, subject.load(subject.dtype), kind)
    for one in twins:
        other = one.alike[0][1]
        calls: dict[str, Callable[[], None]] = {
            "after prefill": partial(ask, guard, [one.row, other], [one.row, other]),
            "after extend": partial(_ask_extended, guard, one.row, other, other[-1:]),
            "after an uneven extend": partial(_ask_extended, guard, one.row, other, ()),
            "after reorder": partial(_ask_reordered, guard, one.row, other),
            "after another loading": partial(_ask_reloaded, guard, reloaded, one.row),
        }
        for name, call in calls.items():
            yield attempt(f"own request {name}", "", ACCEPTED, call)


def _ask_extended(guard: GuardedDecoder, row: Row, other: Row, more: Row) -> None:
    cache = extended(guard, cache_of(guard, row, other), row[-1:], more)
    guard.require(cache, guard.identity([(*row, row[-1]), (*other, *more)]))


def _ask_reordered(guard: GuardedDecoder, row: Row, other: Row) -> None:
    cache = guard.reorder(cache_of(guard, row, other), torch.tensor([1, 0, 1], device=guard.device))
    guard.require(cache, guard.identity([other, row, other]))


def _ask_reloaded(guard: GuardedDecoder, reloaded: GuardedDecoder, row: Row) -> None:
    reloaded.require(cache_of(guard, row), reloaded.identity([row]))


def _tensors(guard: GuardedDecoder, rows: Sequence[Row]) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    events = [[*row, *[0] * (width - len(row))] for row in rows]  # any id will do under padding: it is never read
    valid = [[place < len(row) for place in range(width)] for row in rows]
    return torch.tensor(events, dtype=torch.int64, device=guard.device), torch.tensor(valid, device=guard.device)
