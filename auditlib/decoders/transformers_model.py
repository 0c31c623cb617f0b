"""Models of the Transformers library from files that were checked: no download, no remote code, no pickle.

What the library computes in a fixed float32 whatever is asked for (angles, RMS norms, eager softmax) is computed in
float64 under float64: there audits look for faults far below float32's rounding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auditlib.decoders.optional import optional
from auditlib.decoders.transformers_attention import registered
from auditlib.errors import RevisionError

FAMILIES = {
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# Entries by which a config names code, kernels or weights from elsewhere.
_FOREIGN = ("auto_map", "quantization_config", "attn_implementation", "experts_implementation")
_LONGEST_TABLE = 1 << 16
_MOST_LAYERS = 256
# Their angles depend on how long a row has become, so keys stored earlier are no longer what a full pass computes.
_MOVING_ROPES = ("dynamic", "longrope")
# Families whose windows belong to kinds of layers, and those whose caches the library rolls wherever they are served.
_MIXED_LAYERS = ("gemma2", "gemma3_text", "qwen2", "qwen3")
_ROLLING = ("gemma2", "gemma3_text")
# Families that cap their attention scores, which SDPA cannot.
_CAPPED = ("gemma2",)


class AngleTable(nn.Module):
    """Rotary cosines and sines looked up by position, so that a position has the same ones in every call."""

    def __init__(self, rotary: Any, context: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        real = torch.float64 if dtype == torch.float64 else torch.float32
        places = torch.arange(context, dtype=real)
        self._tables: dict[str, tuple[Tensor, Tensor]] = {}
        for kind in getattr(rotary, "layer_types", [""]):  # some families turn each kind of layer by angles of its own
            name = f"{kind}_" if kind else ""
            angles = torch.outer(places, getattr(rotary, f"{name}inv_freq").to(device="cpu", dtype=real))
            both, scaling = torch.cat((angles, angles), dim=-1), getattr(rotary, f"{name}attention_scaling")
            cosines, sines = ((part * scaling).to(device=device, dtype=dtype) for part in (both.cos(), both.sin()))
            self._tables[kind] = cosines, sines

    def forward(self, _: Tensor, position_ids: Tensor, layer_type: str = "") -> tuple[Tensor, Tensor]:
        """Cosines and sines [B, K, D] of positions [B, K]."""
        cosines, sines = self._tables[layer_type]
        return cosines[position_ids], sines[position_ids]


class ExactNorm(nn.Module):
    """The library's RMS norm without its detour through float32; takes over the weight of the one it replaces."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight = norm.weight
        self._from_one = type(norm).__name__.startswith("Gemma")  # there a weight says how far it is from 1
        self.epsilon = float(norm.eps if self._from_one else norm.variance_epsilon)

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalised `hidden` [..., W], in its own dtype."""
        weight = 1 + self.weight if self._from_one else self.weight
        return F.rms_norm(hidden, self.weight.shape, weight, self.epsilon)


def attention_of(family: str, asked: str | None) -> str:
    """Which of the library's attentions a model of this family runs with: the one asked for, if any."""
    return asked or ("eager" if family in _CAPPED else "sdpa")


def read_config(document: Mapping[str, Any], attention: str | None, where: str) -> Any:
    """The library's config object of a `config.json`; RevisionError for a family or entry that is not for us."""
    family = document.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise RevisionError(
            f"{where}: model_type is {str(family)[:80]!r}; known are {', '.join(FAMILIES)}. "
            "For another family write a package.module:factory"
        )
    foreign = [name for name in document if name.removeprefix("_") in _FOREIGN and document[name] is not None]
    if foreign:
        raise RevisionError(f"{where}: {', '.join(foreign)} would load code or data from elsewhere; remove the entry")
    model = _model_class(family)
    try:
        config = model.config_class.from_dict({**document, "use_cache": True, "return_dict": True})
        config._attn_implementation = attention_of(family, attention)  # noqa: SLF001 - the library's documented name of it
        layers, context = int(config.num_hidden_layers), int(config.max_position_embeddings)
    except Exception as problem:
        raise RevisionError(f"{where}: transformers refuses it ({_line(problem)}); correct the entry") from problem
    if not (0 < layers <= _MOST_LAYERS and context > 0):
        raise RevisionError(f"{where}: {layers} layers over {context} positions are outside 1 to {_MOST_LAYERS} and 1")
    if getattr(config, "use_bidirectional_attention", None):
        raise RevisionError(
            f"{where}: use_bidirectional_attention lets events see later ones; such a model decodes none"
        )
    if family in _CAPPED and attention == "sdpa":
        raise RevisionError(f"{where}: {family} caps its attention scores, which sdpa cannot; set attention to eager")
    _check_rope(config, where)
    return config


