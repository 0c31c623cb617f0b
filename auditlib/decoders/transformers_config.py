"""What `revision.json` says of a decoder of the Transformers library, beside the library's own `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auditlib.errors import RevisionError
from auditlib.events.documents import Entry

_CACHES = ("dynamic", "static")
_ATTENTIONS = ("sdpa", "eager")
_SLIDING = ("kept", "rolling")


@dataclass(frozen=True, slots=True)
class TransformersConfig:
    """What `revision.json` says beside the library's `config.json`."""

    cache: str = "dynamic"
    attention: str | None = None
    """"sdpa" or "eager"; None: what `attention_of` says of the family."""
    context_length: int | None = None
    sliding_layers: str | None = None
    """"kept": all keys stay; "rolling": the newest of a window; None: rolling where the library knows only that."""
    weights: tuple[str, ...] = ("model.safetensors",)

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any], where: str) -> TransformersConfig:
        """Config from JSON; RevisionError names the entry that is unknown or out of range."""
        entries = Entry(dict(config), where, RevisionError, "config").members(
            (), ("cache", "attention", "context_length", "sliding_layers", "weights")
        )
        given: dict[str, Any] = {}
        for name, choices in (("cache", _CACHES), ("attention", _ATTENTIONS), ("sliding_layers", _SLIDING)):
            if name in entries:
                given[name] = entries[name].text()
                if given[name] not in choices:
                    entries[name].refuse(f"must be one of {', '.join(choices)}")
        if "context_length" in entries:
            given["context_length"] = entries["context_length"].integer(1)
        if "weights" in entries:
            given["weights"] = tuple(entry.text() for entry in entries["weights"].items())
        return cls(**given)
