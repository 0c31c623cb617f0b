"""The cache of an `event_gpt`: an explicit value that holds each row's keys and values without its padding."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import torch
from torch import Tensor

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.errors import CacheRejectedError, ContextExceededError

_SMALLEST = 16


class KeyValueCache:
    """Keys and values of every event that each row has read so far.

    `store` [layers, 2, B, H, S, D] has S preallocated slots a row, filled from slot 0 by event number; slots beyond a
    row's length hold finite numbers that are never attended to. `lengths` [B] counts the events of each row. A cache
    is spent by the `extend` that continues it, because that writes into the same slots. `reserved` slots a row are kept
    allocated through every reorder.
    """

    __slots__ = ("_lock", "_spent", "lengths", "longest", "owner", "reserved", "shortest", "store")

    def __init__(
        self, store: Tensor, lengths: Tensor, shortest: int, longest: int, owner: str, reserved: int = 0
    ) -> None:
        self.store = store
        self.lengths = lengths
        # Kept as plain numbers too: asking a tensor for them would cost every step a wait.
        self.shortest = shortest
        self.longest = longest
        self.owner = owner
        self.reserved = reserved
        self._lock = threading.Lock()
        self._spent = False

    @property
    def rows(self) -> int:
        """How many rows the cache holds."""
        return self.store.shape[2]

    @property
    def spent(self) -> bool:
        """Whether an `extend` has continued this cache, so that it no longer stands for its events."""
        return self._spent

    def require_usable(self, owner: str, store_like: tuple[torch.dtype, torch.device]) -> None:
        """Raise CacheRejectedError with the field that differs unless this cache is `owner`'s and not spent."""
        if self._spent:
            raise CacheRejectedError(
                "spent", "this cache was already continued by an extend; use the cache which that call gave back"
            )
        if self.owner != owner:
            raise CacheRejectedError(
                "revision",
                f"this cache belongs to decoder {self.owner[:23]}…, not to {owner[:23]}…; prefill again",
            )
        if (self.store.dtype, self.store.device) != store_like:
            field = "dtype" if self.store.dtype != store_like[0] else "device"
            raise CacheRejectedError(
                field, f"this cache holds {self.store.dtype} on {self.store.device}; prefill again under this decoder"
            )

    def spend(self) -> None:
        """Mark the cache as continued; of two threads that try, one gets CacheRejectedError."""
        with self._lock:
            if self._spent:
                raise CacheRejectedError("spent", "another call continued this cache in the meantime; prefill again")
            self._spent = True


@dataclass(frozen=True, slots=True)
class Append:
    """Where the new events of an `extend` go, and the sizes of the cache afterwards.

    `positions` is a slice when every row appends all K events at the same place: then one write does for all rows.
    Otherwise it is int64 [B, K], and `taken` holds (row, column, slot) of each new event, the rest being padding.
    """

    positions: slice | Tensor
    lengths: Tensor  # [B]
    shortest: int
    longest: int
    taken: tuple[Tensor, Tensor, Tensor] | None

    @property
    def one_each(self) -> bool:
        """Whether each row gets one event, all at the same place."""
        return isinstance(self.positions, slice) and self.positions.stop == self.positions.start + 1

    def visible(self, window: int | None) -> Tensor:
        """Which slots each new event may see: bool [B or 1, 1, K, S], the newest `window` ones up to itself."""
        slots = torch.arange(self.longest, device=self.lengths.device)
        new = slots[self.positions][None] if isinstance(self.positions, slice) else self.positions
        reach = new[:, None, :, None]
        return slots <= reach if window is None else (slots <= reach) & (slots > reach - window)


def empty_cache(config: EventGptConfig, rows: int, events: int, like: Tensor, owner: str) -> KeyValueCache:
    """A cache of `rows` rows that have read nothing, with room for at least `events` events a row."""
    shape = (config.layers, 2, rows, config.heads, _capacity(events, config.context_length), config.head_size)
    store = torch.zeros(shape, dtype=like.dtype, device=like.device)  # zeros: a NaN in an unread slot would spread
    return KeyValueCache(store, torch.zeros(rows, dtype=torch.int64, device=like.device), 0, 0, owner)


