"""Loads an artifact as its callers would, by its own path and by full prefixes, in turns within one run.

Each load is sent in rounds, and within a round every path gets the same requests one after the other, so that whatever
else the machine does falls on both.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from statistics import median

from auditlib.errors import InputError
from auditlib.progress import Progress, silent
from auditlib.serving.clients import Clients, Sent, Took
from auditlib.serving.fixed_batch import FixedBatch
from auditlib.serving.holding import Held
from auditlib.serving.load import Load, draw_requests, one_of_each_length, split_evenly
from auditlib.serving.log_row import LogRow
from auditlib.serving.moments import Clock
from auditlib.serving.request import Request
from auditlib.serving.rooted_path import Uses
from auditlib.serving.served import Served, Strategy
from auditlib.serving.service import Service

FULL: Strategy = "full prefix"
_OPEN_SHARES = (0.5, 0.8)


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """How much is asked. `intended` clients at once is what limits are held against, with `requests` requests.

    `others` requests go to every other load, and `compared` to the comparison with full prefixes, which is not timed.
    `levels` are numbers of clients; empty: 1, half of those intended, the intended ones and twice as many.
    """

    intended: int
    requests: int = 3_000
    others: int = 600
    compared: int = 300
    rounds: int = 5
    levels: tuple[int, ...] = ()
    open_loop: bool = True
    timeout: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = (self.intended, self.requests, self.others, self.compared, self.rounds, *self.levels)
        if min(numbers) < 1 or not self.timeout > 0:
            raise InputError(f"a bench needs numbers from 1, got {self}")

    @property
    def closed(self) -> tuple[Load, ...]:
        """Closed loops, the intended one among them."""
        levels = self.levels or (1, max(1, self.intended // 2), self.intended, 2 * self.intended)
        return tuple(
            Load(f"{clients} at once", clients=clients, overload=clients > self.intended)
            for clients in sorted({*levels, self.intended})
        )


@dataclass(slots=True)
class Part:
    """What one path did in one round of one load."""

    arm: Strategy
    load: Load
    round: int
    seconds: float
    events: int
    sent: list[Sent]
    took: list[Took]
    rows: list[LogRow]


@dataclass(slots=True)
class BenchRun:
    """Everything that a bench saw. `capacity`: answers a second of each path, by its best closed loop."""

    plan: BenchPlan
    parts: list[Part] = field(default_factory=list)
    compared: list[LogRow] = field(default_factory=list)
    comparisons: int = 0
    capacity: dict[Strategy, float] = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    apart: int | None = None
    uses: Uses = field(default_factory=Uses)
    process_before: int = 0
    process_peak: int = 0

    def of(self, arm: Strategy, load: str | None = None) -> list[Part]:
        """The rounds of one path, of one load or all."""
        return [part for part in self.parts if part.arm == arm and load in (None, part.load.name)]


def run_bench(
    served: Served, batch: FixedBatch, plan: BenchPlan, progress: Progress = silent, clock: Clock | None = None
) -> BenchRun:
    """Load `served` with requests drawn from `batch`; takes as long as the requests do, some minutes by default."""
    return asyncio.run(_Bench(served, batch, plan, progress, clock or Clock()).run())


def arms_of(served: Served) -> tuple[Strategy, ...]:
    """The artifact's own path first, then full prefixes where they are another one."""
    return tuple(dict.fromkeys((served.strategy, FULL)))


