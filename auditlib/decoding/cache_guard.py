"""Which request a cache belongs to, and a decoder that refuses every other one.

A cache that is offered to the wrong request gives fluent, wrong answers. So it carries its identity, the request states
its own, and both are compared field by field, events included: hashes find a cache, they do not prove whose it is.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.capabilities import Described, Fingerprinted, Inspectable
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CacheRejectedError

Rows = tuple[tuple[int, ...], ...]

_DOMAIN = b"prefixgate cache identity 1"
_UNNAMED = "unnamed: this decoder cannot name its weights"


@dataclass(frozen=True, slots=True)
class CacheIdentity:
    """Everything that a cache depends on. The narrow fields come first, so that a refusal names the cause.

    `weights` is the fingerprint of the weights as they are, where `revision` is only their name; `event_map` and
    `event_order` are digests; `device` is the class of device; `rows` are the exact events of each row, start included.
    """

    event_map: str
    event_order: str
    dtype: str
    device: str
    positions: str
    revision: str
    weights: str
    rows: Rows

    @property
    def key(self) -> str:
        """SHA-256 (hex) over the domain and each field behind its name and length; no two identities share one."""
        digest = hashlib.sha256()
        for part in (_DOMAIN, *self._parts()):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()

    def _parts(self) -> Iterator[bytes]:
        for name in _NAMES:
            yield name.encode()
            yield str(getattr(self, name)).encode()
        yield len(self.rows).to_bytes(8, "big")
        for row in self.rows:
            yield b"".join(event.to_bytes(8, "big", signed=True) for event in row)

    def check(self, asked: CacheIdentity) -> None:
        """Nothing when a cache of this identity serves the request `asked`, else CacheRejectedError with the field."""
        for name in _NAMES:
            mine, its = getattr(self, name), getattr(asked, name)
            if mine != its:
                field = name.replace("_", " ")
                raise _rejected(field, f"it belongs to {field} {mine[:80]!r}, the request to {its[:80]!r}")
        if self.rows == asked.rows:
            return
        if len(self.rows) != len(asked.rows):
            raise _rejected("rows", f"it holds {len(self.rows)} rows, the request has {len(asked.rows)}")
        for number, (mine, its) in enumerate(zip(self.rows, asked.rows, strict=True)):
            if len(mine) != len(its):
                raise _rejected("length", f"row {number} holds {len(mine)} events, the request has {len(its)}")
            if mine != its:
                place = next(n for n, (one, other) in enumerate(zip(mine, its, strict=True)) if one != other)
                raise _rejected("events", f"row {number}, event {place} is {mine[place]}, the request has {its[place]}")


_NAMES = tuple(field.name for field in fields(CacheIdentity) if field.name != "rows")


class GuardedCache:
    """A decoder's own cache with the identity it was made for; spent once it was continued."""

    __slots__ = ("_lock", "_spent", "identity", "inner")

    def __init__(self, inner: Any, identity: CacheIdentity) -> None:
        self.inner = inner
        self.identity = identity
        self._lock = threading.Lock()
        self._spent = False

    @property
    def spent(self) -> bool:
        """Whether an `extend` has continued it."""
        return self._spent

    def spend(self) -> None:
        """Mark the cache as continued; CacheRejectedError when it already was, by whichever thread."""
        with self._lock:
            if self._spent:  # looked at again under the lock: two threads may both have been let through
                raise _rejected("spent", "it was already continued; only the cache which that gave back stands for it")
            self._spent = True


