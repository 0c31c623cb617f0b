"""Answers requests from an artifact and, where it cannot, from its fallback; one log row for every request.

The order in which paths are asked: the artifact as it is packaged, the artifact by full prefixes, the fallback
artifact. Whatever fails on the way, a request gets an answer that was checked, or an error; never part of one.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from auditlib.errors import EngineFailedError, RequestFailedError, RequestRefusedError
from auditlib.serving.comparing import apart, compared, is_compared
from auditlib.serving.engine import Engine, Finished
from auditlib.serving.log_row import LogRow
from auditlib.serving.moments import Clock
from auditlib.serving.request import Answer, Encoded, Request, encode
from auditlib.serving.routes import BROKEN, Given, Label, Route, RowMaker, wrong_event
from auditlib.serving.served import Served
from auditlib.serving.worker import Worker

KeepRow = Callable[[LogRow], None]
_TIMED_OUT = re.compile(r"no answer within|a step took longer")


@dataclass(slots=True)
class Counts:
    """What has happened so far, for the metrics."""

    answered: Counter[str] = field(default_factory=Counter)  # by path
    refused: Counter[str] = field(default_factory=Counter)  # by code
    failed: Counter[str] = field(default_factory=Counter)  # by code
    fallbacks: Counter[str] = field(default_factory=Counter)  # by reason
    stops: Counter[str] = field(default_factory=Counter)
    events: int = 0
    compared: int = 0
    mismatches: int = 0


class Service:
    """One artifact, served. Use as `async with Service(served) as service: answer = await service.answer(request)`.

    `fallback` is the earlier artifact that answers where this one fails. `keep` takes the log row of every request but
    one: who is refused because the same id is under way has none, for its row would speak of the other request.
    `compare` is the share of requests, chosen by request id, whose answer is compared with the full prefix path.
    """

    def __init__(
        self,
        served: Served,
        *,
        fallback: Served | None = None,
        keep: KeepRow | None = None,
        label: Label | None = None,
        compare: float = 0.0,
        timeout: float = 30.0,
        clock: Clock | None = None,
        make_engine: Callable[..., Engine] = Engine,
    ) -> None:
        """`timeout`: seconds that one path may take for one request, and one step for all.

        `make_engine(served, cached=…)` makes each route's engine; a rehearsal gives one that fails.
        """
        self.served, self.fallback = served, fallback
        self.counts = Counts()
        self._keep, self._compare, self._timeout = keep, compare, timeout
        self._clock, self._make_engine = clock or Clock(), make_engine
        self._rows = RowMaker(served, label or Label(), self._clock)
        self._routes = list(self._make_routes())
        self._exact = Worker(partial(Engine, served, cached=False), step_timeout=timeout)
        self._comparing: set[asyncio.Task[None]] = set()
        self._under_way: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.settle()
        for worker in (*(route.worker for route in self._routes), self._exact):
            await worker.stop()

    @property
    def waiting(self) -> int:
        """Requests in the queue, and not yet in a batch."""
        return sum(route.worker.waiting for route in self._routes)

    @property
    def calls(self) -> int:
        """Requests that wait for their answer."""
        return len(self._under_way)

    def is_under_way(self, request_id: str) -> bool:
        """Whether a request of this id waits for its answer."""
        return request_id in self._under_way

    @property
    def engines(self) -> list[Engine]:
        """Engines that have started, the artifact's own first."""
        return [route.worker.engine for route in self._routes if route.worker.engine is not None]

    def move_to(self, stage: str) -> None:
        """Write the rows of requests that arrive from now on under another stage of the rollout."""
        self._rows = self._rows.in_stage(stage)

    def health(self) -> dict[str, Any]:
        """What serves now: "ok" as packaged, "degraded" by a fallback, "failed" when nothing answers any more."""
        failures = {route.path: route.worker.failure for route in self._routes if route.worker.failure}
        rejected = [str(engine.rejection) for engine in self.engines if engine.rejection is not None]
        status = "failed" if len(failures) == len(self._routes) else "degraded" if failures or rejected else "ok"
        return {
            "status": status,
            "artifact": self.served.digest,
            "strategy": self.served.strategy,
            "decoding": self.served.setting.name,
            "fallback": None if self.fallback is None else self.fallback.digest,
            "failures": failures,
            "rejected_caches": rejected,
            "waiting": self.waiting,
            "in_flight": self.calls,
        }

    async def answer(self, request: Request) -> Answer:
        """The answer to one request.

        RequestRefusedError, with code "busy" when the queue is full, for what the bounds do not hold.
        RequestFailedError when no path gave an answer that holds.
        """
        arrival, rows = self._clock.now(), self._rows  # of the stage in which it arrives, however long it takes
        try:
            with self._admitted(request) as encoded:
                given = await self._first_that_holds(encoded)
        except (RequestRefusedError, RequestFailedError) as problem:
            counted = self.counts.refused if isinstance(problem, RequestRefusedError) else self.counts.failed
            counted[problem.code] += 1
            if problem.code != "duplicate":
                self._log(rows.unanswered(request, arrival, problem.code))
            raise
        except asyncio.CancelledError:
            self._log(rows.unanswered(request, arrival, "caller left"))
            raise
        self._count(given)
        if is_compared(request.request_id, self._compare) and self._exact.calls <= self.served.bounds.queue:
            task = asyncio.create_task(self._log_compared(encoded, given, arrival, rows))
            self._comparing.add(task)
            task.add_done_callback(self._comparing.discard)
        else:
            self._log(rows.answered(given, arrival))
        return self._answer(given)

    async def settle(self) -> None:
        """Wait until every comparison has its row in the log."""
        await asyncio.gather(*self._comparing, return_exceptions=True)

    # -- paths -------------------------------------------------------------------------------------------------------

    def _make_routes(self) -> Iterator[Route]:
        """Ways to answer, in the order in which they are asked."""
        if self.served.strategy != "full prefix":
            yield Route(self._worker(self.served, cached=True), self.served, "cached")
        yield Route(self._worker(self.served, cached=False), self.served, "full prefix")
        if self.fallback is not None:
            yield Route(self._worker(self.fallback, cached=None), self.fallback, "fallback artifact")

    def _worker(self, served: Served, *, cached: bool | None) -> Worker:
        return Worker(partial(self._make_engine, served, cached=cached), step_timeout=self._timeout)

    @contextmanager
    def _admitted(self, request: Request) -> Iterator[Encoded]:
        """The request in ids, counted as under way meanwhile; RequestRefusedError when it cannot be."""
        encoded = encode(request, self.served)
        if self.is_under_way(request.request_id):
            raise RequestRefusedError("duplicate", "a request of this id is under way; ask under an id of its own")
        if self.calls >= self.served.bounds.slots + self.served.bounds.queue:
            raise RequestRefusedError("busy", f"{self.calls} requests are under way already; try again in a moment")
        self._under_way.add(request.request_id)
        try:
            yield encoded
        finally:
            self._under_way.remove(request.request_id)

    async def _first_that_holds(self, encoded: Encoded) -> Given:
        reasons: list[str] = []
        for route in self._routes:
            finished = await self._by(route, encoded, reasons)
            if finished is not None:
                if route.path == "cached" and not finished.cached:
                    reasons.append("rejected cache")
                    self.counts.fallbacks["cached: rejected cache"] += 1
                broken = next((one.removeprefix(BROKEN) for one in reasons if one.startswith(BROKEN)), None)
                return Given(finished, route, reasons[0] if reasons else None, broken)
        raise RequestFailedError(
            "time-out" if all(map(_TIMED_OUT.match, reasons)) else "no answer",
            f"{'; '.join(reasons)}; nothing was served for request {encoded.request.request_id[:80]!r}",
        )

    async def _by(self, route: Route, encoded: Encoded, reasons: list[str]) -> Finished | None:
        """The answer by one route; None, with the reason noted, when it gives none that holds."""
        try:
            if route.served is not self.served:
                most = min(encoded.max_new, route.served.bounds.max_new_events)
                encoded = encode(replace(encoded.request, max_new=most), route.served)
            finished = await asyncio.wait_for(route.worker.answer(encoded), self._timeout)
        except (EngineFailedError, RequestRefusedError, TimeoutError) as problem:
            # The queue may hold many more, so a path that has failed is asked only as long as it says so itself.
            reason = str(problem) or f"no answer within {self._timeout:g} s"
        else:
            wrong = wrong_event(route.served, finished)
            if wrong is None:
                return finished
            reason = f"{BROKEN}{', '.join(wrong.rules) or wrong.kind}"
        reasons.append(reason)
        self.counts.fallbacks[f"{route.path}: {reason.partition(':')[0]}"] += 1
        return None

    # -- the full prefix path beside it --------------------------------------------------------------------------------

    async def _log_compared(self, encoded: Encoded, given: Given, arrival: int, rows: RowMaker) -> None:
        """Answer once more by the full prefix path, and log both. The row is written whatever fails meanwhile.

        A comparison that gave no second answer is logged as missing, one that could not be measured as a mismatch.
        """
        try:
            if given.route.served is self.served:
                exact = await asyncio.wait_for(self._exact.answer(encoded), self._timeout)
                given = replace(given, difference=apart(given.finished, exact))
                measured = await asyncio.to_thread(compared, self.served, given.finished, exact)
                given = replace(given, difference=measured)
        except BaseException:  # noqa: BLE001 - a task's error is seen by nobody, and the row would be gone with it
            self.counts.failed["comparison"] += 1
        if given.difference is not None:
            self.counts.compared += 1
            self.counts.mismatches += given.difference.differs
        self._log(rows.answered(given, arrival))

    # -- what goes out and what is kept ------------------------------------------------------------------------------

    def _answer(self, given: Given) -> Answer:
        served, best = given.route.served, given.finished.best
        # The path that gave the answer: a cached route whose cache was rejected has read full prefixes.
        path = "full prefix" if given.route.path == "cached" and not given.finished.cached else given.route.path
        names = tuple(served.event_map.name(event) for event in best.events if event != served.event_map.end)
        request = given.finished.encoded.request
        terms = best.stop, best.forced, best.score, path, served.digest, given.fallback
        return Answer(request.request_id, names, *terms)

    def _count(self, given: Given) -> None:
        self.counts.answered[self._answer(given).path] += 1
        self.counts.stops[given.finished.best.stop] += 1
        self.counts.events += len(given.finished.best.events)

    def _log(self, row: LogRow) -> None:
        if self._keep is not None:
            self._keep(row)
