"""Continuous batching: requests join the batch at any step and leave as they end, over one generation loop.

An engine is not shared between threads; who serves many callers puts one behind a worker.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch

from auditlib.decoding.cache_guard import GuardedDecoder
from auditlib.decoding.generated import Generated
from auditlib.decoding.generation import Generation
from auditlib.decoding.paths import FullPath, LogitPath
from auditlib.errors import CacheRejectedError
from auditlib.serving.holding import Holding
from auditlib.serving.request import Encoded
from auditlib.serving.rooted_path import RootedPath, Uses
from auditlib.serving.served import Served

_RECHECK = 1.0  # seconds after which the weights are named anew


@dataclass(slots=True)
class Ticket:
    """A request in the batch. Moments are readings of the engine's clock (s), `batch` the most rows it shared it with.

    `cached` says whether every one of its events came from the cached path, `wanted` whether anybody waits for it: one
    that nobody waits for keeps its place until its rows have left.
    """

    encoded: Encoded
    joined: float
    cached: bool
    first_event: float | None = None
    batch: int = 0
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Finished:
    """An answered request: its best hypothesis, and what it took. `owner` is the number under which it joined.

    Samples have no best: `best` is then the first one drawn, whatever the others are.
    """

    owner: int
    encoded: Encoded
    best: Generated
    joined: float
    first_event: float
    ended: float
    batch: int
    cache_bytes: int
    cached: bool


class Engine:
    """Serves one artifact, row by row. After the first rejected cache it reads full prefixes, for good."""

    def __init__(
        self, served: Served, *, cached: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`cached` None: as the artifact's strategy says."""
        self.served = served
        self.rejection: CacheRejectedError | None = None
        self._clock = clock
        self._weights, self._named = "", -_RECHECK  # so long ago that the first request names them
        wants_cache = served.strategy != "full prefix" if cached is None else cached
        self._path: LogitPath = self._rooted() if wants_cache else self._full()
        self._generation = Generation(served.decoder, served.setting, served.event_map, self._path)
        self._tickets: dict[int, Ticket] = {}

    @property
    def cached(self) -> bool:
        """Whether the cached path is in use."""
        return isinstance(self._path, RootedPath)

    @property
    def free(self) -> int:
        """How many more requests may join now."""
        return self.served.bounds.slots - len(self._tickets)

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._tickets)

    @property
    def peak_bytes(self) -> int:
        """Most bytes of keys and values held at once so far, both sides of a copy included; 0 without a cache."""
        return 0 if self.holding is None else self.holding.peak.allocated

    @property
    def holding(self) -> Holding | None:
        """Bytes of keys and values, allocated and by the formula; None without a cache."""
        return self._path.holding if isinstance(self._path, RootedPath) else None

    @property
    def uses(self) -> Uses:
        """What the kept prefixes were good for."""
        return self._path.uses if isinstance(self._path, RootedPath) else Uses()

    def admit(self, requests: Sequence[Encoded]) -> range:
        """Let requests join, under numbers that no other request of this engine ever has; the caller minds `free`.

        An error leaves those that are in the batch as they are.
        """
        if not requests:
            return range(0)
        self._name_weights()
        try:
            owners = self._join(requests)
        except CacheRejectedError as rejection:
            self._fall_back(rejection)
            owners = self._join(requests)
        now = self._clock()
        for owner, encoded in zip(owners, requests, strict=True):
            self._tickets[owner] = Ticket(encoded, now, self.cached)
        return owners

    def step(self) -> list[Finished]:
        """Continue every request by one event and give back those that are done."""
        rows, coming = self._generation.rows, self._generation.coming
        try:
            done = self._generation.step()
        except CacheRejectedError as rejection:
            # The events of this step were chosen from logits of a cache that was accepted; only going on needs another.
            self._fall_back(rejection)
            done = {}
        now = self._clock()
        for owner, ticket in self._tickets.items():
            ticket.batch = max(ticket.batch, rows)
            if owner not in coming:  # those were only read in this step
                ticket.first_event = now if ticket.first_event is None else ticket.first_event
        left = {owner: self._tickets.pop(owner) for owner in done}
        return [self._finished(owner, left[owner], found, now) for owner, found in done.items() if left[owner].wanted]

    def forget(self, owners: Collection[int]) -> None:
        """Drop requests whose answer nobody waits for any more; `step` gives them back no more.

        They are named by the numbers under which they joined, not by their request ids: whoever asks again under an id
        must never get what was left of the first request. Numbers of requests that have ended are passed over.
        """
        leaving = self._tickets.keys() & set(owners)
        for owner in leaving:
            self._tickets[owner].wanted = False
        self._generation.drop(leaving)

    def _join(self, requests: Sequence[Encoded]) -> range:
        prefixes = [one.prefix for one in requests]
        if isinstance(self._path, RootedPath):
            self._path.announce([(one.prefix, one.request.session) for one in requests])
        automata = [self.served.order.automaton(one.request.attributes) for one in requests]
        return self._generation.join(prefixes, automata, [one.max_new for one in requests])

    def _fall_back(self, rejection: CacheRejectedError) -> None:
        """Read full prefixes from here on: what rejected one cache is not trusted with the next."""
        if not self.cached:
            raise rejection
        self.rejection = rejection
        self._path = self._full()
        self._generation.resume(self._path)
        for ticket in self._tickets.values():
            ticket.cached = False

    def _finished(self, owner: int, ticket: Ticket, found: Sequence[Generated], now: float) -> Finished:
        size = self._path.cache_bytes if isinstance(self._path, RootedPath) else 0
        first = now if ticket.first_event is None else ticket.first_event
        best = found[0] if found else Generated((), "no legal event", False, 0.0, False, ticket.encoded.max_new)
        return Finished(owner, ticket.encoded, best, ticket.joined, first, now, ticket.batch, size, ticket.cached)

    def _name_weights(self) -> None:
        """Name the weights anew, now and then: hashing them at every step would cost more than the step."""
        if isinstance(self._path, RootedPath) and self._clock() - self._named >= _RECHECK:
            self._weights, self._named = self._guard.name_weights(), self._clock()

    def _full(self) -> FullPath:
        return FullPath(self.served.decoder, self.served.event_map.padding, self.served.device)

    def _rooted(self) -> RootedPath:
        served, bounds = self.served, self.served.bounds
        self._guard = GuardedDecoder(
            served.decoder,
            served.event_map.digest,
            served.order.order.digest,
            dtype=getattr(served.decoder, "dtype", torch.float32),
            device=served.device,
            weights=lambda: self._weights,
        )
        fixed = served.strategy == "preallocated slots"
        rows = bounds.slots * served.setting.width + bounds.residents + 1  # the root beside them
        return RootedPath(
            self._guard,
            served.event_map.start,
            served.event_map.padding,
            served.device,
            residents=bounds.residents,
            fixed=rows if fixed else None,
            reserve=1 + bounds.max_prefix_events + bounds.max_new_events,
        )


def serve_all(served: Served, requests: Sequence[Encoded], *, cached: bool | None = None) -> dict[str, Finished]:
    """Answers of all requests by request id, decoded together as slots become free, in the order given."""
    return serve_through(Engine(served, cached=cached), requests)


def serve_through(engine: Engine, requests: Sequence[Encoded]) -> dict[str, Finished]:
    """Answers of all requests by request id, decoded by an engine that nobody else uses."""
    answers: dict[str, Finished] = {}
    waiting = list(requests)
    while waiting or engine.busy:
        joining, waiting = waiting[: engine.free], waiting[engine.free :]
        engine.admit(joining)
        answers |= {one.encoded.request.request_id: one for one in engine.step()}
    return answers