class _Bench:
    """One bench under way."""

    def __init__(self, served: Served, batch: FixedBatch, plan: BenchPlan, progress: Progress, clock: Clock) -> None:
        self._served, self._batch, self._plan = served, batch, plan
        self._progress, self._clock = progress, clock
        self._clients: dict[Strategy, Clients] = {}
        self._done, self._total = 0, 1
        self._run = BenchRun(plan)

    async def run(self) -> BenchRun:
        """All loads, the comparison, and the bytes."""
        run, plan = self._run, self._plan
        run.process_before = _process_peak()
        shares = _OPEN_SHARES if plan.open_loop else ()
        self._total = plan.rounds * (len(plan.closed) + len(shares)) + 2
        async with AsyncExitStack() as stack:
            for arm in arms_of(self._served):
                self._clients[arm] = await stack.enter_async_context(_Opened(self._served, arm, plan, self._clock))
            await self._warm_up()
            for load in plan.closed:
                await self._in_turns(dict.fromkeys(self._clients, load))
            run.capacity = {arm: self._capacity(arm) for arm in self._clients}
            # Of a path that answers nothing no share can be asked for; the closed loops have failed by then.
            for share in shares if min(run.capacity.values()) > 0 else ():
                # Each path is loaded by what it can do itself: the slower one would only drown in the other's load.
                name = f"{100 * share:.0f} % of capacity"
                await self._in_turns({arm: Load(name, rate=share * run.capacity[arm]) for arm in self._clients})
            self._note_bytes()
        await self._compare()
        run.process_peak = _process_peak()
        return run

    async def _warm_up(self) -> None:
        """Every length once, alone and together, so that no first time is measured."""
        for arm, clients in self._clients.items():
            self._tell(f"warm-up, {arm}")
            for count in (1, self._plan.intended):
                grid = one_of_each_length(self._served, self._batch, f"warm-up {arm} {count}")
                await clients.send(grid, Load("warm-up", clients=count))
                clients.rows.clear()

    async def _in_turns(self, loads: dict[Strategy, Load]) -> None:
        """One load in rounds; who goes first changes with every round."""
        plan = self._plan
        own = next(iter(loads.values()))
        intended = own.clients == plan.intended
        rounds = {arm: self._rounds(arm, load, intended=intended) for arm, load in loads.items()}
        for number in range(plan.rounds):
            self._tell(own.name)
            self._done += 1
            for arm in list(loads) if number % 2 == 0 else list(reversed(loads)):
                await self._round(arm, loads[arm], number, rounds[arm][number])

    def _rounds(self, arm: Strategy, load: Load, *, intended: bool) -> list[tuple[Request, ...]]:
        """The requests of each round: the same for every path, and more of them where limits are held against them."""
        plan = self._plan
        more = intended and arm == self._served.strategy
        count = max(plan.requests, plan.others) if more else min(plan.others, plan.requests)
        drawn = draw_requests(self._served, self._batch, count, plan.seed, f"{load.name}, {arm}")
        return split_evenly(drawn, plan.rounds)

    async def _round(self, arm: Strategy, load: Load, number: int, requests: Sequence[Request]) -> None:
        clients = self._clients[arm]
        begun = self._clock.now()
        sent = await clients.send(requests, load, self._plan.seed + number)
        seconds = (self._clock.now() - begun) / 1e6
        # The end is not among the names of an answer, and was chosen by a step like every other event.
        events = sum(len(one.answer.events) + (one.answer.stop == "end") for one in sent if one.answer is not None)
        took = [clients.took(one) for one in sent]
        rows = [clients.rows[one.request.request_id] for one in sent if one.request.request_id in clients.rows]
        clients.rows.clear()
        self._run.parts.append(Part(arm, load, number, seconds, events, sent, took, rows))

    def _capacity(self, arm: Strategy) -> float:
        """Answers a second of the best closed loop, by the median round; to turn requests away takes no capacity."""
        rates: dict[str, list[float]] = {}
        for part in self._run.of(arm):
            answered = sum(one.answer is not None for one in part.sent)
            rates.setdefault(part.load.name, []).append(answered / max(part.seconds, 1e-6))
        return max(median(found) for found in rates.values())

    def _note_bytes(self) -> None:
        engines = self._clients[self._served.strategy].service.engines
        if engines and engines[0].holding is not None:
            self._run.held, self._run.apart = engines[0].holding.peak, engines[0].holding.apart
            self._run.uses = engines[0].uses

    async def _compare(self) -> None:
        """Some requests once more, each answer beside the full path's; not timed, as both paths share the machine."""
        self._tell("comparison with full prefixes")
        plan, rows = self._plan, self._run.compared
        drawn = draw_requests(self._served, self._batch, plan.compared, plan.seed + 1, "compared")
        # As many as may wait are sent at once: a comparison that finds no room is left out.
        async with Service(self._served, keep=rows.append, compare=1.0, timeout=plan.timeout) as service:
            clients = Clients(service, self._clock, {}, plan.timeout)
            await clients.send(drawn, Load("compared", clients=min(plan.intended, self._served.bounds.queue + 1)))
            await service.settle()
            self._run.comparisons = service.counts.compared

    def _tell(self, what: str) -> None:
        self._progress(self._done, self._total, what)


class _Opened:
    """A service by one path, with its clients, for as long as the context lasts."""

    def __init__(self, served: Served, arm: Strategy, plan: BenchPlan, clock: Clock) -> None:
        rows: dict[str, LogRow] = {}
        self._service = Service(
            replace(served, strategy=arm),
            keep=lambda row: rows.__setitem__(row.request_id, row),
            timeout=plan.timeout,
            clock=clock,
        )
        self._clients = Clients(self._service, clock, rows, plan.timeout)

    async def __aenter__(self) -> Clients:
        await self._service.__aenter__()
        return self._clients

    async def __aexit__(self, *problem: object) -> None:
        await self._service.__aexit__(*problem)


def _process_peak() -> int:
    """Most bytes of memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in kibibytes
