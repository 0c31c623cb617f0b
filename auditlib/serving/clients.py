"""Clients of a service, for a bench: each request with the moment at which it was meant to arrive, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditlib.errors import RequestFailedError, RequestRefusedError
from auditlib.serving.load import Load, poisson_arrivals
from auditlib.serving.log_row import LogRow
from auditlib.serving.moments import Clock
from auditlib.serving.request import Answer, Request
from auditlib.serving.service import Service

TIMED_OUT = "timed out"


@dataclass(frozen=True, slots=True)
class Sent:
    """One request: when it was meant to arrive (µs), when its answer was in hand, or the code of why there is none."""

    request: Request
    intended: int
    done: int
    answer: Answer | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds from the intended arrival to the first event and to the whole answer; infinite without an answer."""

    first: float
    whole: float


class Clients:
    """Sends requests to one service, whose clock is `clock` and whose log rows are put into `rows`."""

    def __init__(self, service: Service, clock: Clock, rows: dict[str, LogRow], timeout: float) -> None:
        """`timeout`: seconds after which a caller gives up."""
        self.service = service
        self.rows = rows
        self._clock, self._timeout = clock, timeout

    async def send(self, requests: Sequence[Request], load: Load, seed: int = 0) -> list[Sent]:
        """All requests under a load, in the order in which their answers came."""
        if load.rate is not None:
            return await self._open(requests, poisson_arrivals(load.rate, len(requests), seed))
        return await self._closed(requests, load.clients or 1)

    def took(self, sent: Sent) -> Took:
        """How long one request took, by the clock of its service."""
        row = self.rows.get(sent.request.request_id)
        if sent.answer is None or row is None or row.first_event is None:
            return Took(float("inf"), float("inf"))
        return Took((row.first_event - sent.intended) / 1000, (sent.done - sent.intended) / 1000)

    async def _closed(self, requests: Sequence[Request], clients: int) -> list[Sent]:
        waiting = iter(requests)
        done: list[Sent] = []
        await asyncio.gather(*(self._client(waiting, done) for _ in range(clients)))
        return done

    async def _client(self, waiting: Iterator[Request], done: list[Sent]) -> None:
        # One iterator for all clients: whoever is free takes the next request.
        for request in waiting:
            done.append(await self._one(request, self._clock.now()))  # noqa: PERF401 - others append in between

    async def _open(self, requests: Sequence[Request], arrivals: Sequence[float]) -> list[Sent]:
        start = self._clock.now()
        tasks = []
        for request, arrival in zip(requests, arrivals, strict=True):
            intended = start + round(arrival * 1e6)
            # A late start counts against the service: who waits for a busy server has waited all the same.
            await asyncio.sleep(max(0.0, (intended - self._clock.now()) / 1e6))
            tasks.append(asyncio.create_task(self._one(request, intended)))
        return list(await asyncio.gather(*tasks))

    async def _one(self, request: Request, intended: int) -> Sent:
        answer, error = None, None
        try:
            answer = await asyncio.wait_for(self.service.answer(request), self._timeout)
        except TimeoutError:
            error = TIMED_OUT
        except (RequestRefusedError, RequestFailedError) as problem:
            error = problem.code
        return Sent(request, intended, self._clock.now(), answer, error)
