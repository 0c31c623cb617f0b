"""Adapter `transformers`: a Hugging Face folder, with the library's own dynamic or static cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from auditlib.decoders.optional import optional
from auditlib.decoders.transformers_config import TransformersConfig
from auditlib.decoders.transformers_decoder import LibraryDecoder, TransformersDecoder
from auditlib.decoders.transformers_model import build_model, read_config, rolls
from auditlib.decoders.transformers_rolling import RollingDecoder
from auditlib.errors import DecoderError, RevisionError
from auditlib.events.documents import parse

if TYPE_CHECKING:
    from auditlib.decoders.adapters import Source

DTYPES = (torch.float32, torch.bfloat16, torch.float64)
_LARGEST_CONFIG = 1 << 20
_LARGEST_WEIGHTS = 4 << 30


def load_transformers(source: Source) -> LibraryDecoder:
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
    if not rolls(model_config, config.sliding_layers, where):
        return TransformersDecoder(model, config)
    return RollingDecoder(model, config)


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
