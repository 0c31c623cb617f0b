"""Who is decoded together with whom when a fixed batch is replayed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from auditlib.serving.fixed_batch import FixedBatch
from auditlib.serving.request import Encoded, Request
from auditlib.serving.served import Served

_EIGHT = 8
_SEED = 2026


@dataclass(frozen=True, slots=True)
class Composition:
    """Requests in the order in which they join, at most `slots` at once; `rows` maps request ids to saved rows.

    A request without a row is company only: its answer is checked, and compared with nothing.
    """

    name: str
    slots: int
    requests: tuple[Encoded, ...]
    rows: Mapping[str, int]
    residents: int

    def served(self, served: Served) -> Served:
        """The same artifact with this composition's number of rows."""
        return replace(served, bounds=replace(served.bounds, slots=self.slots, residents=self.residents))


def compositions(served: Served, batch: FixedBatch) -> Iterator[Composition]:
    """Every prefix of the batch: alone, by eight, by as many as there are slots, shuffled, with lengths mixed, with
    company that leaves after one event, and as sessions that come again.
    """  # noqa: D205 - one sentence
    places = list(range(len(batch.prefixes)))
    slots = max(2, served.bounds.slots)  # one slot would be "alone" once more
    most = served.bounds.residents
    yield _composed("alone", 1, served, batch, places, residents=0)
    yield _composed("by eight", _EIGHT, served, batch, places, residents=most)
    yield _composed("by slots", slots, served, batch, places, residents=most)
    shuffled = random.Random(_SEED).sample(places, len(places))  # noqa: S311 - an order, not a secret
    yield _composed("permuted", slots, served, batch, shuffled, residents=most)
    yield _composed("mixed lengths", slots, served, batch, _short_and_long(batch), residents=most)
    yield _early_finishers(served, batch, slots)
    yield _continued(served, batch)


def _composed(
    name: str,
    slots: int,
    served: Served,
    batch: FixedBatch,
    places: Sequence[int],
    *,
    residents: int,
    sessions: Sequence[str] | None = None,
) -> Composition:
    own = [f"{name} {place}" for place in places] if sessions is None else sessions
    requests = [_encoded(served, batch, place, f"{name} {place}", one) for place, one in zip(places, own, strict=True)]
    rows = {f"{name} {place}": place for place in places}
    return Composition(name, slots, tuple(requests), rows, residents)


def _encoded(
    served: Served, batch: FixedBatch, place: int, request_id: str, session: str, max_new: int | None = None
) -> Encoded:
    prefix = batch.prefixes[place]
    names = tuple(served.event_map.name(event) for event in prefix[1:])
    request = Request(session, names, batch.attributes[place], max_new, request_id)
    return Encoded(request, prefix, served.bounds.max_new_events if max_new is None else max_new)


def _short_and_long(batch: FixedBatch) -> list[int]:
    """Places in turns from both ends of the lengths."""
    ranked = sorted(range(len(batch.prefixes)), key=lambda place: len(batch.prefixes[place]))
    turned = [place for pair in zip(ranked, reversed(ranked), strict=True) for place in pair]
    # Coming from both ends each place stands there twice, once in either half.
    return turned[: len(ranked)]


def _early_finishers(served: Served, batch: FixedBatch, slots: int) -> Composition:
    """Beside each request one that gets a single event, so that a neighbour leaves at almost every step."""
    name = "early finishers"
    own = _composed(name, slots, served, batch, range(len(batch.prefixes)), residents=served.bounds.residents)
    company = [
        _encoded(served, batch, place, f"company {place}", f"company {place}", 1)
        for place in reversed(range(len(batch.prefixes)))
    ]
    together = [one for pair in zip(own.requests, company, strict=True) for one in pair]
    return replace(own, requests=tuple(together))


def _continued(served: Served, batch: FixedBatch) -> Composition:
    """Prefixes that continue one another as one session each, which starts from what was kept of it."""
    keyed = [
        (sorted(attributes.items()), row) for attributes, row in zip(batch.attributes, batch.prefixes, strict=True)
    ]
    places = sorted(range(len(keyed)), key=lambda place: keyed[place])
    sessions: list[str] = []
    for number, place in enumerate(places):
        attributes, row = keyed[place]
        earlier = keyed[places[number - 1]] if number else None
        again = earlier is not None and earlier[0] == attributes and row[: len(earlier[1])] == earlier[1]
        sessions.append(sessions[-1] if again else f"continued {place}")
    most = max(1, served.bounds.residents)
    return _composed("continued sessions", 2, served, batch, places, residents=most, sessions=sessions)
