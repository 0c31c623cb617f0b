"""Contract 1: what anyone implements to have their own decoder audited."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Decoder(Protocol):
    """A causal decoder whose cache is a value passed in and given back, never hidden in the model.

    Shapes: B rows, T or K positions, V vocabulary size. Events are int64, `valid` is bool, logits are floating point.
    What stands at invalid positions is never read, but must be finite, and so must the logits that are given there.
    """

    revision: str
    """Names weights and config exactly; what a cache belongs to."""
    vocabulary_size: int
    context_length: int
    """Most events a row may hold, start token included."""

    def full(self, events: Tensor, valid: Tensor) -> Tensor:
        """Full-prefix path: events [B, T], valid [B, T] → logits [B, T, V].

        `logits[b, t]` predicts the event after `events[b, t]`. Padding may stand on the left, the right or both; every
        row has at least one valid event.
        """

    def prefill(self, events: Tensor, valid: Tensor) -> tuple[Tensor, Any]:
        """Cached path, first call: logits [B, V] after each row's last valid event, and the cache."""

    def extend(self, events: Tensor, valid: Tensor, cache: Any) -> tuple[Tensor, Any]:
        """Cached path, next events [B, K], K ≥ 1: logits [B, K, V] and the new cache. The old cache is spent.

        A row may have no new event (all its K positions invalid).
        """

    def reorder(self, cache: Any, parents: Tensor) -> Any:
        """Cache whose row i continues old row `parents[i]` (int64 [B']); rows may repeat or be left out."""

    def cache_bytes(self, cache: Any) -> int:
        """Bytes of keys and values that the cache holds allocated."""
