"""Contract 1 over any runtime that appends columns to its past keys and values.

Subclasses run the network; here stands what is the same for all: checks, positions, masks, the context, spent caches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.columns import ColumnCache, OpenStore, Sight, Store, compacted
from auditlib.errors import CacheRejectedError, ContextExceededError, DecoderError


class ColumnDecoder(ABC):
    """Shapes as in `decoders.protocol`. State lies in caches alone; an `extend` spends the one it continues."""

    def __init__(self, vocabulary_size: int, context_length: int, dtype: torch.dtype, device: torch.device) -> None:
        self.vocabulary_size = vocabulary_size
        self.context_length = context_length
        self.dtype = dtype
        self.device = device
        self.positions = "rotary"
        self.revision = ""

    @abstractmethod
    def fingerprint(self) -> str:
        """`sha256:<hex>` of config and weights as they are now; equals `revision` while nothing was changed."""

    @abstractmethod
    def _whole(self, events: Tensor, sight: Sight) -> Tensor:
        """Logits [B, T, V] without any cache."""

    @abstractmethod
    def _append(self, events: Tensor, sight: Sight, store: Store) -> tuple[Tensor, Store]:
        """Logits [B, K, V] of new columns, and the store with them; the store given may be changed in place."""

    @abstractmethod
    def _empty(self, rows: int, room: int) -> Store:
        """A store without columns, for at least `room` of them."""

    @abstractmethod
    def _without_padding(self, store: Store, held: Tensor, new: Tensor) -> tuple[Store, Tensor]:
        """A store of the columns that are events in `held` [B, S], with room for `new` [B, K], and its own `held`."""

    @abstractmethod
    def _taken(self, store: Store, parents: Tensor) -> Store:
        """A store of its own whose row i holds what row `parents[i]` does."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of whole prefixes [B, T]; ContextExceededError beyond the context length."""
        events = self._checked(events, valid)
        _refuse_empty_rows(valid)
        return self._whole(events, self._fitting(Sight(valid[:, :0], valid)))

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, ColumnCache]:
        """Logits [B, V] after each row's last valid event, and a cache of all its valid events."""
        events = self._checked(events, valid)
        _refuse_empty_rows(valid)
        sight = self._fitting(Sight(valid[:, :0], valid))
        logits, store = self._append(events, sight, self._empty(len(events), self._room(sight)))
        columns = torch.arange(valid.shape[1], device=valid.device)
        last = (columns * valid).amax(1)  # [B], each row's last valid column
        return logits[torch.arange(len(last), device=last.device), last], ColumnCache(store, valid, self.revision)

    def extend(self, events: Tensor, valid: Tensor, cache: ColumnCache) -> tuple[Tensor, ColumnCache]:
        """Logits [B, K, V] of the next events [B, K] and the new cache; `cache` is spent.

        Raises CacheRejectedError for a cache that is spent, another decoder's or of other rows, and
        ContextExceededError when a row would outgrow the context; `cache` is then as before.
        """
        self._require_own(cache)
        events = self._checked(events, valid)
        if len(events) != cache.rows:
            raise CacheRejectedError("rows", f"the cache holds {cache.rows} rows, the new events {len(events)}")
        sight = self._fitting(Sight(cache.held, valid))
        cache.spend()
        store = cache.store
        if sight.columns > self.context_length:
            # Padding has piled up: without it, rows of one length take no more columns than the context has.
            store, held = self._without_padding(store, cache.held, valid)
            sight = Sight(held, valid)
        logits, store = self._append(events, sight, store)
        return logits, ColumnCache(store, torch.cat([sight.held, valid], 1), self.revision)

    def reorder(self, cache: ColumnCache, parents: Tensor) -> ColumnCache:
        """New cache whose row i continues row `parents[i]`; the old one stays usable."""
        self._require_own(cache)
        if parents.dim() != 1 or parents.dtype != torch.int64:
            raise DecoderError(f"parents must be int64 [B], not {parents.dtype} {list(parents.shape)}")
        if len(parents) and not 0 <= int(parents.min()) <= int(parents.max()) < cache.rows:
            raise DecoderError(f"parents must be rows 0 to {cache.rows - 1} of the cache")
        return ColumnCache(self._taken(cache.store, parents), cache.held.index_select(0, parents), self.revision)

    def cache_bytes(self, cache: ColumnCache) -> int:
        """Bytes allocated for keys and values, padding and unread columns included."""
        return cache.store.nbytes()

    def _room(self, sight: Sight) -> int:
        return max(self.context_length, sight.columns)

    def _fitting(self, sight: Sight) -> Sight:
        """`sight` itself, when no row outgrows the context."""
        lengths = sight.lengths
        longest = int(lengths.max()) if len(lengths) else 0
        if longest > self.context_length:
            raise ContextExceededError(
                f"row {int(lengths.argmax())} would hold {longest} events, more than the context length of "
                f"{self.context_length}; stop before the context is full or use a revision with a longer context"
            )
        return sight

    def _require_own(self, cache: Any) -> None:
        if not isinstance(cache, ColumnCache):
            raise CacheRejectedError("kind", f"a {type(cache).__name__} is no cache of this decoder; prefill first")
        cache.require_usable(self.revision)

    def _checked(self, events: Tensor, valid: Tensor) -> Tensor:
        """Events with padding replaced by id 0, so that what stands there is never read."""
        if events.dim() != 2 or events.dtype != torch.int64 or valid.dtype != torch.bool or valid.shape != events.shape:
            raise DecoderError(
                "events must be int64 [B, T] and valid bool of the same shape, "
                f"not {events.dtype} {list(events.shape)} and {valid.dtype} {list(valid.shape)}"
            )
        if events.shape[1] == 0:
            raise DecoderError("at least one position is needed, the events have none")
        events = events.masked_fill(~valid, 0)
        if events.numel():
            low, high = (int(bound) for bound in events.aminmax())
            if low < 0 or high >= self.vocabulary_size:
                wrong = low if low < 0 else high
                raise DecoderError(f"event id {wrong} is not below the vocabulary size of {self.vocabulary_size}")
        return events


