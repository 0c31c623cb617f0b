"""Small `event_gpt` decoders, rows for them, and revision folders that hold them."""

from __future__ import annotations

import random
from pathlib import Path

import torch

from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import fresh_tensors, module_from
from auditlib.decoders.reference import make_reference
from auditlib.decoders.revision import Revision, write_revision
from auditlib.decoders.tensor_file import write_tensors
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder

torch.set_num_threads(1)

CONTEXT = 20
EVENT_MAP = EventMap.build(["assigned", "closed", "opened", "repaired"])
EVENT_ORDER = EventOrder.from_json('{"format": 1, "version": "1", "rules": [], "reopening": null}')


def small_config(**changes) -> EventGptConfig:
    shape = {"vocabulary_size": EVENT_MAP.size, "context_length": CONTEXT, "width": 16, "layers": 2, "heads": 2}
    return EventGptConfig(**{**shape, **changes})


def small_gpt(dtype: torch.dtype = torch.float32, seed: int = 0, **changes) -> EventGpt:
    config = small_config(**changes)
    return EventGpt(module_from(config, fresh_tensors(config, seed), "cpu", dtype))


def some_rows(count: int = 12, seed: int = 0, longest: int = CONTEXT) -> list[tuple[int, ...]]:
    """Rows from start to end, of many lengths."""
    chance = random.Random(seed)
    return [(1, *chance.choices([3, 4, 5, 6], k=chance.randint(1, longest - 2)), 2) for _ in range(count)]


def some_events(rows: int, size: int, seed: int = 0) -> torch.Tensor:
    """Events [rows, size], each row behind the start token."""
    events = torch.randint(3, EVENT_MAP.size, (rows, size), generator=torch.Generator().manual_seed(seed))
    events[:, 0] = 1
    return events


def everywhere(events: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(events, dtype=torch.bool)


def write_small_revision(folder: Path, *, reference: bool = True, seed: int = 0, files=None, **changes) -> Revision:
    config = small_config(**changes)
    tensors = fresh_tensors(config, seed)
    contents = {"model.safetensors": write_tensors(tensors), **(files or {})}
    if reference:
        exact = EventGpt(module_from(config, dict(tensors), "cpu", torch.float64))
        contents["reference.safetensors"] = make_reference(exact, some_rows())
    return write_revision(
        folder,
        name="small",
        decoder="event_gpt",
        config=config.to_mapping(),
        event_map=EVENT_MAP,
        event_order=EVENT_ORDER,
        files=contents,
    )
