"""Guards that let the wrong cache through: faults of identity that sit in front of the decoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.faults.planting import Plant, World
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.decoding.cache_guard import CacheIdentity, GuardedCache, GuardedDecoder


class AnyField(GuardedDecoder):
    """A guard that does not compare some fields of a request."""

    ignored: tuple[str, ...] = ()

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Compare what is asked after the ignored fields were made equal."""
        if isinstance(cache, GuardedCache):
            asked = replace(asked, **{name: getattr(cache.identity, name) for name in self.ignored})
        return super().require(cache, asked)


class LengthsOnly(GuardedDecoder):
    """A guard that compares the lengths of rows, not their events."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Let every row of the right length through."""
        mine = cache.identity.rows if isinstance(cache, GuardedCache) else ()
        if [len(row) for row in mine] == [len(row) for row in asked.rows]:
            asked = replace(asked, rows=mine)
        return super().require(cache, asked)


class LongerServes(GuardedDecoder):
    """A guard that takes a cache of more events for one of fewer: the rest stays visible."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Let every cache through whose rows begin as asked."""
        mine = cache.identity.rows if isinstance(cache, GuardedCache) else ()
        begins = len(mine) == len(asked.rows) and all(a == b[: len(a)] for a, b in zip(asked.rows, mine, strict=True))
        return super().require(cache, replace(asked, rows=mine) if begins else asked)


class _SpentServes(GuardedDecoder):
    """A guard that lets a cache be continued twice."""

    def require(self, cache: Any, asked: CacheIdentity) -> GuardedCache:
        """Renew what was spent."""
        fresh = GuardedCache(cache.inner, cache.identity) if isinstance(cache, GuardedCache) and cache.spent else cache
        return super().require(fresh, asked)


class _RunTogether(CacheIdentity):
    """An identity whose key runs its fields together, without names and lengths between them."""

    @property
    def key(self) -> str:
        """All values one after another."""
        terms = (self.dtype, self.device, self.positions, self.revision, self.weights)
        return (
            "".join(sorted([self.event_map, self.event_order]))
            + "".join(sorted(terms))
            + str([event for row in self.rows for event in row])
        )


class WeakKeys(GuardedDecoder):
    """A guard that gives identities with weak keys."""

    def identity(self, rows: Any) -> CacheIdentity:
        """Identity of a request."""
        own = super().identity(rows)
        return _RunTogether(**{name: getattr(own, name) for name in CacheIdentity.__dataclass_fields__})


class StayingRecord(GuardedDecoder):
    """A guard whose record does not follow when rows move."""

    def reorder(self, cache: GuardedCache, parents: Tensor) -> GuardedCache:
        """The decoder's reorder under the old record's first row."""
        moved = super().reorder(cache, parents)
        rows = cache.identity.rows
        return GuardedCache(moved.inner, replace(moved.identity, rows=(rows * len(parents))[: len(parents)]))


def guarded_by(kind: type[GuardedDecoder], *ignored: str) -> Plant:
    """Plants a guard of this kind, which ignores the named fields, in place of the real one."""
    made = type(kind.__name__, (kind,), {"ignored": ignored}) if ignored else kind

    def plant(world: World) -> World:
        """The world with the spoilt guard; the decoder behind it stays sound."""
        return replace(world, guard=made)

    return plant


class _Reusable(Planted):
    """Leaves the old cache as it was: nothing of the decoder's own would refuse a second use."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """The decoder's answer, from a copy of the cache: the one handed in is left unspent."""
        rows = torch.arange(len(events), device=events.device)
        logits, grown = self.inner.extend(events, valid, self.inner.reorder(cache, rows))
        return logits, grown


def spent_serves(world: World) -> World:
    """A world whose guard and decoder both let a cache be continued twice."""
    return replace(wrapped(_Reusable)(world), guard=_SpentServes)
