"""Caches of the Transformers library whose sliding layers roll: they keep the newest of a window and forget the rest.

The library rolls by columns. Rows that stand idle, or whose new events are padded, would lose events by that, so after
such a call every row's newest events are put to the right again, from what the layer had shown to attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from auditlib.decoders.columns import Sight, Store, events_first, picked
from auditlib.decoders.transformers_config import TransformersConfig
from auditlib.decoders.transformers_decoder import LibraryDecoder, fill_layer
from auditlib.decoders.transformers_model import kinds_of_layers
from auditlib.errors import DecoderError

_Part = Callable[[Tensor], Tensor]


class Rolling:
    """A sliding layer of the library, and what it showed to attention in the last call."""

    def __init__(self, layer: Any, fixed: bool) -> None:
        self.layer = layer
        self.fixed = fixed
        self._seen: tuple[Tensor, Tensor] | None = None

    def update(self, *new: Any, **more: Any) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, D] that attention is to see, as the library's own layer gives them."""
        self._seen = self.layer.update(*new, **more)
        return self._seen

    @property
    def keys(self) -> Tensor:
        """Keys [B, H, S, D] as they lie in memory."""
        return self.layer.keys  # type: ignore[no-any-return]

    @property
    def values(self) -> Tensor:
        """Values [B, H, S, D] as they lie in memory."""
        return self.layer.values  # type: ignore[no-any-return]

    def settle(self, order: Tensor | None) -> None:
        """Keep the columns `order` [B, n] of what was seen; None where the library itself kept the right ones."""
        seen, self._seen = self._seen, None
        if seen is None:
            raise DecoderError("a sliding layer was not reached by the model")
        for name, shown in zip(("keys", "values"), seen, strict=True):
            if order is not None:
                self._put(name, picked(shown, order))
            elif not self.fixed:  # a view of all that was seen would hold its memory
                self._put(name, getattr(self.layer, name).clone())

    def fill(self, keys: Tensor, values: Tensor) -> None:
        """Hold these [B, H, n, D], in memory of one's own."""
        self.layer.lazy_initialization(keys, values)
        self._put("keys", keys.clone())
        self._put("values", values.clone())
        count = keys.shape[2]
        if self.fixed:
            self.layer.cumulative_length.fill_(count)
            self.layer.cumulative_length_int = count
        else:
            self.layer.cumulative_length = count

    def _put(self, name: str, kept: Tensor) -> None:
        if self.fixed:
            getattr(self.layer, name)[:, :, : kept.shape[2]] = kept
        else:
            setattr(self.layer, name, kept)


class RollingStore(Store):
    """A cache of the library with rolling layers.

    `near` [B, n] says which of the columns that these hold are events; a row's stand to the right. They never hold more
    than `most`. The other layers hold `columns`, and have set aside `room` where it does not grow.
    """

    def __init__(self, cache: Any, columns: int, room: int | None, near: Tensor, most: int) -> None:
        self.cache = cache
        self.room = room
        self.near = near
        self.most = most
        self._columns = columns

    @property
    def columns(self) -> int:
        """Columns in use by the layers that keep all."""
        return self._columns

    def nbytes(self) -> int:
        """Bytes allocated for keys and values."""
        return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in self.cache.layers)

    def shown(self, new: int) -> tuple[Tensor, int]:
        """Which columns [B, n] stand before `new` ones in the next call, and how many there are in all with those."""
        held = self.near.shape[1]
        if self.room is None:
            return self.near, held + new
        if held == self.most:  # a full ring lets its oldest go before it takes the next
            return self.near[:, 1:], held - 1 + new
        return self.near, max(self.most, held + new)

    def settle(self, real: Tensor) -> Tensor:
        """Have the layers keep the newest events of those seen, `real` [B, T]; which columns are events now [B, n]."""
        kept = min(real.shape[1], self.most)
        order = None
        if bool((real[:, 1:] < real[:, :-1]).any()):
            order = real.to(torch.uint8).argsort(dim=1, stable=True)[:, -kept:]
        for layer in self.cache.layers:
            if isinstance(layer, Rolling):
                layer.settle(order)
        return real[:, -kept:] if order is None else real.gather(1, order)


