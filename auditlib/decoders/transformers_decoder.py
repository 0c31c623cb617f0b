"""Contract 1 over a causal language model of the Transformers library, with caches whose layers keep all they read.

Every call gets its own positions and masks, so padding may stand anywhere.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.decoders.capabilities import CacheShape
from auditlib.decoders.column_decoder import ShownColumns
from auditlib.decoders.columns import ColumnCache, OpenStore, Sight, Store
from auditlib.decoders.fingerprint import fingerprint
from auditlib.decoders.optional import optional
from auditlib.decoders.transformers_attention import AttentionOfLibrary
from auditlib.decoders.transformers_config import TransformersConfig
from auditlib.decoders.transformers_model import attention_of, context_of, windows
from auditlib.errors import DecoderError


class LibraryDecoder(AttentionOfLibrary):
    """Contract 1 over a causal language model of the library, but for its caches. Logits are at least float32."""

    rolls = False
    """Whether layers with a window forget what has left it."""

    def __init__(self, model: Any, config: TransformersConfig) -> None:
        own = context_of(model.config)
        super().__init__(int(model.config.vocab_size), config.context_length or own, model.dtype, model.device)
        if self.context_length > own:
            raise DecoderError(f"context_length {self.context_length} is more than the {own} positions of the model")
        self.module = model
        self.config = config
        self.positions = "learned" if model.config.model_type == "gpt2" else "rotary"
        self._windows = windows(model.config)
        self.block_ends = tuple(sorted({window for window in self._windows.values() if window is not None}))
        self._caches = optional("transformers.cache_utils", "transformers")
        self.revision = self.fingerprint()

    def fingerprint(self) -> str:
        """`sha256:<hex>` over config and weights as they are now."""
        attention = attention_of(self.module.config.model_type, self.config.attention)
        named = {"cache": self.config.cache, "attention": attention, "context": self.context_length}
        if self.rolls:
            named["sliding_layers"] = "rolling"
        return fingerprint({**named, "model": self.module.config.to_json_string(use_diff=False)}, self._weights())

    def embed(self, events: Tensor) -> Tensor:
        """Embeddings [B, T, W] of events [B, T]."""
        return self.module.get_input_embeddings()(events)  # type: ignore[no-any-return]

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] from embedded events [B, T, W], differentiable by them."""
        sight = self._fitting(Sight(valid[:, :0], valid))
        return self._run(sight, self._mask(sight, sight.columns), inputs_embeds=embeddings, use_cache=False)

    def _whole(self, events: Tensor, sight: Sight) -> Tensor:
        return self._run(sight, self._mask(sight, sight.columns), input_ids=events, use_cache=False)

    def _run(self, sight: Sight, mask: Any, **more: Any) -> Tensor:
        found = self.module.base_model(attention_mask=mask, position_ids=sight.positions(), **more)
        logits: Tensor = self.module.lm_head(found.last_hidden_state)
        if (cap := getattr(self.module.config, "final_logit_softcapping", None)) is not None:
            logits = cap * torch.tanh(logits / cap)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _mask(self, sight: Sight, columns: int) -> Any:
        """4-D masks [B, 1, K, columns], one for each kind of layer where kinds differ."""
        masks = {kind: self._laid(sight.visible(window), columns) for kind, window in self._windows.items()}
        return masks.get("", masks)

    def _laid(self, visible: Tensor, columns: int) -> Tensor:
        """What may be seen, bool [B, K, S], as a mask [B, 1, K, columns] in the form that attention takes."""
        visible = F.pad(visible, (0, columns - visible.shape[-1]))[:, None]
        if self.module.config._attn_implementation != "eager":  # noqa: SLF001 - adds its mask to the scores
            return visible
        nothing = torch.zeros((), dtype=self.dtype, device=visible.device)
        return torch.where(visible, nothing, torch.finfo(self.dtype).min)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.module.state_dict().items() if not tensor.is_meta}


class LibraryStore(OpenStore):
    """A cache object of the library; `room` is None where it grows, else the columns it has set aside."""

    def __init__(self, cache: Any, columns: int, room: int | None) -> None:
        self.cache = cache
        self.room = room
        self._columns = columns
        self._shared: tuple[Tensor, Tensor] | None = None

    @property
    def columns(self) -> int:
        """Columns in use."""
        return self._columns

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Keys and values [L, B, H, S, D] of the columns in use; the layers are made to share their memory."""
        if self._shared is None:
            layers = self.cache.layers
            self._shared = torch.stack([one.keys for one in layers]), torch.stack([one.values for one in layers])
            for layer, own_keys, own_values in zip(layers, *self._shared, strict=True):
                layer.keys, layer.values = own_keys, own_values
        keys, values = self._shared
        return keys[..., : self._columns, :], values[..., : self._columns, :]

    def nbytes(self) -> int:
        """Bytes allocated for keys and values."""
        return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in self.cache.layers)


def fill_layer(layer: Any, keys: Tensor, values: Tensor) -> None:
    """Have a fresh layer of the library, growing or of a fixed size, hold copies of these [B, H, S, D]."""
    layer.lazy_initialization(keys, values)
    if not hasattr(layer, "max_cache_len"):
        layer.keys, layer.values = keys.clone(), values.clone()
        return
    columns = keys.shape[2]
    layer.keys[:, :, :columns], layer.values[:, :, :columns] = keys, values
    layer.cumulative_length.fill_(columns)


class TransformersDecoder(LibraryDecoder, ShownColumns):
    """All layers keep all keys; those with a window are masked by events."""

    def cache_shape(self, cache: ColumnCache) -> CacheShape:
        """What the cache is made of, by the model's config."""
        own, store = self.module.config, cache.store
        heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        size = getattr(own, "head_dim", None) or own.hidden_size // own.num_attention_heads
        slots = (store.room if isinstance(store, LibraryStore) else None) or store.columns
        return CacheShape(own.num_hidden_layers, cache.rows, slots, heads, size, self.dtype.itemsize)

    def _append(self, events: Tensor, sight: Sight, store: Store) -> tuple[Tensor, Store]:
        if not isinstance(store, LibraryStore):
            raise DecoderError(f"a {type(store).__name__} is no store of this adapter")
        mask = self._mask(sight, store.room or sight.columns)
        logits = self._run(sight, mask, input_ids=events, use_cache=True, cache=store.cache)
        return logits, LibraryStore(store.cache, sight.columns, store.room)

    def _empty(self, rows: int, room: int) -> Store:
        del rows  # layers learn it from the first keys
        own = room if self.config.cache == "static" else None
        layers = [self._layer(own) for _ in range(self.module.config.num_hidden_layers)]
        return LibraryStore(self._caches.Cache(layers=layers), 0, own)

    def _store_of(self, keys: Tensor, values: Tensor, room: int) -> OpenStore:
        store, columns = self._empty(keys.shape[1], room), keys.shape[3]
        if not isinstance(store, LibraryStore):
            raise DecoderError("no store was made")
        for layer, own_keys, own_values in zip(store.cache.layers, keys, values, strict=True):
            fill_layer(layer, own_keys, own_values)
        return LibraryStore(store.cache, columns, store.room)

    def _layer(self, room: int | None) -> Any:
        return self._caches.DynamicLayer() if room is None else self._caches.StaticLayer(max_cache_len=room)
