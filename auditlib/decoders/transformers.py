"""Adapter `transformers`: a Hugging Face folder, with the library's own dynamic or static cache.

Every call gets its own positions and masks, so padding may stand anywhere. Layers with a sliding window keep all keys
and are masked by events: the library's sliding caches drop by columns, which loses events once rows are uneven.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from auditlib.decoders.capabilities import CacheShape
from auditlib.decoders.column_decoder import ColumnDecoder
from auditlib.decoders.columns import ColumnCache, Sight, Store
from auditlib.decoders.fingerprint import fingerprint
from auditlib.decoders.optional import optional
from auditlib.decoders.transformers_model import build_model, context_of, read_config, windows
from auditlib.errors import DecoderError, RevisionError
from auditlib.events.documents import Entry, parse

if TYPE_CHECKING:
    from auditlib.decoders.adapters import Source

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
_LARGEST_CONFIG = 1 << 20
_LARGEST_WEIGHTS = 4 << 30
_CACHES = ("dynamic", "static")
_ATTENTIONS = ("sdpa", "eager")


@dataclass(frozen=True, slots=True)
class TransformersConfig:
    """What `revision.json` says beside the library's `config.json`."""

    cache: str = "dynamic"
    attention: str = "sdpa"
    context_length: int | None = None
    weights: tuple[str, ...] = ("model.safetensors",)

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any], where: str) -> TransformersConfig:
        """Config from JSON; RevisionError names the entry that is unknown or out of range."""
        entries = Entry(dict(config), where, RevisionError, "config").members(
            (), ("cache", "attention", "context_length", "weights")
        )
        given: dict[str, Any] = {}
        for name, choices in (("cache", _CACHES), ("attention", _ATTENTIONS)):
            if name in entries:
                given[name] = entries[name].text()
                if given[name] not in choices:
                    entries[name].refuse(f"must be one of {', '.join(choices)}")
        if "context_length" in entries:
            given["context_length"] = entries["context_length"].integer(1)
        if "weights" in entries:
            given["weights"] = tuple(entry.text() for entry in entries["weights"].items())
        return cls(**given)


class LibraryStore(Store):
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


