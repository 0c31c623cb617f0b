"""The fixed batch of an artifact: prefixes to be replayed, with the answers that each got alone by the full path.

File `fixed_batch.safetensors`: events int64 [B, T], valid bool [B, T], logits [B, V] after each row's last event.
File `answers.json`: one entry a row, with the session attributes that its order rules were chosen by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from auditlib.decoders.rows import Row, padded
from auditlib.decoders.tensor_file import read_tensors, write_tensors
from auditlib.decoding.generated import Stop
from auditlib.errors import ArtifactError
from auditlib.events.documents import Entry, parse
from auditlib.events.event_map import EventMap
from auditlib.serving.artifact import ANSWERS, BATCH, Artifact
from auditlib.serving.artifact_document import document_bytes

_LARGEST_BATCH = 1 << 30
_LARGEST_ANSWERS = 64 << 20
_STOPS: dict[str, Stop] = {stop: stop for stop in get_args(Stop)}


@dataclass(frozen=True, slots=True)
class Stratum:
    """What a prefix stands for: the band of its length, the state of the order it leads to, and how often it was seen.

    `length` counts the start token. `seen` is the number of held-out sessions that begin so; 0 for a made-up one.
    """

    length: str
    state: int
    seen: int


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """What the full path answered to a prefix alone: new events (ids, the end included), why they stop, their score."""

    events: tuple[int, ...]
    stop: Stop
    forced: bool
    score: float


@dataclass(frozen=True, slots=True)
class FixedBatch:
    """Rows for replay, one entry of every field a row. Prefixes are ids with the start token; logits are [B, V]."""

    prefixes: tuple[Row, ...]
    attributes: tuple[Mapping[str, str], ...]
    strata: tuple[Stratum, ...]
    answers: tuple[SavedAnswer, ...]
    logits: Tensor

    def files(self, setting: str) -> dict[str, bytes]:
        """The two files that hold it, for the setting that gave the answers."""
        events, valid = padded(self.prefixes)
        # Every float32 holds a bfloat16 exactly, and the files know no narrower type.
        logits = self.logits if self.logits.dtype == torch.float64 else self.logits.to(torch.float32)
        lines = [_line(*parts) for parts in zip(self.prefixes, self.attributes, self.strata, self.answers, strict=True)]
        document = {"format": 1, "setting": setting, "path": "full prefix", "rows": lines}
        tensors = {"events": events, "valid": valid, "logits": logits.cpu()}
        return {BATCH: write_tensors(tensors), ANSWERS: document_bytes(document)}


def read_fixed_batch(artifact: Artifact) -> FixedBatch:
    """The fixed batch of an artifact that serves; ArtifactError when its files make no sense or there are none."""
    if artifact.setting is None:
        raise ArtifactError(f"{artifact.folder}: serves nothing, so there is no fixed batch to replay")
    prefixes, logits = _tensors(artifact)
    where = str(artifact.folder / ANSWERS)
    try:
        text = artifact.read(ANSWERS, _LARGEST_ANSWERS).decode("utf-8")
    except UnicodeDecodeError as problem:
        raise ArtifactError(f"{where}: byte {problem.start} is not UTF-8; package again") from problem
    top = parse(text, where, ArtifactError)
    members = top.members(("format", "setting", "path", "rows"))
    members["format"].expect_format(1)
    if members["setting"].text() != artifact.setting.name:
        members["setting"].refuse(f"is not the setting {artifact.setting.name!r} that is served; package again")
    rows = members["rows"].items()
    if len(rows) != len(prefixes):
        members["rows"].refuse(f"holds {len(rows)} answers to {len(prefixes)} prefixes; package again")
    lines = [_read_line(*pair, artifact.revision.event_map) for pair in zip(rows, prefixes, strict=True)]
    attributes, strata, answers = zip(*lines, strict=True)
    return FixedBatch(prefixes, attributes, strata, answers, logits)


def _tensors(artifact: Artifact) -> tuple[tuple[Row, ...], Tensor]:
    where = str(artifact.folder / BATCH)
    tensors = read_tensors(artifact.read(BATCH, _LARGEST_BATCH), where)
    if set(tensors) != {"events", "valid", "logits"}:
        raise ArtifactError(f"{where}: holds {sorted(tensors)[:5]}; it must hold events, valid and logits")
    events, valid, logits = tensors["events"], tensors["valid"], tensors["logits"]
    ids = artifact.revision.event_map
    fits = (
        (events.dtype, valid.dtype) == (torch.int64, torch.bool)
        and events.dim() == 2
        and logits.dim() == 2
        and logits.is_floating_point()
        and events.shape == valid.shape
        and len(logits) == len(events) > 0
        and logits.shape[1] >= ids.size
    )
    if not fits:
        raise ArtifactError(f"{where}: events, valid and logits do not fit each other or the map; package again")
    prefixes = tuple(tuple(row[keep].tolist()) for row, keep in zip(events, valid, strict=True))
    domain = set(ids.domain)
    for number, prefix in enumerate(prefixes):
        if prefix[:1] != (ids.start,) or not domain.issuperset(prefix[1:]):
            raise ArtifactError(f"{where}: row {number} is no prefix of the event map; package again")
    return prefixes, logits


def _line(prefix: Row, attributes: Mapping[str, str], stratum: Stratum, answer: SavedAnswer) -> dict[str, Any]:
    return {
        "prefix": list(prefix),  # once more, so that a person can read an answer beside what it answers
        "attributes": dict(attributes),
        "length": stratum.length,
        "state": stratum.state,
        "seen": stratum.seen,
        "events": list(answer.events),
        "stop": answer.stop,
        "forced": answer.forced,
        "score": answer.score,
    }


def _read_line(entry: Entry, prefix: Row, ids: EventMap) -> tuple[dict[str, str], Stratum, SavedAnswer]:
    parts = entry.members(("prefix", "attributes", "length", "state", "seen", "events", "stop", "forced", "score"))
    if parts["prefix"].value != list(prefix):
        parts["prefix"].refuse(f"is not the row of {BATCH} that stands in its place; package again")
    attributes = {name: value.text() for name, value in parts["attributes"].mapping().items()}
    events = tuple(value.integer() for value in parts["events"].items())
    if not {*ids.domain, ids.end, ids.start, ids.padding}.issuperset(events):
        parts["events"].refuse("holds an id that the event map lacks; package again")
    if parts["stop"].text() not in _STOPS:
        parts["stop"].refuse(f"is none of {', '.join(_STOPS)}; package again")
    score = parts["score"].value
    if not isinstance(score, float) or not math.isfinite(score):
        parts["score"].refuse("is no finite number; package again")
    stratum = Stratum(parts["length"].text(), parts["state"].integer(), parts["seen"].integer())
    answer = SavedAnswer(events, _STOPS[parts["stop"].value], parts["forced"].flag(), score)
    return attributes, stratum, answer