def build_model(config: Any, tensors: Mapping[str, Tensor], dtype: torch.dtype, device: str, where: str) -> Any:
    """The model with these weights on `device` in `dtype`, for inference only; RevisionError where they do not fit."""
    model_class = _model_class(config.model_type)
    if dtype == torch.float64:
        # The library's eager softmax is float32 whatever is asked for.
        config._attn_implementation = registered() if config.model_type in _CAPPED else "sdpa"  # noqa: SLF001
    try:
        with torch.device("meta"):  # a hostile config must not allocate before its weights were seen to fit
            shapes = {name: tuple(tensor.shape) for name, tensor in model_class(config).state_dict().items()}
        tied = dict(model_class._tied_weights_keys) if config.tie_word_embeddings else {}  # noqa: SLF001
    except Exception as problem:
        raise RevisionError(f"{where}: transformers cannot build it ({_line(problem)})") from problem
    _require_fit(tensors, shapes, tied, where)
    with torch.random.fork_rng(devices=[]):  # building draws first weights, which must not shift anybody's chances
        model = model_class(config)
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()}, strict=False)
    model.tie_weights()
    rotary = getattr(model.base_model, "rotary_emb", None)
    model = model.to(device=device, dtype=dtype).eval().requires_grad_(requires_grad=False)
    if rotary is not None:
        fresh = type(rotary)(config)  # its frequencies were rounded when the model was moved to a coarser dtype
        model.base_model.rotary_emb = AngleTable(fresh, context_of(config), dtype, model.device)
    if dtype == torch.float64:
        _replace_norms(model)
    return model


def context_of(config: Any) -> int:
    """Positions that the model has, at most 65,536."""
    return min(int(config.max_position_embeddings), _LONGEST_TABLE)


def windows(config: Any) -> dict[str, int | None]:
    """Window of each kind of layer; the only key is "" where one mask serves all layers."""
    window = getattr(config, "sliding_window", None)
    if config.model_type in _MIXED_LAYERS:
        return {kind: window if kind == "sliding_attention" else None for kind in set(config.layer_types)}
    return {"": window if config.model_type == "mistral" else None}


def kinds_of_layers(config: Any) -> list[str]:
    """Which of the kinds that `windows` names each layer is of."""
    return list(config.layer_types) if config.model_type in _MIXED_LAYERS else [""] * config.num_hidden_layers


def rolls(config: Any, asked: str | None, where: str) -> bool:
    """Whether sliding layers forget what leaves their window; RevisionError where that is asked for in vain."""
    ends = [window for window in windows(config).values() if window is not None]
    rolling = asked == "rolling" or (asked is None and config.model_type in _ROLLING)
    if asked == "rolling" and not ends:
        raise RevisionError(f"{where}: no layer has a sliding window, so none can roll; take sliding_layers out")
    if rolling and ends and ends[0] < 2:
        raise RevisionError(f"{where}: sliding_window is {ends[0]}; a rolling layer needs at least 2")
    return rolling and bool(ends)


def _model_class(family: str) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return getattr(optional("transformers", "transformers"), FAMILIES[family])


def _check_rope(config: Any, where: str) -> None:
    given = getattr(config, "rope_parameters", None) or {}
    kinds = {str(one.get("rope_type", "default")) for one in (given, *given.values()) if isinstance(one, Mapping)}
    if moving := sorted(kinds & set(_MOVING_ROPES)):
        raise RevisionError(
            f"{where}: rope_type {moving[0]!r} turns keys by an angle that depends on the row's length, so no cache of "
            "earlier keys can be right; use default, linear, llama3 or yarn"
        )


def _require_fit(
    tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], tied: Mapping[str, str], where: str
) -> None:
    missing, extra = sorted(set(shapes) - set(tensors) - set(tied)), sorted(set(tensors) - set(shapes))
    if missing or extra:
        raise RevisionError(f"{where}: lacks tensors {missing[:5]} and has {extra[:5]}, unlike config.json")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != shapes[name] or not tensor.is_floating_point():
            raise RevisionError(
                f"{where}: tensor {name} is {tensor.dtype} {list(tensor.shape)}, config.json wants {list(shapes[name])}"
            )
        if not bool(torch.isfinite(tensor).all()):
            raise RevisionError(f"{where}: tensor {name} holds numbers that are not finite; restore the weights")
    for name, source in tied.items():
        # Tying would overwrite one of the two without a word: what is audited is then not what the file holds.
        if name in tensors and not torch.equal(tensors[name].float(), tensors[source].float()):
            raise RevisionError(
                f"{where}: {name} differs from {source}, yet config.json ties them; set tie_word_embeddings to false"
            )


def _replace_norms(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(module, name, ExactNorm(child))


def _line(problem: Exception) -> str:
    """The first line of somebody else's error."""
    return f"{type(problem).__name__}: {(str(problem).strip().splitlines() or [''])[0][:200]}"
