"""The native decoder: a small causal transformer over service events, with a full and a cached path."""

from __future__ import annotations

import torch
from torch import Tensor

from auditlib.decoders.attending import altered, attend_in_place, attend_to_store
from auditlib.decoders.attention import AttentionOfGpt
from auditlib.decoders.capabilities import Alter, CacheShape
from auditlib.decoders.fingerprint import fingerprint
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import EventTransformer
from auditlib.decoders.key_value_cache import (
    KeyValueCache,
    empty_cache,
    plan_append,
    roomy_store,
    taken_over,
    with_room,
)
from auditlib.decoders.layers import Attend, hidden_states, score
from auditlib.decoders.tracing import Note
from auditlib.errors import CacheRejectedError, ContextExceededError, DecoderError

_BRANCHES = ("attention output", "feed-forward")
DTYPES = (torch.float32, torch.bfloat16, torch.float64)


class EventGpt(AttentionOfGpt):
    """Contract 1 over an EventTransformer whose weights are never changed here.

    Shapes as in `decoders.protocol`. Logits are float32 under float32 and bfloat16, float64 under float64. All
    methods are safe to call from several threads: state is in the cache that is passed in and given back.
    """

    def __init__(self, module: EventTransformer) -> None:
        self.module = module.requires_grad_(requires_grad=False)
        self._weights = module.weights()
        self.config: EventGptConfig = module.config
        self.vocabulary_size = self.config.vocabulary_size
        self.context_length = self.config.context_length
        self.positions = self.config.positions
        window = self.config.cached_attention_window
        self.block_ends: tuple[int, ...] = () if window is None else (window,)
        self.dtype = module.embed.dtype
        self.device = module.embed.device
        self.revision = self.fingerprint()

    def fingerprint(self) -> str:
        """`sha256:<hex>` over config and weights as they are now; differs from `revision` once a weight was changed."""
        return fingerprint(self.config.to_mapping(), self.module.state_dict())

    # -- full path ---------------------------------------------------------------------------------------------------

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] of whole prefixes [B, T]; ContextExceededError beyond the context length."""
        return self.full_altered(events, valid, None)

    def full_altered(self, events: Tensor, valid: Tensor, alter: Alter | None) -> Tensor:
        """`full`, with the keys and values of every layer passed through `alter`: how audits plant poison."""
        events, all_valid = self._checked(events, valid)
        return self._full(self._weights.embed[events], valid, all_valid, alter)

    def embed(self, events: Tensor) -> Tensor:
        """Embeddings [B, T, W] of events [B, T], to be fed to `full_from_embeddings`."""
        return self._weights.embed[events]

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] from embedded events [B, T, W], differentiable by them."""
        _refuse_empty_rows(valid)
        return self._full(embeddings, valid, bool(valid.all()), None)

    def _full(self, embedded: Tensor, valid: Tensor, all_valid: bool, alter: Alter | None) -> Tensor:
        positions: slice | Tensor
        if all_valid:
            longest, positions = valid.shape[1], slice(0, valid.shape[1])
        else:
            counts = valid.cumsum(1)
            longest, positions = int(counts[:, -1].max()), (counts - 1).clamp_(min=0)
        if longest > self.context_length:
            raise ContextExceededError(
                f"a prefix of {longest} events is longer than the context length of {self.context_length}; "
                "shorten it or use a revision with a longer context"
            )
        attend = altered(alter, attend_in_place(None if all_valid else valid))
        return self._score(self._hidden(embedded, positions, attend))

    # -- cached path -------------------------------------------------------------------------------------------------

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, KeyValueCache]:
        """Logits [B, V] after each row's last valid event, and a cache of all its valid events."""
        events, all_valid = self._checked(events, valid)
        cache = empty_cache(self.config, len(events), events.shape[1], self._weights.embed, self.revision)
        hidden, cache = self._cached(events, valid, all_valid, cache, None)
        if all_valid:
            return self._score(hidden[:, -1]), cache
        columns = torch.arange(valid.shape[1], device=valid.device)
        last = (columns * valid).amax(1)  # [B], each row's last valid column
        return self._score(hidden[torch.arange(len(last), device=last.device), last]), cache

    def extend(self, events: Tensor, valid: Tensor, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """Logits [B, K, V] of the next events [B, K] and the new cache; `cache` is spent.

        Raises CacheRejectedError for a cache that is spent, another decoder's or of other rows, and
        ContextExceededError when a row would outgrow the context; `cache` is then as before.
        """
        return self.extend_altered(events, valid, cache, None)

    def extend_altered(
        self, events: Tensor, valid: Tensor, cache: KeyValueCache, alter: Alter | None
    ) -> tuple[Tensor, KeyValueCache]:
        """`extend`, with the new keys and values of every layer passed through `alter` before they are stored."""
        self._require_own(cache)
        events, all_valid = self._checked(events, valid, rows_may_be_empty=True)
        if len(events) != cache.rows:
            raise CacheRejectedError("rows", f"the cache holds {cache.rows} rows, the new events {len(events)}")
        hidden, continued = self._cached(events, valid, all_valid, cache, alter)
        return self._score(hidden), continued

    def reorder(self, cache: KeyValueCache, parents: Tensor) -> KeyValueCache:
        """New cache whose row i continues row `parents[i]`; the old one stays usable."""
        self._require_own(cache)
        if parents.dim() != 1 or parents.dtype != torch.int64:
            raise DecoderError(f"parents must be int64 [B], not {parents.dtype} {list(parents.shape)}")
        if len(parents) and not 0 <= int(parents.min()) <= int(parents.max()) < cache.rows:
            raise DecoderError(f"parents must be rows 0 to {cache.rows - 1} of the cache")
        return taken_over(cache, parents, self.context_length)

    def reserve(self, cache: KeyValueCache, events: int) -> KeyValueCache:
        """A cache of the same rows with room for `events` events each; `cache` is spent."""
        self._require_own(cache)
        cache.spend()
        return with_room(cache, events, self.context_length)

    def cache_bytes(self, cache: KeyValueCache) -> int:
        """Bytes allocated for keys and values, unread slots included."""
        return cache.store.numel() * cache.store.element_size()

    def cache_shape(self, cache: KeyValueCache) -> CacheShape:
        """What the cache is made of, by the config."""
        own = self.config
        slots = cache.store.shape[4]
        return CacheShape(own.layers, cache.rows, slots, own.heads, own.head_size, self.dtype.itemsize)

    def stored(self, cache: KeyValueCache) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values [layers, B, H, S, D] of all S allocated slots, and the rows' lengths [B]; views, not copies.

        Slots from a row's length on hold nothing of that row and are never attended to.
        """
        return cache.store[:, 0], cache.store[:, 1], cache.lengths

    def _cached(
        self, events: Tensor, valid: Tensor, all_valid: bool, cache: KeyValueCache, alter: Alter | None
    ) -> tuple[Tensor, KeyValueCache]:
        append = plan_append(cache, valid, all_valid, self.context_length)
        cache.spend()
        store = roomy_store(cache.store, cache.longest, append.longest, self.context_length)
        attend = altered(alter, attend_to_store(store, append, self.config.cached_attention_window))
        embedded = self._weights.embed[events]
        hidden = self._hidden(embedded, append.positions, attend)
        sizes = append.lengths, append.shortest, append.longest
        return hidden, KeyValueCache(store, *sizes, self.revision, cache.reserved)

    def _hidden(self, embedded: Tensor, positions: slice | Tensor, attend: Attend) -> Tensor:
        return hidden_states(self.config, self._weights, embedded, positions, attend)

    def _score(self, hidden: Tensor) -> Tensor:
        return score(self.config, self._weights, hidden)

    def traced(self, note: Note) -> EventGpt:
        """This decoder, with the same weights and caches, telling `note` what each component gives."""
        return _TracedEventGpt(self, note)

    def _require_own(self, cache: KeyValueCache) -> None:
        if not isinstance(cache, KeyValueCache):
            raise CacheRejectedError("kind", f"a {type(cache).__name__} is no cache of this decoder; prefill first")
        cache.require_usable(self.revision, (self.dtype, self.device))

    def _checked(self, events: Tensor, valid: Tensor, *, rows_may_be_empty: bool = False) -> tuple[Tensor, bool]:
        """Events with padding replaced by id 0, so that it is never read, and whether there was none."""
        _refuse_shapes(events, valid)
        all_valid = bool(valid.all())
        if not all_valid:
            events = events.masked_fill(~valid, 0)
            if not rows_may_be_empty:
                _refuse_empty_rows(valid)
        if events.numel():
            low, high = events.aminmax()
            if int(low) < 0 or int(high) >= self.vocabulary_size:
                wrong = int(low) if int(low) < 0 else int(high)
                raise DecoderError(f"event id {wrong} is not below the vocabulary size of {self.vocabulary_size}")
        return events, all_valid


class _TracedEventGpt(EventGpt):
    """Shares everything with `inner`; only tells what passes."""

    def __init__(self, inner: EventGpt, note: Note) -> None:
        self.__dict__ |= inner.__dict__
        self._note = note

    def _hidden(self, embedded: Tensor, positions: slice | Tensor, attend: Attend) -> Tensor:
        places = [(-1, "embedding"), *((layer, name) for layer in range(self.config.layers) for name in _BRANCHES)]
        told = iter(places)

        def branch(output: Tensor) -> Tensor:
            """The output, unchanged; told as the next component in the order of computation."""
            self._note(*next(told), output)
            return output

        def watched(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            """What `attend` gives; keys and values are told as [B, T, H, D], one place after another."""
            self._note(layer, "keys", keys.transpose(1, 2))
            self._note(layer, "values", values.transpose(1, 2))
            return attend(layer, queries, keys, values)

        return hidden_states(self.config, self._weights, embedded, positions, watched, branch)

    def _score(self, hidden: Tensor) -> Tensor:
        logits = super()._score(hidden)
        self._note(self.config.layers, "logits", logits)
        return logits


def _refuse_shapes(events: Tensor, valid: Tensor) -> None:
    if events.dim() != 2 or events.dtype != torch.int64 or valid.dtype != torch.bool or valid.shape != events.shape:
        raise DecoderError(
            f"events must be int64 [B, T] and valid bool of the same shape, not {events.dtype} {list(events.shape)} "
            f"and {valid.dtype} {list(valid.shape)}"
        )
    if events.shape[1] == 0:
        raise DecoderError("at least one position is needed, the events have none")


def _refuse_empty_rows(valid: Tensor) -> None:
    empty = (~valid.any(1)).nonzero()
    if len(empty):
        raise DecoderError(f"row {int(empty[0])} has no valid event; a prefix holds at least one")
