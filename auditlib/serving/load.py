"""What a bench asks for and when: requests drawn from a fixed batch, and moments at which they are meant to arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from auditlib.errors import InputError
from auditlib.serving.fixed_batch import FixedBatch
from auditlib.serving.request import Request
from auditlib.serving.served import Served

_AT_ONCE = 16  # sessions that are under way side by side
_VISITS = 3  # requests that one session sends at most


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come: `clients` that each wait for an answer before they ask again, or `rate` (1/s) by chance.

    `overload`: more than the artifact is meant for; who is turned away then is counted and shown, and held against
    nothing.
    """

    name: str
    clients: int | None = None
    rate: float | None = None
    overload: bool = False

    def __post_init__(self) -> None:
        given = [one for one in (self.clients, self.rate) if one is not None]
        if len(given) != 1 or not given[0] > 0:
            raise InputError(f"load {self.name!r}: {self.clients} clients and a rate of {self.rate} make no sense")


def poisson_arrivals(rate: float, count: int, seed: int) -> tuple[float, ...]:
    """`count` moments (s from the start) of a Poisson process of `rate` a second; the same for the same seed."""
    return tuple(np.random.default_rng([seed, count]).exponential(1 / rate, count).cumsum().tolist())


def draw_requests(served: Served, batch: FixedBatch, count: int, seed: int, name: str) -> tuple[Request, ...]:
    """`count` requests with ids under `name`: prefixes as often as sessions begin so, and sessions that come again.

    A session's later requests continue its earlier ones, with those of other sessions in between. Made-up prefixes,
    among them the longest possible ones, come as often as the rarest seen ones.
    """
    chance = np.random.default_rng([seed, count])
    weights = np.array([max(1, stratum.seen) for stratum in batch.strata], dtype=float)
    chosen = iter(chance.choice(len(weights), size=count + _AT_ONCE, p=weights / weights.sum()).tolist())
    visits = _Visits(batch)
    under_way: list[tuple[str, list[int]]] = []
    found: list[Request] = []
    while len(found) < count:
        while len(under_way) < _AT_ONCE:
            place = next(chosen, 0)
            under_way.append((f"{name} session {len(found)} {len(under_way)}", visits.of(place, chance)))
        turn = int(chance.integers(len(under_way)))
        session, places = under_way[turn]
        found.append(_request(served, batch, places.pop(0), session, f"{name} {len(found)}"))
        if not places:
            under_way.pop(turn)
    return tuple(found)


class _Visits:
    """Which prefixes of the batch a session passes on its way."""

    def __init__(self, batch: FixedBatch) -> None:
        self._batch = batch
        keys = zip(batch.attributes, batch.prefixes, strict=True)
        self._places = {(tuple(sorted(a.items())), row): place for place, (a, row) in enumerate(keys)}

    def of(self, place: int, chance: np.random.Generator) -> list[int]:
        """Up to three prefixes of the batch that lead to one of them, which comes last."""
        row, attributes = self._batch.prefixes[place], tuple(sorted(self._batch.attributes[place].items()))
        known = [self._places.get((attributes, row[:length])) for length in range(1, len(row))]
        earlier = [one for one in known if one is not None]
        times = int(chance.integers(_VISITS))
        return [*earlier[len(earlier) - min(times, len(earlier)) :], place]


def _request(served: Served, batch: FixedBatch, place: int, session: str, request_id: str) -> Request:
    names = tuple(served.event_map.name(event) for event in batch.prefixes[place][1:])
    return Request(session, names, batch.attributes[place], None, request_id)


def one_of_each_length(served: Served, batch: FixedBatch, name: str) -> tuple[Request, ...]:
    """A request for every length that the batch has, shortest first: what a warm-up asks for."""
    places = {len(row): place for place, row in enumerate(batch.prefixes)}
    return tuple(
        _request(served, batch, places[length], f"{name} {length}", f"{name} {length}") for length in sorted(places)
    )


def split_evenly(requests: Sequence[Request], rounds: int) -> list[tuple[Request, ...]]:
    """The requests in `rounds` parts of nearly the same size, in their order."""
    edges = [round(number * len(requests) / rounds) for number in range(rounds + 1)]
    return [tuple(requests[first:last]) for first, last in pairwise(edges)]
