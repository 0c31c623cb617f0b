"""Configuration of an `event_gpt`: read strictly, because it arrives in revision folders from strangers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from auditlib.errors import RevisionError

# Far above what event logs need; they keep a hostile config from asking for the machine's whole memory.
_LARGEST = {"vocabulary_size": 1 << 20, "context_length": 1 << 16, "width": 1 << 14, "layers": 256, "heads": 1 << 10}
_CHOICES = {"positions": ("rotary", "learned"), "normalisation": ("layer", "rms")}


@dataclass(frozen=True, slots=True)
class EventGptConfig:
    """Shape of an `event_gpt`.

    `context_length` counts events with the start token. `cached_attention_window: W` lets the cached path (never the
    full one) attend to the newest W events only: cheaper serving that gives up exactness, which the audits must see.
    Layer normalisation is the default because torch fuses it on CPUs, where RMS takes three times as long.
    """

    vocabulary_size: int
    context_length: int
    width: int = 64
    layers: int = 2
    heads: int = 4
    positions: str = "rotary"
    normalisation: str = "layer"
    dropout: float = 0.0
    cached_attention_window: int | None = None

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            _whole(name, getattr(self, name), largest)
        if self.cached_attention_window is not None:
            _whole("cached_attention_window", self.cached_attention_window, _LARGEST["context_length"])
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise _refusal(name, getattr(self, name), f"one of {', '.join(choices)}")
        _check_dropout(self.dropout)
        if self.width % self.heads or (self.positions == "rotary" and self.width // self.heads % 2):
            fit = f"{self.heads} heads of {'an even' if self.positions == 'rotary' else 'a whole'} size each"
            raise _refusal("width", self.width, f"a number that gives {fit}")

    @property
    def head_size(self) -> int:
        """Channels of one attention head."""
        return self.width // self.heads

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> EventGptConfig:
        """Config from JSON; RevisionError names the entry that is missing, unknown or out of range."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(str(name) for name in config if name not in known)
        missing = sorted({"vocabulary_size", "context_length"} - set(config))
        if unknown or missing:
            raise RevisionError(
                f"event_gpt config: unknown entries {unknown}, missing entries {missing}; it takes {sorted(known)}"
            )
        return cls(**config)

    def to_mapping(self) -> dict[str, Any]:
        """The config as JSON values, every entry written out."""
        return asdict(self)


def _whole(name: str, value: object, largest: int) -> None:
    """Raise unless `value` is a whole number from 1 to `largest` (True is not a number here)."""
    if type(value) is not int or not 1 <= value <= largest:
        raise _refusal(name, value, f"a whole number from 1 to {largest}")


def _check_dropout(value: object) -> None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value < 1:  # type: ignore[arg-type,operator]
        raise _refusal("dropout", value, "a number from 0 up to, not including, 1")


def _refusal(name: str, value: object, wanted: str) -> RevisionError:
    return RevisionError(f"event_gpt config: {name} is {str(value)[:80]!r}; it must be {wanted}")