class GuardedDecoder:
    """Contract 1 around a decoder: what it gives is the decoder's own, what it takes must belong to it.

    Every call names the weights anew where the decoder can, so a weight changed in place voids all older caches; that
    costs one pass over the weights a call.
    """

    def __init__(
        self,
        decoder: Decoder,
        event_map: str,
        event_order: str,
        *,
        dtype: torch.dtype,
        device: str,
        weights: Callable[[], str] | None = None,
    ) -> None:
        """Guard `decoder` under the digests of event map and order rules; dtype and device are those it runs in.

        `weights` names the weights in place of the decoder itself, for who cannot afford a pass over them a call.
        """
        self.decoder = decoder
        self.revision = decoder.revision
        self.vocabulary_size = decoder.vocabulary_size
        self.context_length = decoder.context_length
        self.dtype = dtype
        self.device = torch.device(device)
        self.positions = decoder.positions if isinstance(decoder, Described) else "its own"
        terms = str(dtype), self.device.type, self.positions
        self._weights = weights or self.name_weights
        # Asked once: looking a protocol up takes longer than the check that it is asked for.
        self._inspectable = decoder if isinstance(decoder, Inspectable) else None
        self._identity = CacheIdentity(event_map, event_order, *terms, decoder.revision, "", ())

    def identity(self, rows: Sequence[Sequence[int]]) -> CacheIdentity:
        """Identity of a request for these rows, with the weights as they are now."""
        return self.identity_of(tuple(tuple(map(int, row)) for row in rows))

    def identity_of(self, rows: Rows) -> CacheIdentity:
        """The same for rows that are tuples of plain numbers already."""
        own = self._identity
        terms = own.event_map, own.event_order, own.dtype, own.device, own.positions, own.revision
        return CacheIdentity(*terms, self._weights(), rows)

    def name_weights(self) -> str:
        """Fingerprint of the weights as they are now, where the decoder can tell."""
        return self.decoder.fingerprint() if isinstance(self.decoder, Fingerprinted) else _UNNAMED

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """`cache` itself, when it was made for exactly what is asked and was not continued since.

        Raises CacheRejectedError whose `field` says what differs: "kind", "spent", a field of CacheIdentity, "length"
        for a row longer or shorter than asked or than the keys it holds, or "events".
        """
        if not isinstance(cache, GuardedCache):
            raise _rejected("kind", f"a {type(cache).__name__} carries no identity; prefill through the guard")
        if cache.spent:
            raise _rejected("spent", "it was already continued; only the cache which that gave back stands for it")
        cache.identity.check(asked)
        self._check_lengths(cache)
        return cache

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of the full path; no cache takes part."""
        return self.decoder.full(events, valid)

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, GuardedCache]:
        """Logits [B, V] and a cache that knows the rows it was made of."""
        identity = self.identity_of(())  # before the call: weights changed during it are not the ones to be named
        logits, cache = self.decoder.prefill(events, valid)
        # Rows are read when the decoder has taken them: it is the one to refuse shapes, and says what is wrong.
        return logits, GuardedCache(cache, replace(identity, rows=_grown([()] * len(events), events, valid)))

    def extend(self, events: Tensor, valid: Tensor, cache: GuardedCache) -> tuple[Tensor, GuardedCache]:
        """Logits [B, K, V] and the new cache; `cache` is spent, also when the decoder fails.

        The caller states whose cache it means by `require`; here the cache must fit this decoder as it is now.
        """
        own = self._own(cache)
        if len(own.identity.rows) != len(events):
            raise _rejected("rows", f"it holds {len(own.identity.rows)} rows, the new events {len(events)}")
        own.spend()  # before the call: a decoder that fails half-way may have written into it
        logits, inner = self.decoder.extend(events, valid, own.inner)
        return logits, GuardedCache(inner, replace(own.identity, rows=_grown(own.identity.rows, events, valid)))

    def reorder(self, cache: GuardedCache, parents: Tensor) -> GuardedCache:
        """Cache whose row i continues old row `parents[i]`, identity included; the old one stays usable."""
        own = self._own(cache)
        inner = self.decoder.reorder(own.inner, parents)  # refuses parents that are no rows
        rows = tuple(own.identity.rows[parent] for parent in parents.tolist())
        return GuardedCache(inner, replace(own.identity, rows=rows))

    def cache_bytes(self, cache: GuardedCache) -> int:
        """Bytes that the decoder holds for it."""
        return self.decoder.cache_bytes(cache.inner)

    def _own(self, cache: Any) -> GuardedCache:
        rows = cache.identity.rows if isinstance(cache, GuardedCache) else ()
        return self.require(cache, self.identity_of(rows))

    def _check_lengths(self, cache: GuardedCache) -> None:
        """Compare the record with what is really stored, where the decoder lets one look."""
        if self._inspectable is None:
            return
        _, _, lengths = self._inspectable.stored(cache.inner)
        for number, (stored, row) in enumerate(zip(lengths.tolist(), cache.identity.rows, strict=True)):
            if stored != len(row):
                raise _rejected("length", f"row {number} stores {stored} events and stands for {len(row)}")


def _grown(rows: Sequence[tuple[int, ...]], events: Tensor, valid: Tensor) -> Rows:
    """`rows` with their new valid events."""
    lines = zip(rows, events.tolist(), valid.tolist(), strict=True)
    return tuple((*row, *(event for event, keep in zip(new, kept, strict=True) if keep)) for row, new, kept in lines)


def _rejected(field: str, reason: str) -> CacheRejectedError:
    return CacheRejectedError(field, f"this cache is not for this request: {reason}; prefill the request anew")
