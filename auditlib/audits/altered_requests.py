"""Requests that a cache must be refused to, each by the field that was altered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from auditlib.audits.base import Subject
from auditlib.audits.held_out import Row
from auditlib.audits.requests import Trial, ask, attempt, cache_of, extended, guard_of
from auditlib.audits.twins import Twins
from auditlib.decoders.capabilities import Fingerprinted, Inspectable
from auditlib.decoding.cache_guard import CacheIdentity, GuardedCache, GuardedDecoder
from auditlib.errors import InputError

_FIELDS = ("revision", "weights", "dtype", "device", "positions", "event_map", "event_order")


def altered_trials(
    subject: Subject,
    twins: Sequence[Twins],
    missing: dict[str, str],
    kind: type[GuardedDecoder] = GuardedDecoder,
) -> Iterator[Trial]:
    """Every alteration that the guard must refuse; what this decoder cannot be asked is noted in `missing`."""
    guard = guard_of(subject, subject.decoder, kind)
    for one in twins:
        yield from _other_events(guard, one)
        yield from _used_caches(guard, one.row)
        yield from _wrong_contents(guard, one, missing)
    for one in twins[:1]:  # these alter what surrounds a request, so one row shows it
        yield from _other_claims(guard, one.row)
        yield from _other_surroundings(subject, guard, one.row, missing)
        yield from _flipped_bit(subject, one.row, missing, kind)
        yield from _keys(guard.identity([one.row]))


def _refused(alteration: str, field: str, call: Callable[[], object]) -> Trial:
    return attempt(alteration, field, f"rejected: {field}", call)


def _other_events(guard: GuardedDecoder, one: Twins) -> Iterator[Trial]:
    for likeness, other in one.alike:
        field = "events" if len(other) == len(one.row) else "length"
        yield _refused(likeness, field, partial(ask, guard, [one.row], [other]))
    shorter = one.alike[0][1]
    # Swapped rows are told apart by their lengths before their events are looked at.
    yield _refused("one row fewer", "rows", partial(ask, guard, [one.row, shorter], [one.row]))
    yield _refused("rows swapped", "length", partial(ask, guard, [one.row, shorter], [shorter, one.row]))


def _used_caches(guard: GuardedDecoder, row: Row) -> Iterator[Trial]:
    used, rolled_back = cache_of(guard, row), extended(guard, cache_of(guard, row), row[-1:])
    extended(guard, used, row[-1:])
    own = guard.identity([row])
    yield _refused("used twice", "spent", partial(extended, guard, used, row[-1:]))
    # No verb of the contract takes events back, so asking for fewer than were read must not be served.
    yield _refused("rolled back", "length", partial(guard.require, rolled_back, own))
    yield _refused("without identity", "kind", partial(guard.require, cache_of(guard, row).inner, own))


def _wrong_contents(guard: GuardedDecoder, one: Twins, missing: dict[str, str]) -> Iterator[Trial]:
    if not isinstance(guard.decoder, Inspectable):
        missing["cache longer or shorter than it claims"] = "the decoder does not show what its caches store"
        return
    record = guard.identity([one.row])
    # The record is right and the contents are another row's: what a truncated or overrun cache looks like.
    for other in ((*one.row, one.row[-1]), one.row[:-1]):
        cache = GuardedCache(cache_of(guard, other).inner, record)
        name = "longer" if len(other) > len(one.row) else "shorter"
        yield _refused(f"{name} than it claims", "length", partial(guard.require, cache, record))


def _other_claims(guard: GuardedDecoder, row: Row) -> Iterator[Trial]:
    """Requests that state another field than the cache was made under."""
    own = guard.identity([row])
    for name in _FIELDS:
        changes: dict[str, Any] = {name: f"{getattr(own, name)} altered"}
        asked = replace(own, **changes)
        field = name.replace("_", " ")
        yield _refused(f"another {field} asked for", field, partial(guard.require, cache_of(guard, row), asked))


def _other_surroundings(subject: Subject, guard: GuardedDecoder, row: Row, missing: dict[str, str]) -> Iterator[Trial]:
    """The cache offered to a decoder that really runs under something else."""
    ids, order = subject.event_map, subject.order.order
    new_map = replace(ids, version=f"{ids.version} altered").digest
    new_order = replace(order, version=f"{order.version} altered").digest

    guarded = partial(type(guard), device=subject.device)
    guards = {
        "event map": guarded(subject.decoder, new_map, order.digest, dtype=subject.dtype),
        "event order": guarded(subject.decoder, ids.digest, new_order, dtype=subject.dtype),
    }
    other_dtype = torch.float32 if subject.dtype == torch.float64 else torch.float64
    try:
        guards["dtype"] = guarded(subject.load(other_dtype), ids.digest, order.digest, dtype=other_dtype)
    except InputError as problem:  # no float64 path is no fault: the claims above still ask for another dtype
        missing["decoder of another dtype"] = str(problem)
    for field, its in guards.items():
        yield _refused(f"decoder of another {field}", field, partial(extended, its, cache_of(guard, row), row[-1:]))


def _flipped_bit(subject: Subject, row: Row, missing: dict[str, str], kind: type[GuardedDecoder]) -> Iterator[Trial]:
    decoder = subject.load(subject.dtype)
    weights = largest_weight(decoder)
    if weights is None or not isinstance(decoder, Fingerprinted):
        missing["weights changed in place"] = "the decoder does not show or does not name its weights"
        return
    guard = guard_of(subject, decoder, kind)
    cache = cache_of(guard, row)
    weights.view(torch.uint8)[0] ^= 1  # the lowest bit of one weight, on a decoder that nobody else uses
    call = partial(extended, guard, cache, row[-1:])
    yield _refused("one bit of a weight changed in place", "weights", call)


def largest_weight(decoder: object) -> Tensor | None:
    """The largest parameter [N] as a flat view into a decoder's `module`; None where there is none to see."""
    module = getattr(decoder, "module", None)
    weights = [weight.detach() for weight in module.parameters()] if isinstance(module, nn.Module) else []
    flat = [weight.view(-1) for weight in weights if weight.is_contiguous() and weight.numel()]
    return max(flat, key=len, default=None)


def full_half(decoder: object) -> object | None:
    """What answers the full path of a pair of decoders, through whatever wraps the pair; None for a single decoder."""
    while decoder is not None and not hasattr(decoder, "reference"):
        decoder = getattr(decoder, "inner", None)
    return getattr(decoder, "reference", None)


def _keys(own: CacheIdentity) -> Iterator[Trial]:
    """Identities whose values are the same and stand elsewhere: fields run together would give them one key."""
    row = own.rows[0]
    two_names = replace(own, revision="one", weights="two")
    pairs = {
        "map and order swapped": (own, replace(own, event_map=own.event_order, event_order=own.event_map)),
        "revision and weights swapped": (two_names, replace(own, revision="two", weights="one")),
        "a boundary moved between fields": (two_names, replace(own, revision="onet", weights="wo")),
        "rows grouped otherwise": (own, replace(own, rows=(row[:1], row[1:]))),
    }
    for name, (one, other) in pairs.items():
        outcome = "same key" if one.key == other.key else "another key"
        yield Trial(name, "key", "another key", outcome, other.key)