class TransformersDecoder(ColumnDecoder):
    """Contract 1 over a causal language model of the library. Logits are at least float32."""

    def __init__(self, model: Any, config: TransformersConfig) -> None:
        own = context_of(model.config)
        super().__init__(int(model.config.vocab_size), config.context_length or own, model.dtype, model.device)
        if self.context_length > own:
            raise DecoderError(f"context_length {self.context_length} is more than the {own} positions of the model")
        self.module = model
        self.config = config
        self.positions = "learned" if model.config.model_type == "gpt2" else "rotary"
        self._windows = windows(model.config)
        self._caches = optional("transformers.cache_utils", "transformers")
        self.revision = self.fingerprint()

    def fingerprint(self) -> str:
        """`sha256:<hex>` over config and weights as they are now."""
        named = {"cache": self.config.cache, "attention": self.config.attention, "context": self.context_length}
        return fingerprint({**named, "model": self.module.config.to_json_string(use_diff=False)}, self._weights())

    def embed(self, events: Tensor) -> Tensor:
        """Embeddings [B, T, W] of events [B, T]."""
        return self.module.get_input_embeddings()(events)  # type: ignore[no-any-return]

    def full_from_embeddings(self, embeddings: Tensor, valid: Tensor) -> Tensor:
        """Logits [B, T, V] from embedded events [B, T, W], differentiable by them."""
        sight = self._fitting(Sight(valid[:, :0], valid))
        return self._run(sight, self._mask(sight, sight.columns), inputs_embeds=embeddings, use_cache=False)

    def cache_shape(self, cache: ColumnCache) -> CacheShape:
        """What the cache is made of, by the model's config."""
        own, store = self.module.config, cache.store
        heads = getattr(own, "num_key_value_heads", None) or own.num_attention_heads
        size = getattr(own, "head_dim", None) or own.hidden_size // own.num_attention_heads
        slots = (store.room if isinstance(store, LibraryStore) else None) or store.columns
        return CacheShape(own.num_hidden_layers, cache.rows, slots, heads, size, self.dtype.itemsize)

    def _whole(self, events: Tensor, sight: Sight) -> Tensor:
        return self._run(sight, self._mask(sight, sight.columns), input_ids=events, use_cache=False)

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

    def _store_of(self, keys: Tensor, values: Tensor, room: int) -> Store:
        store, columns = self._empty(keys.shape[1], room), keys.shape[3]
        if not isinstance(store, LibraryStore):
            raise DecoderError("no store was made")
        for layer, own_keys, own_values in zip(store.cache.layers, keys, values, strict=True):
            layer.lazy_initialization(own_keys, own_values)
            if store.room is None:
                layer.keys, layer.values = own_keys.clone(), own_values.clone()
                continue
            layer.keys[:, :, :columns], layer.values[:, :, :columns] = own_keys, own_values
            layer.cumulative_length.fill_(columns)
        return LibraryStore(store.cache, columns, store.room)

    def _layer(self, room: int | None) -> Any:
        return self._caches.DynamicLayer() if room is None else self._caches.StaticLayer(max_cache_len=room)

    def _run(self, sight: Sight, mask: Any, **more: Any) -> Tensor:
        found = self.module.base_model(attention_mask=mask, position_ids=sight.positions(), **more)
        logits: Tensor = self.module.lm_head(found.last_hidden_state)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def _mask(self, sight: Sight, columns: int) -> Any:
        """4-D masks [B, 1, K, columns], one for each kind of layer where kinds differ."""
        masks = {}
        for kind, window in self._windows.items():
            visible = F.pad(sight.visible(window), (0, columns - sight.columns))[:, None]
            if self.module.config._attn_implementation == "eager":  # noqa: SLF001 - adds its mask to the scores
                nothing = torch.zeros((), dtype=self.dtype, device=visible.device)
                visible = torch.where(visible, nothing, torch.finfo(self.dtype).min)
            masks[kind] = visible
        return masks.get("", masks)

    def _weights(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.module.state_dict().items() if not tensor.is_meta}


def load_transformers(source: Source) -> TransformersDecoder:
    """The decoder of a revision whose folder holds `config.json` and safetensors weights of a known family."""
    if source.dtype not in DTYPES:
        raise DecoderError(f"transformers has no {source.dtype} path here; choose one of {', '.join(map(str, DTYPES))}")
    config = TransformersConfig.from_mapping(source.config, str(source.folder / "revision.json"))
    where = str(source.folder / "config.json")
    text = source.read("config.json", _LARGEST_CONFIG).decode("utf-8", errors="replace")
    document = parse(text, where, RevisionError).value
    if not isinstance(document, dict):
        raise RevisionError(f"{where}: is no JSON object; copy the model's config.json")
    model_config = read_config(document, config.attention, where)
    model = build_model(model_config, _tensors(source, config), source.dtype, source.device, where)
    return TransformersDecoder(model, config)


def _tensors(source: Source, config: TransformersConfig) -> dict[str, Tensor]:
    """All tensors of the listed weight files, parsed from the very bytes whose digests were checked."""
    safetensors = optional("safetensors.torch", "transformers")
    tensors: dict[str, Tensor] = {}
    for name in config.weights:
        try:
            found = safetensors.load(source.read(name, _LARGEST_WEIGHTS))
        except Exception as problem:
            if isinstance(problem, RevisionError):
                raise
            raise RevisionError(f"{source.folder / name}: is no safetensors file ({problem})") from problem
        if twice := sorted(tensors.keys() & found.keys()):
            raise RevisionError(f"{source.folder / name}: has {twice[:3]}, which an earlier file has too")
        tensors |= found
    return tensors
