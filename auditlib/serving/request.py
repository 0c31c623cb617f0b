"""A request as it comes in, the answer that goes out, and what is refused before any decoder sees it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from auditlib.decoding.generated import Stop
from auditlib.errors import EventMapError, RequestRefusedError
from auditlib.serving.served import Served

Path = Literal["cached", "full prefix", "fallback artifact"]
"""Which path gave an answer."""

_LONGEST_NAME = 512  # characters of a session id, event name or request id


@dataclass(frozen=True, slots=True)
class Request:
    """The events of one session so far, by name and without start token, and how many new ones are wanted at most.

    `attributes` are what conditional rules look at. `max_new` None: as many as the artifact allows.
    """

    session: str
    events: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    max_new: int | None = None
    request_id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Answer:
    """New events by name, the end not among them, and why they stop there.

    `forced`: the end was the only event left because the budget ran out. `score` sums log-probabilities (nats).
    `fallback` says why another path than the artifact's own answered, None where its own did.
    """

    request_id: str
    events: tuple[str, ...]
    stop: Stop
    forced: bool
    score: float
    path: Path
    artifact: str
    fallback: str | None = None


@dataclass(frozen=True, slots=True)
class Encoded:
    """A request in ids, start token included, with the most new events it may get."""

    request: Request
    prefix: tuple[int, ...]
    max_new: int


def encode(request: Request, served: Served) -> Encoded:
    """The request in ids. RequestRefusedError, with its code, for what the artifact's bounds or map do not hold."""
    bounds = served.bounds
    if any(not text or len(text) > _LONGEST_NAME for text in (request.session, request.request_id, *request.events)):
        raise RequestRefusedError(
            "malformed", f"session, request id and event names need 1 to {_LONGEST_NAME} characters"
        )
    if len(request.events) > bounds.max_prefix_events:
        raise RequestRefusedError(
            "prefix too long",
            f"{len(request.events)} events came, this artifact takes {bounds.max_prefix_events}; send fewer",
        )
    wanted = bounds.max_new_events if request.max_new is None else request.max_new
    if type(wanted) is not int or not 1 <= wanted <= bounds.max_new_events:
        raise RequestRefusedError(
            "output out of bounds", f"max_new is {wanted!r}; this artifact gives 1 to {bounds.max_new_events} events"
        )
    try:
        ids = served.event_map.encode(request.events)
    except EventMapError as error:
        raise RequestRefusedError("unknown event", str(error)) from error
    if served.order.automaton(request.attributes).state_after(ids) < 0:
        raise RequestRefusedError(
            "illegal prefix", "the events sent break the order rules already; correct the session's history"
        )
    return Encoded(request, (served.event_map.start, *ids), wanted)
