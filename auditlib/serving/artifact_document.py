"""What `artifact.json` says, read with suspicion: a document that contradicts itself is refused as a whole."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from auditlib.decoding.policies import Setting, settings_from
from auditlib.errors import ArtifactError, PolicyError
from auditlib.events.documents import Entry, parse
from auditlib.serving.plan import strategy_in
from auditlib.serving.served import Bounds, Strategy

FULL_PREFIX: Strategy = "full prefix"
FALLBACK_FULL_PREFIX = "full-prefix"
"""The fallback of an artifact that needs no other one: the same decoder without cache."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_KEYS = (
    "format", "name", "run", "report", "revision", "event_map", "event_order", "policy", "snapshot", "code", "dtype",
    "strategy", "decoding", "stopping", "bounds", "tolerance", "blocked", "serves", "fallback", "files",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a run did not allow cache acceleration, and each proposed setting; no reason means that it did."""

    cache_acceleration: tuple[str, ...]
    decoding: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        """The reasons as they stand in an artifact."""
        decoding = {name: list(reasons) for name, reasons in self.decoding.items()}
        return {"cache_acceleration": list(self.cache_acceleration), "decoding": decoding}


@dataclass(frozen=True, slots=True)
class Document:
    """The parts of `artifact.json` that somebody acts on; `whole` is all of it.

    `setting` and `strategy` are what is served, None where nothing is. `tolerance` is in logits, 0 where the run
    measured none: then nothing may differ.
    """

    whole: Mapping[str, Any]
    settings: Mapping[str, Setting]
    setting: Setting | None
    strategy: Strategy | None
    bounds: Bounds
    tolerance: float
    blocked: Blocked
    files: Mapping[str, str]

    @classmethod
    def from_json(cls, data: bytes, where: str) -> Document:
        """The document in the bytes of `artifact.json`; ArtifactError names the place and the reason."""
        try:
            top = parse(data.decode("utf-8"), where, ArtifactError)
        except UnicodeDecodeError as problem:
            raise ArtifactError(f"{where}: byte {problem.start} is not UTF-8; package again") from problem
        found = _read(cls, top)
        if _rewritten(found.whole) != data:
            top.refuse("is not written in the one form that packaging gives it; package again")
        for contradiction in _contradictions(found):
            top.refuse(f"{contradiction}; package again")
        return found

    @property
    def serves(self) -> bool:
        """Whether requests may be answered by this artifact at all."""
        return self.setting is not None


def document_bytes(document: Mapping[str, Any]) -> bytes:
    """The one form of a document's JSON: keys sorted, no white space, UTF-8."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _rewritten(document: Mapping[str, Any]) -> bytes | None:
    """The document in the one form; None for what cannot be written in it, such as half a character."""
    try:
        return document_bytes(document)
    except (ValueError, RecursionError):
        return None


def _read(cls: type[Document], top: Entry) -> Document:
    parts = top.members(_KEYS)
    parts["format"].expect_format(1)
    for key in ("name", "run", "dtype", "fallback"):
        parts[key].text()
    for key in ("report", "policy", "snapshot"):
        _digest(parts[key])
    for key in ("revision", "event_map", "event_order", "code"):
        name = "name" if key == "revision" else "version"
        named = parts[key].members((name, "digest"))
        named[name].text()
        _digest(named["digest"])
    decoding = parts["decoding"].members(("asked", "served", "settings"))
    settings = _settings(decoding["settings"])
    _named(decoding["asked"], settings)
    strategy = parts["strategy"].members(("asked", "served"))
    strategy_in(strategy["asked"])
    stopping = parts["stopping"].members(("max_new_events", "stop_on"))
    bounds = _bounds(parts["bounds"])
    if stopping["max_new_events"].integer(1) != bounds.max_new_events:
        stopping["max_new_events"].refuse("is not the one in bounds; package again")
    if stopping["stop_on"].text() != "end":
        stopping["stop_on"].refuse('write "end": nothing else ends a session')
    parts["serves"].flag()
    return cls(
        whole=top.value,
        settings=settings,
        setting=None if decoding["served"].value is None else _named(decoding["served"], settings),
        strategy=None if strategy["served"].value is None else strategy_in(strategy["served"]),
        bounds=bounds,
        tolerance=_tolerance(parts["tolerance"]),
        blocked=_blocked(parts["blocked"], settings),
        files={name: _digest(entry) for name, entry in parts["files"].mapping().items()},
    )


def _contradictions(found: Document) -> Iterator[str]:
    """What in a document does not agree with the rest: what a verdict blocks must be off, whatever is written."""
    said = found.whole
    if said["serves"] != found.serves or (found.strategy is None) == found.serves:
        yield "it does not agree with itself on whether it serves"
    if found.setting is not None and found.blocked.decoding[found.setting.name]:
        yield f"it serves the decoding setting {found.setting.name!r}, which it says is blocked"
    if found.strategy not in (None, FULL_PREFIX) and found.blocked.cache_acceleration:
        yield f"it serves with {found.strategy!r} though it says that cache acceleration is blocked"
    if said["fallback"] != FALLBACK_FULL_PREFIX and not _DIGEST.fullmatch(said["fallback"]):
        yield "its fallback is neither full-prefix nor the digest of an artifact"
    if said["fallback"] == FALLBACK_FULL_PREFIX and not found.serves:
        yield "it serves nothing and names no artifact that does"


def _settings(entry: Entry) -> dict[str, Setting]:
    try:
        # `mapping` refuses what is no object; the settings themselves are read from the plain value.
        return {setting.name: setting for setting in settings_from(entry.mapping() and entry.value, entry.where)}
    except PolicyError as problem:
        raise ArtifactError(str(problem)) from problem


def _named(entry: Entry, settings: Mapping[str, Setting]) -> Setting:
    if entry.text() not in settings:
        entry.refuse(f"is {entry.value!r}, which is not among the settings")
    return settings[entry.value]


def _bounds(entry: Entry) -> Bounds:
    numbers = {name: value.integer() for name, value in entry.members([one.name for one in fields(Bounds)]).items()}
    return entry.make(Bounds, *(numbers[one.name] for one in fields(Bounds)))


def _tolerance(entry: Entry) -> float:
    parts = entry.members(("value", "unit", "device"))
    parts["device"].mapping()
    if parts["unit"].text() != "logit":
        parts["unit"].refuse('write "logit": nothing else is compared')
    value = parts["value"].value
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, float) or not 0 <= value < math.inf:
        parts["value"].refuse("is no finite number of at least 0; package again")
    return value


def _blocked(entry: Entry, settings: Mapping[str, Setting]) -> Blocked:
    parts = entry.members(("cache_acceleration", "decoding"))
    decoding = {name: _reasons(value) for name, value in parts["decoding"].mapping().items()}
    if set(decoding) != set(settings):
        parts["decoding"].refuse("does not name each setting once")
    return Blocked(_reasons(parts["cache_acceleration"]), decoding)


def _reasons(entry: Entry) -> tuple[str, ...]:
    return tuple(reason.text() for reason in entry.items())


def _digest(entry: Entry) -> str:
    if not _DIGEST.fullmatch(entry.text()):
        entry.refuse("write sha256: and 64 hexadecimal digits")
    return str(entry.value)
