"""What an engine needs of an artifact: a decoder with its map and rules, how to decode, and within which bounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from auditlib.decoders.protocol import Decoder
from auditlib.decoding.policies import Setting
from auditlib.errors import ArtifactError
from auditlib.events.event_map import EventMap
from auditlib.events.order import CompiledOrder

Strategy = Literal["full prefix", "cached", "preallocated slots"]
"""How logits are computed: each row read whole at every step, with a cache, or with a cache of fixed size."""

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What an artifact accepts: events of a prefix (start token not counted), new events (end counted), and rows.

    `slots` are requests decoded at once, `queue` those that may wait beside them, `residents` the prefixes whose cache
    is kept for requests that continue them. ArtifactError for a number that makes no sense.
    """

    max_prefix_events: int
    max_new_events: int
    slots: int = 8
    queue: int = 64
    residents: int = 8

    def __post_init__(self) -> None:
        for field in fields(self):
            least, value = (0 if field.name in ("queue", "residents") else 1), getattr(self, field.name)
            if type(value) is not int or not least <= value <= 1_000_000:
                raise ArtifactError(
                    f"bound {field.name} is {value!r}; a whole number from {least} to 1,000,000 is needed"
                )

    def to_json(self) -> dict[str, Any]:
        """The bounds as they stand in an artifact."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded artifact, ready to serve. `tolerance` (logits) is the one that was studied on the device of its run.

    `digest` names the artifact ("sha256:…"); what a cache belongs to follows from decoder, map and order.
    """

    digest: str
    decoder: Decoder
    event_map: EventMap
    order: CompiledOrder
    setting: Setting
    strategy: Strategy
    bounds: Bounds
    tolerance: float
    device: str = "cpu"
