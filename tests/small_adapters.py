"""A small revision folder for every adapter, with random weights made on the spot; nothing is downloaded."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from auditlib.decoders.gpt_weights import fresh_tensors
from auditlib.decoders.onnx_export import onnx_config, onnx_network
from auditlib.decoders.revision import Revision, open_revision, write_revision
from auditlib.decoders.tensor_file import write_tensors
from tests.small_gpt import CONTEXT, EVENT_MAP, EVENT_ORDER, small_config, small_gpt

MARKOV_CONTEXT = 128
WINDOW = 5


def need(*packages: str) -> None:
    """Skip where an optional package is not installed, and say how to get it."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package}: pip install -r requirements-adapters.txt", allow_module_level=True)


def library_config(family: str, **changes: Any) -> dict[str, Any]:
    """A `config.json` of a model with 16 channels in 2 layers, whose weights are wide enough to matter."""
    shape: dict[str, Any] = {
        "vocab_size": EVENT_MAP.size,
        "initializer_range": 0.5,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    if family == "gpt2":
        shape |= {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
    else:
        shape |= {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
        shape |= {"intermediate_size": 24, "max_position_embeddings": CONTEXT, "head_dim": 4, "pad_token_id": 0}
    if family == "mistral":
        shape["sliding_window"] = WINDOW
    if family in ("gemma2", "gemma3_text"):
        kinds = ["sliding_attention", "full_attention"]
        shape |= {"sliding_window": WINDOW, "layer_types": kinds, "query_pre_attn_scalar": 4}
    if family == "gemma2":
        shape |= {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 20.0}  # low enough to be felt
    if family.startswith("qwen"):
        shape |= {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
    return {"model_type": family, **shape, **changes}


def library_model(config: dict[str, Any], seed: int = 0) -> Any:
    """The library's own model with random weights, built by its own means."""
    import transformers  # noqa: PLC0415

    from auditlib.decoders.transformers_model import FAMILIES  # noqa: PLC0415

    model_class = getattr(transformers, FAMILIES[config["model_type"]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(model_class.config_class.from_dict(dict(config))).eval()


def library_weights(model: Any) -> dict[str, torch.Tensor]:
    """What the library would save: tied weights once."""
    tensors = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return tensors


def write_folder(folder: Path, decoder: str, config: dict[str, Any], files: dict[str, bytes]) -> Revision:
    return write_revision(
        folder,
        name=folder.name,
        decoder=decoder,
        config=config,
        event_map=EVENT_MAP,
        event_order=EVENT_ORDER,
        files=files,
    )


def write_library_folder(folder: Path, family: str, settings: dict[str, Any] | None = None, **changes: Any) -> Revision:
    need("transformers")
    config = library_config(family, **changes)
    weights = save(library_weights(library_model(config)))
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": weights}
    return write_folder(folder, "transformers", settings or {}, files)


def write_onnx_folder(folder: Path, **changes: Any) -> Revision:
    need("onnx", "onnxruntime")
    decoder = small_gpt(**changes)
    return write_folder(folder, "onnx", asdict(onnx_config(decoder.config)), {"model.onnx": onnx_network(decoder)})


def write_native_folder(folder: Path, **changes: Any) -> Revision:
    config = small_config(**changes)
    files = {"model.safetensors": write_tensors(fresh_tensors(config, 0))}
    return write_folder(folder, "event_gpt", config.to_mapping(), files)


def write_pair_folder(folder: Path, seeds: tuple[int, int] = (0, 0), **changes: Any) -> Revision:
    """Two `event_gpt` halves, whose weights lie in two files of the folder."""
    config = small_config(**changes)
    files = {
        f"{half}.safetensors": write_tensors(fresh_tensors(config, seed))
        for half, seed in zip(("full", "cached"), seeds, strict=True)
    }
    named = {"decoder": "event_gpt", "config": config.to_mapping()}
    halves = {half: {**named, "files": {"model.safetensors": f"{half}.safetensors"}} for half in ("full", "cached")}
    return write_folder(folder, "paired", halves, files)


def write_torch_and_onnx_folder(folder: Path) -> Revision:
    """Full path in torch, cached path in ONNX Runtime, of one set of weights."""
    need("onnx", "onnxruntime")
    decoder = small_gpt()
    network = {"decoder": "onnx", "config": asdict(onnx_config(decoder.config))}
    halves = {"full": {"decoder": "event_gpt", "config": decoder.config.to_mapping()}, "cached": network}
    weights = write_tensors(fresh_tensors(decoder.config, 0))
    return write_folder(folder, "paired", halves, {"model.onnx": onnx_network(decoder), "model.safetensors": weights})


def write_markov_folder(folder: Path) -> Revision:
    """The README's decoder of one's own."""
    table = torch.randn(EVENT_MAP.size, EVENT_MAP.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return write_folder(folder, "examples.markov:factory", {}, {"table.safetensors": save({"table": table})})


def _library(family: str, **settings: Any) -> Callable[[Path], Revision]:
    return lambda folder: write_library_folder(folder, family, settings)


MAKERS: dict[str, Callable[[Path], Revision]] = {
    "event_gpt": write_native_folder,
    "event_gpt, learned positions": lambda folder: write_native_folder(folder, positions="learned"),
    "gemma2, dynamic, eager": _library("gemma2"),
    "gemma2, static, kept": _library("gemma2", cache="static", sliding_layers="kept"),
    "gemma3_text, dynamic, sdpa": _library("gemma3_text"),
    "gemma3_text, static, eager": _library("gemma3_text", cache="static", attention="eager"),
    "gemma3_text, kept": _library("gemma3_text", sliding_layers="kept"),
    "gpt2, dynamic, sdpa": _library("gpt2"),
    "gpt2, static, eager": _library("gpt2", cache="static", attention="eager"),
    "llama, dynamic, eager": _library("llama", attention="eager"),
    "llama, static, sdpa": _library("llama", cache="static"),
    "mistral, dynamic, sdpa": _library("mistral"),
    "mistral, static, eager": _library("mistral", cache="static", attention="eager"),
    "mistral, static, rolling": _library("mistral", cache="static", sliding_layers="rolling"),
    "qwen3, dynamic, rolling": _library("qwen3", sliding_layers="rolling"),
    "qwen2, static, sdpa": _library("qwen2", cache="static"),
    "qwen3, dynamic, sdpa": _library("qwen3"),
    "onnx": write_onnx_folder,
    "onnx, learned positions": lambda folder: write_onnx_folder(folder, positions="learned", normalisation="rms"),
    "paired, torch and onnx": write_torch_and_onnx_folder,
    "paired, two files": write_pair_folder,
    "examples.markov": write_markov_folder,
}
WITHOUT_FLOAT64 = frozenset(name for name in MAKERS if "onnx" in name)
WITHOUT_BFLOAT16 = WITHOUT_FLOAT64


class Made:
    """Decoders of the revisions above; each folder is written once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folders: dict[str, Path] = {}
        self._decoders: dict[tuple[str, torch.dtype], Any] = {}

    def folder(self, name: str) -> Path:
        if name not in self._folders:
            place = self._home / str(len(self._folders))
            MAKERS[name](place)
            self._folders[name] = place
        return self._folders[name]

    def decoder(self, name: str, dtype: torch.dtype) -> Any:
        if (name, dtype) not in self._decoders:
            self._decoders[name, dtype] = self.fresh(name, dtype)
        return self._decoders[name, dtype]

    def fresh(self, name: str, dtype: torch.dtype) -> Any:
        return open_revision(self.folder(name)).decoder(dtype=dtype, allow_code=name == "examples.markov")
