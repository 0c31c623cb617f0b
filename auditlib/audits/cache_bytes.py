"""Cache bytes: whether what a decoder says its caches take can be true, by what it shows of them or tells of a shape.

What must hold, and no more: where `stored` gives views of the cache, at least the bytes of the keys and values of all
events, and at most the memory behind the views; where `cache_shape` tells a shape, exactly what that shape takes. A
decoder that grows its caches may set more aside than it uses, and one that sets all aside at once may count all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from auditlib.audits.base import Measurement
from auditlib.audits.checked import CheckedDecoder, refusal
from auditlib.audits.held_out import Material
from auditlib.decoders.capabilities import CacheShaped, Inspectable
from auditlib.decoders.protocol import Decoder

PROBE = "cache bytes"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Fewest and most bytes that may truthfully be said of a cache; `why` is what they rest on, empty for nothing."""

    least: int = 0
    most: float = math.inf
    why: str = ""

    def admit(self, said: object) -> bool:
        """Whether it is a whole number of bytes within the bounds."""
        whole = isinstance(said, Integral) and not isinstance(said, bool)
        return whole and self.least <= int(said) <= self.most  # type: ignore[call-overload]


def bounds(decoder: Decoder, shown: Inspectable | None, cache: Any) -> Bounds:
    """What may be said of one cache, by its stored keys and values and by the shape that is told of it."""
    stored = Bounds() if shown is None else stored_bounds(shown, cache)
    if not isinstance(decoder, CacheShaped):
        return stored
    exact = decoder.cache_shape(cache).bytes
    why = f"the shape that it tells and {stored.why}" if stored.why else "the shape that it tells"
    return Bounds(max(exact, stored.least), min(exact, stored.most), why)


def stored_bounds(shown: Inspectable, cache: Any) -> Bounds:
    """Bytes of the events that a cache shows, and of the memory behind; no bounds where copies are shown.

    What is asked for twice and lies in the same memory both times is the cache's own.
    """
    first, again = shown.stored(cache), shown.stored(cache)
    if any(one.data_ptr() != other.data_ptr() for one, other in zip(first[:2], again[:2], strict=True)):
        return Bounds()
    memory = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for part in first[:2]}
    allocated, events = sum(memory.values()), int(first[2].sum())
    # Rows may share memory: then there is less of it than the events would take each by itself.
    return Bounds(min(allocated, sum(_of_events(part, events) for part in first[:2])), allocated, "what it stores")


def _of_events(stored: Tensor, events: int) -> int:
    """Bytes of so many events in keys or values [layers, B, H, S, D]."""
    layers, _, heads, _, size = stored.shape
    return layers * heads * size * events * stored.element_size()


class BytesProbe:
    """Asks for the bytes of caches after prompts, appends and reorders of a few rows."""

    def __init__(self, checked: CheckedDecoder, rows: Material, shown: Inspectable | None) -> None:
        self._checked, self._rows, self._shown = checked, rows, shown
        self.looked = 0
        self.lies: list[str] = []
        """Each wrong statement in words."""
        self.reason = "the decoder shows no views of its stored keys and values and tells no shape of its caches"

    def run(self) -> None:
        """Compare what is said of every cache; a refusal to say anything counts as wrong."""
        for moment, cache in self._caches():
            found = self._bounds(cache)
            said: list[object] = []
            problem = refusal(lambda cache=cache, said=said: said.append(self._checked.decoder.cache_bytes(cache)))  # type: ignore[misc]
            wrong = bool(problem) or not found.admit(said[0])
            # Where nothing is known of a cache, a number of bytes may be true; one that is none never is.
            if not found.why and (problem or not wrong):
                continue
            self.looked += 1
            if wrong:
                heard, due = (problem or f"{said[0]!r} bytes")[:200], f"{found.least:,} to {found.most:,}"
                self.lies.append(f"{moment}: {heard}, where {found.why or 'any cache'} takes {due}")

    def measurement(self) -> Measurement:
        """How many caches are not said to take what they take."""
        return Measurement(PROBE, len(self.lies), "caches", self.looked)

    def _bounds(self, cache: Any) -> Bounds:
        """No bounds where the decoder fails to show what it offers: its stored numbers have a check of their own."""
        found: list[Bounds] = []
        problem = refusal(lambda: found.append(bounds(self._checked.decoder, self._shown, cache)))
        if problem:
            self.reason = f"what the caches hold cannot be read: {problem}"
        return found[0] if found else Bounds()

    def _caches(self) -> Iterator[tuple[str, Any]]:
        """A cache of one event, and one of four rows of several events in each state that matters."""
        checked, rows = self._checked, self._rows.rows(4, 8, "bytes")
        yield "one row of one event", checked.prefill(*checked.stack([rows[0][:1]]))[1]
        first = max(1, len(rows[0]) // 2)
        _, cache = checked.prefill(*checked.stack([row[:first] for row in rows]))
        yield f"a prompt of {first} events in 4 rows", cache
        if len(rows[0]) > first:
            _, cache = checked.extend(*checked.stack([row[first:] for row in rows]), cache)
            yield f"4 rows of {len(rows[0])} events after an append", cache
        for parents in ((1, 0, 0, 3, 2, 1), (4,)):
            cache = checked.reorder(cache, parents)
            yield f"{len(parents)} rows after a reorder", cache
        events, valid = checked.stack([row[:first] for row in rows])
        valid &= torch.arange(first, device=valid.device) < torch.tensor([[1], [first]] * 2, device=valid.device)
        yield "4 rows of mixed lengths", checked.prefill(events, valid)[1]
