"""Which decoders a revision may name, and how each comes to life from the revision's files."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from auditlib.decoders.event_gpt import DTYPES, EventGpt
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import expected_shapes, module_from
from auditlib.decoders.protocol import Decoder
from auditlib.decoders.tensor_file import LARGEST_HEADER, read_tensors, require_tensors
from auditlib.errors import DecoderError, RevisionError

_CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """What an adapter gets: the folder's config, and `read(name, most)` for files whose digest was checked."""

    folder: Path
    config: Mapping[str, Any]
    read: Callable[[str, int], bytes]
    device: str
    dtype: torch.dtype


def load_event_gpt(source: Source) -> Decoder:
    """The native decoder from `model.safetensors` (float32); DecoderError for a dtype that it has no path for."""
    if source.dtype not in DTYPES:
        raise DecoderError(f"event_gpt has no {source.dtype} path; choose one of {', '.join(map(str, DTYPES))}")
    try:
        config = EventGptConfig.from_mapping(source.config)
    except RevisionError as problem:
        raise RevisionError(f"{source.folder / 'revision.json'}: {problem}") from problem
    shapes = expected_shapes(config)
    largest = 8 + LARGEST_HEADER + 4 * sum(torch.Size(shape).numel() for shape in shapes.values())
    where = f"{source.folder / 'model.safetensors'}"
    tensors = read_tensors(source.read("model.safetensors", largest), where)
    require_tensors(tensors, shapes, torch.float32, where)
    return EventGpt(module_from(config, tensors, source.device, source.dtype))


def _later(place: str) -> Callable[[Source], Decoder]:
    """The loader at `module:function`, imported only when a revision names it: its packages are optional."""
    module, _, function = place.partition(":")

    def load_later(source: Source) -> Decoder:
        """The decoder that the module's own loader gives; importing it is part of this call."""
        loader: Callable[[Source], Decoder] = getattr(importlib.import_module(module), function)
        return loader(source)

    return load_later


ADAPTERS: dict[str, Callable[[Source], Decoder]] = {
    "event_gpt": load_event_gpt,
    "transformers": _later("auditlib.decoders.transformers:load_transformers"),
    "onnx": _later("auditlib.decoders.onnx:load_onnx"),
    "paired": _later("auditlib.decoders.paired:load_paired"),
}


def load(name: str, source: Source, *, allow_code: bool) -> Decoder:
    """The decoder that a revision names: a built-in one, or `package.module:factory` when the operator allows code."""
    _check_device(source.device)
    if name in ADAPTERS:
        return ADAPTERS[name](source)
    if not _CODE.fullmatch(name):
        raise RevisionError(
            f"{source.folder}: decoder {name[:120]!r} is neither built in ({', '.join(ADAPTERS)}) "
            "nor of the form package.module:factory"
        )
    if not allow_code:
        raise RevisionError(
            f"{source.folder}: decoder {name!r} is code that the revision names; "
            "if you trust it, start again with --allow-code"
        )
    return _from_code(name, source)


def _from_code(name: str, source: Source) -> Decoder:
    module, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as problem:
        raise RevisionError(
            f"{source.folder}: decoder {name!r} cannot be imported ({problem}); install it"
        ) from problem
    if not callable(factory):
        raise RevisionError(
            f"{source.folder}: {name!r} is a {type(factory).__name__}; name a function that makes decoders"
        )
    decoder = factory(source.folder, source.device, source.dtype)
    if not isinstance(decoder, Decoder):
        raise RevisionError(f"{source.folder}: {name!r} gave a {type(decoder).__name__} that lacks parts of Decoder")
    return decoder


def _check_device(device: str) -> None:
    """Raise DecoderError unless tensors can be made on `device`."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        reason = str(problem).splitlines()[0]
        raise DecoderError(f"device {device!r} cannot be used ({reason}); choose another with --device") from problem
    if torch.device(device).type == "meta":
        raise DecoderError(
            f"device {device!r} holds no numbers, so nothing can be computed; choose another with --device"
        )