class RollingDecoder(LibraryDecoder):
    """Layers with a window forget what has left it; the others keep all. What is stored is not shown."""

    rolls = True

    def __init__(self, model: Any, config: TransformersConfig) -> None:
        super().__init__(model, config)
        self._of_layers = [self._windows[kind] for kind in kinds_of_layers(model.config)]

    def _append(self, events: Tensor, sight: Sight, store: Store) -> tuple[Tensor, Store]:
        own = _own(store)
        before, width = own.shown(events.shape[1])
        near = Sight(before, sight.new)
        masks = {
            kind: self._laid(sight.visible(), own.room or sight.columns)
            if window is None
            else self._laid(near.visible(window), width)
            for kind, window in self._windows.items()
        }
        mask = masks.get("", masks)
        logits = self._run(sight, mask, input_ids=events, use_cache=True, cache=own.cache)
        kept = own.settle(torch.cat([before, sight.new], 1))
        return logits, RollingStore(own.cache, sight.columns, own.room, kept, own.most)

    def _empty(self, rows: int, room: int) -> RollingStore:
        fixed = self.config.cache == "static"
        window = self.block_ends[0]
        # The library's growing layers keep one less than the window: the next event is the last of it.
        most = min(window, room) if fixed else window - 1
        layers = [self._layer(own, room if fixed else None) for own in self._of_layers]
        nothing = torch.zeros(rows, 0, dtype=torch.bool, device=self.device)
        return RollingStore(self._caches.Cache(layers=layers), 0, room if fixed else None, nothing, most)

    def _layer(self, window: int | None, room: int | None) -> Any:
        kinds = self._caches
        if window is None:
            return kinds.DynamicLayer() if room is None else kinds.StaticLayer(max_cache_len=room)
        if room is None:
            return Rolling(kinds.DynamicSlidingWindowLayer(sliding_window=window), fixed=False)
        return Rolling(kinds.StaticSlidingWindowLayer(max_cache_len=room, sliding_window=window), fixed=True)

    def _without_padding(self, store: Store, held: Tensor, new: Tensor) -> tuple[Store, Tensor]:
        order, mask = events_first(held)
        own, made = _own(store), self._empty(len(held), self._room(Sight(mask, new)))
        return _copied(own, own.near, made, order.shape[1], lambda kept: picked(kept, order), lambda kept: kept), mask

    def _taken(self, store: Store, parents: Tensor) -> Store:
        def of_parents(kept: Tensor) -> Tensor:
            """The rows to continue, in their new order; a copy."""
            return kept.index_select(0, parents)

        own, made = _own(store), self._empty(len(parents), max(self.context_length, store.columns))
        return _copied(own, of_parents(own.near), made, own.columns, of_parents, of_parents)


def _copied(
    own: RollingStore, near: Tensor, made: RollingStore, columns: int, far_of: _Part, near_of: _Part
) -> RollingStore:
    """`made` filled with what `far_of` and `near_of` make of the columns that layers of each kind hold."""
    held, kept = near.shape[1], min(near.shape[1], made.most)
    for layer, fresh in zip(own.cache.layers, made.cache.layers, strict=True):
        if isinstance(fresh, Rolling):
            fresh.fill(*(near_of(part[:, :, :held])[:, :, -kept:] for part in (layer.keys, layer.values)))
        else:
            fill_layer(fresh, *(far_of(part[:, :, : own.columns]) for part in (layer.keys, layer.values)))
    return RollingStore(made.cache, columns, made.room, near[:, -kept:], made.most)


def _own(store: Store) -> RollingStore:
    if not isinstance(store, RollingStore):
        raise DecoderError(f"a {type(store).__name__} is no store of this adapter")
    return store
