"""What a bench sends, and that its clock starts when a request was meant to arrive. Time here is made up."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

import pytest

from auditlib.errors import InputError, RequestFailedError, RequestRefusedError
from auditlib.serving.clients import TIMED_OUT, Clients
from auditlib.serving.fixed_batch import read_fixed_batch
from auditlib.serving.load import Load, draw_requests, one_of_each_length, poisson_arrivals, split_evenly
from auditlib.serving.moments import Clock
from auditlib.serving.request import Answer, Request, encode
from tests.packed import small_artifact


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("load"))


@pytest.fixture(scope="module")
def drawn_from(artifact):
    return artifact.load(), read_fixed_batch(artifact)


def test_arrivals_are_seeded_and_come_at_the_rate_that_was_asked_for():
    times = poisson_arrivals(50.0, 4000, seed=1)
    assert times == poisson_arrivals(50.0, 4000, seed=1) != poisson_arrivals(50.0, 4000, seed=2)
    assert list(times) == sorted(times)
    assert times[-1] == pytest.approx(80.0, rel=0.06)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert sum(gap > 0.02 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)


def test_requests_are_drawn_as_often_as_sessions_begin_so_and_sessions_come_again(drawn_from):
    served, batch = drawn_from
    requests = draw_requests(served, batch, 3000, 5, "x")
    assert requests == draw_requests(served, batch, 3000, 5, "x")
    assert requests != draw_requests(served, batch, 3000, 6, "x")
    assert len({one.request_id for one in requests}) == 3000
    for one in requests:
        encode(one, served)  # none of them is refused
    counts = Counter(one.events for one in requests)
    rows = {
        tuple(served.event_map.name(event) for event in row[1:]): stratum.seen
        for row, stratum in zip(batch.prefixes, batch.strata, strict=True)
    }
    assert set(counts) <= set(rows)
    often, seldom = max(rows, key=rows.__getitem__), min(rows, key=rows.__getitem__)
    assert counts[often] > counts.get(seldom, 0)
    sessions = defaultdict(list)
    for one in requests:
        sessions[one.session].append(one.events)
    again = [events for events in sessions.values() if len(events) > 1]
    assert again
    for events in again:
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(events))


def test_the_warm_up_asks_for_every_length_once(drawn_from):
    served, batch = drawn_from
    lengths = [len(one.events) for one in one_of_each_length(served, batch, "w")]
    assert lengths == sorted({len(row) - 1 for row in batch.prefixes})


def test_rounds_share_the_requests_out():
    requests = [Request(str(number), ()) for number in range(11)]
    parts = split_evenly(requests, 3)
    assert [one for part in parts for one in part] == requests
    assert {len(part) for part in parts} <= {3, 4}


@pytest.mark.parametrize(("clients", "rate"), [(None, None), (1, 1.0), (0, None), (None, 0.0), (None, -1.0)])
def test_a_load_is_either_clients_or_a_rate(clients, rate):
    with pytest.raises(InputError):
        Load("x", clients, rate)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next moment at which anything is to happen."""

    def __init__(self):
        self.moment = 0.0
        super().__init__(Jumping(self))

    def time(self):
        return self.moment


class Jumping(selectors.SelectSelector):
    def __init__(self, loop):
        super().__init__()
        self.loop = loop

    def select(self, timeout=None):
        self.loop.moment += timeout or 0.0
        return super().select(0)


@dataclass
class FakeRow:
    first_event: int | None


class FakeService:
    """Answers one request after another; request n takes `takes[n]` seconds, or raises it."""

    def __init__(self, takes, rows, clock):
        self.takes, self.rows, self.clock = list(takes), rows, clock
        self.lock = asyncio.Lock()

    async def answer(self, request):
        async with self.lock:
            took = self.takes.pop(0)
            if isinstance(took, Exception):
                raise took
            await asyncio.sleep(took)
            self.rows[request.request_id] = FakeRow(self.clock.now())
        return Answer(request.request_id, (), "end", False, 0.0, "cached", "sha256:a")


def sent_by(load, takes, *, timeout=30.0, seed=0):
    """Outcomes in the order of the requests, with what each took (ms)."""
    loop, rows = JumpingLoop(), {}

    async def run():
        clock = Clock(lambda: 0.0, loop.time)
        clients = Clients(FakeService(takes, rows, clock), clock, rows, timeout)
        requests = [Request(str(number), (), request_id=str(number)) for number in range(len(takes))]
        found = sorted(await clients.send(requests, load, seed), key=lambda one: int(one.request.request_id))
        return [(one.error, round(clients.took(one).whole, 3)) for one in found]

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_closed_clients_ask_again_when_they_have_their_answer():
    assert sent_by(Load("x", clients=1), [1.0, 2.0, 0.5]) == [(None, 1000.0), (None, 2000.0), (None, 500.0)]
    assert [took for _, took in sent_by(Load("x", clients=2), [1.0, 1.0, 1.0])] == [1000.0, 2000.0, 2000.0]


def test_an_open_loop_counts_from_the_intended_arrival_however_busy_the_service_is():
    arrivals = poisson_arrivals(10.0, 5, seed=3)
    found = sent_by(Load("x", rate=10.0), [5.0, 0.0, 0.0, 0.0, 0.0], seed=3)
    ends = arrivals[0] + 5.0
    assert [took for _, took in found] == pytest.approx([1000 * (ends - arrival) for arrival in arrivals], abs=0.01)


def test_who_waits_too_long_or_is_turned_away_counts_as_infinitely_slow():
    takes = [0.1, 99.0, RequestRefusedError("busy", "x"), RequestFailedError("no answer", "x"), 0.1]
    found = sent_by(Load("x", clients=1), takes, timeout=5.0)
    assert [error for error, _ in found] == [None, TIMED_OUT, "busy", "no answer", None]
    assert [math.isinf(took) for _, took in found] == [False, True, True, True, False]
