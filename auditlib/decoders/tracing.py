"""What a decoder may offer so that a fault can be placed: the output of each component on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torch import Tensor

from auditlib.decoders.protocol import Decoder

Note = Callable[[int, str, Tensor], None]
"""(layer, component, output [B, T, …]): called in the order of computation; layer −1 before the first layer.

Components are "embedding", "norm", "keys", "values", "attention output", "feed-forward" and "logits".
"""


@runtime_checkable
class Traced(Protocol):
    """Can say what each component gives, on either path."""

    def traced(self, note: Note) -> Decoder:
        """This decoder, with the same weights and caches, telling `note` what each component of each call gives."""