class ShownColumns(ColumnDecoder):
    """A column decoder whose layers all hold every event, so that what they store can be shown and moved as one."""

    @abstractmethod
    def _store_of(self, keys: Tensor, values: Tensor, room: int) -> OpenStore:
        """A store of its own that holds keys and values [L, B, H, S, D], with room for at least `room` columns."""

    def stored(self, cache: ColumnCache) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [L, B, H, S, D], a row's event s in slot s, and the rows' lengths [B].

        Views where no padding stands before an event; otherwise copies without it.
        """
        lengths = cache.held.sum(1)
        if bool((cache.held[:, 1:] <= cache.held[:, :-1]).all()):
            return *_opened(cache.store).tensors(), lengths
        keys, values, _ = compacted(_opened(cache.store), cache.held)
        return keys, values, lengths

    def _without_padding(self, store: Store, held: Tensor, new: Tensor) -> tuple[Store, Tensor]:
        keys, values, held = compacted(_opened(store), held)
        return self._store_of(keys, values, self._room(Sight(held, new))), held

    def _taken(self, store: Store, parents: Tensor) -> Store:
        keys, values = (tensor.index_select(1, parents) for tensor in _opened(store).tensors())
        return self._store_of(keys, values, max(self.context_length, store.columns))


def _opened(store: Store) -> OpenStore:
    if not isinstance(store, OpenStore):
        raise DecoderError(f"a {type(store).__name__} does not show its columns")
    return store


def _refuse_empty_rows(valid: Tensor) -> None:
    empty = (~valid.any(1)).nonzero()
    if len(empty):
        raise DecoderError(f"row {int(empty[0])} has no valid event; a prefix holds at least one")
