"""Decoders that say of their caches what cannot be true: fewer bytes than the events take, or more than are there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from auditlib.audits.cache_bytes import PROBE, BytesProbe, bounds
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.faults.planting import Fault, World
from auditlib.audits.faults.wrapping import Planted, wrapped
from auditlib.audits.offers import inspectable
from auditlib.decoders.capabilities import Inspectable

_OFFERS = ("stored", "cache_shape")


def shows_its_memory(world: World) -> str | None:
    """What the decoder says of a cache can be compared with what the cache holds."""
    probe = bytes_probe(world)
    probe.run()
    return None if probe.looked else probe.reason


def bytes_probe(world: World) -> BytesProbe:
    """The probe over a small world's decoder."""
    checked = CheckedDecoder(world.subject.decoder, world.subject.device, lambda: None)
    shown, _ = inspectable(checked, world.rows.rows(1, 4, "trial")[0])
    return BytesProbe(checked, world.rows, shown)


class _Says(Planted):
    """Says of a cache what `lie` makes of the fewest and the most bytes that it can take."""

    def __init__(self, inner: Any, lie: Callable[[int, float], int]) -> None:
        super().__init__(inner)
        self._lie = lie
        for name in _OFFERS:  # shown where the decoder shows it: the lie is about the number alone
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))

    def cache_bytes(self, cache: Any) -> int:
        """The lie about the bounds that the audit itself would set; the true number where it can set none."""
        found = bounds(self, self if isinstance(self, Inspectable) else None, cache)
        return self._lie(found.least, found.most) if found.why else super().cache_bytes(cache)


def _keys_alone(least: int, _: float) -> int:
    return least // 2


def _nothing(_least: int, _most: float) -> int:
    return 0


def _bits(least: int, most: float) -> int:
    return 8 * (least if math.isinf(most) else int(most))


def _one_too_many(least: int, most: float) -> int:
    return 1 + (least if math.isinf(most) else int(most))


def _says(name: str, lie: Callable[[int, float], int]) -> Fault:
    return Fault(name, "memory", "cache parity", (PROBE,), wrapped(_Says, lie=lie), needs=(shows_its_memory,))


MEMORY: tuple[Fault, ...] = (
    _says("cache bytes count keys alone", _keys_alone),
    _says("cache bytes are never counted", _nothing),
    _says("cache bytes are bits", _bits),
    _says("cache bytes count one byte too many", _one_too_many),
)
