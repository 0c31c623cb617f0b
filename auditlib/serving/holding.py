"""Bytes of keys and values that a path holds at once, beside what the shape of its caches says that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from auditlib.decoders.capabilities import CacheShaped
from auditlib.decoders.protocol import Decoder


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes allocated for one cache, and by the formula; `formula` is None where the decoder tells no shape."""

    allocated: int = 0
    formula: int | None = None

    def beside(self, other: Held) -> Held:
        """Both at once."""
        known = self.formula is not None and other.formula is not None
        return Held(self.allocated + other.allocated, (self.formula or 0) + (other.formula or 0) if known else None)


class Holding:
    """The most that was held at once so far, and how far allocation and formula were apart at most."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._shaped = decoder if isinstance(decoder, CacheShaped) else None
        self.peak = Held()
        self.apart: int | None = None
        """Largest difference between allocation and formula (bytes); None where no shape is known."""

    def of(self, cache: Any) -> Held:
        """What one cache holds now."""
        allocated = self._decoder.cache_bytes(cache)
        if self._shaped is None:
            return Held(allocated)
        formula = self._shaped.cache_shape(cache).bytes
        # In either direction: fewer bytes than the shape takes are as wrong as more.
        self.apart = max(self.apart or 0, abs(allocated - formula))
        return Held(allocated, formula)

    def saw(self, held: Held) -> None:
        """Note what is held at this moment."""
        if held.allocated > self.peak.allocated:
            self.peak = held