def plan_append(cache: KeyValueCache, valid: Tensor, all_valid: bool, context: int) -> Append:
    """Where the valid ones of the new events [B, K] go. ContextExceededError when a row would outgrow the context."""
    count = valid.shape[1]
    even = all_valid and cache.shortest == cache.longest
    if all_valid:
        shortest, longest = cache.shortest + count, cache.longest + count
        lengths = cache.lengths + count
    else:
        lengths = cache.lengths + valid.sum(1)
        shortest, longest = (int(size) for size in lengths.aminmax()) if len(lengths) else (0, 0)
    if longest > context:
        row = int(lengths.argmax())
        raise ContextExceededError(
            f"row {row} would hold {longest} events, {longest - context} more than the context length of {context}; "
            "stop before the context is full or use a revision with a longer context"
        )
    if even:
        return Append(slice(cache.longest, longest), lengths, shortest, longest, None)
    # A row's padding borrows a neighbouring position: it is computed along but never stored or attended to.
    positions = (cache.lengths[:, None] + valid.cumsum(1) - 1).clamp_(min=0)
    rows, columns = valid.nonzero(as_tuple=True)
    return Append(positions, lengths, shortest, longest, (rows, columns, positions[rows, columns]))


def roomy_store(store: Tensor, used: int, needed: int, context: int) -> Tensor:
    """`store` itself when it has `needed` slots, else a copy with at least twice the slots (never above `context`)."""
    if needed <= store.shape[4]:
        return store
    shape = list(store.shape)
    shape[4] = min(context, max(_capacity(needed, context), 2 * store.shape[4]))
    grown = store.new_zeros(shape)
    grown[:, :, :, :, :used] = store[:, :, :, :, :used]
    return grown


def write_new(layer_store: Tensor, keys: Tensor, values: Tensor, append: Append) -> None:
    """Put new keys and values [B, H, K, D] into their slots of `layer_store` [2, B, H, S, D], in place."""
    if append.taken is None:
        layer_store[0, :, :, append.positions] = keys
        layer_store[1, :, :, append.positions] = values
        return
    rows, columns, slots = append.taken
    layer_store[0][rows, :, slots] = keys[rows, :, columns]
    layer_store[1][rows, :, slots] = values[rows, :, columns]


def with_room(cache: KeyValueCache, events: int, context: int) -> KeyValueCache:
    """The same cache with `events` slots a row, within the context, that stay allocated from now on."""
    slots = min(events, context)
    store = cache.store
    if store.shape[4] < slots:
        store = store.new_zeros([*store.shape[:4], slots, store.shape[5]])
        store[:, :, :, :, : cache.longest] = cache.store[:, :, :, :, : cache.longest]
    return KeyValueCache(store, cache.lengths, cache.shortest, cache.longest, cache.owner, slots)


def taken_over(cache: KeyValueCache, parents: Tensor, context: int) -> KeyValueCache:
    """A new cache whose row i is a copy of row `parents[i]`; every layer's keys, values and lengths move together."""
    # Unread slots need not be copied, except those set aside on purpose.
    slots = min(cache.store.shape[4], max(_capacity(cache.longest, context), cache.reserved))
    store = cache.store[:, :, :, :, :slots].index_select(2, parents)
    lengths = cache.lengths.index_select(0, parents)
    shortest, longest = cache.shortest, cache.longest
    if shortest != longest and len(lengths):
        shortest, longest = (int(size) for size in lengths.aminmax())
    return KeyValueCache(store, lengths, shortest, longest, cache.owner, cache.reserved)


def _capacity(events: int, context: int) -> int:
    """Slots to set aside for `events` events: the next power of two, with one to spare, within the context."""
    return min(context, max(_SMALLEST, 1 << events.bit_length()))
