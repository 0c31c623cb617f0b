"""Whatever fails in an artifact, every request gets an answer that holds, or an error, and a row in the log."""

from __future__ import annotations

import asyncio
import math
import threading
from dataclasses import replace

import pytest
import torch

from auditlib.errors import RequestFailedError, RequestRefusedError
from auditlib.serving.comparing import NO_CHOICE, compare_events, events_digest
from auditlib.serving.keeping import Keeper
from auditlib.serving.log_row import to_table
from auditlib.serving.moments import Clock
from auditlib.serving.request import Request, encode
from auditlib.serving.request_log import RequestLog
from auditlib.serving.routes import Label
from auditlib.serving.service import Service
from tests.doubles import ToyDecoder
from tests.serving.processes import rows_in
from tests.serving.test_serving_engine import MAP, SETTINGS, Forgetful, alone, gpt, requests_for, toy

END = MAP.end


def ask_all(service_of, requests):
    """(answers or errors in the order of the requests, log rows, the service) of requests sent all at once."""
    rows = []

    async def run():
        async with service_of(rows.append) as service:
            calls = [asyncio.create_task(service.answer(request)) for request in requests]
            return await asyncio.gather(*calls, return_exceptions=True), service, service.health()

    answers, service, health = asyncio.run(run())
    return answers, rows, service, health


def plain(requests):
    return [one.request for one in requests]


@pytest.mark.parametrize("strategy", ["cached", "full prefix"])
def test_many_callers_get_the_answers_of_their_prefixes_alone(strategy):
    served = gpt(strategy=strategy)
    requests = requests_for(served, 30)
    answers, rows, service, health = ask_all(lambda keep: Service(served, keep=keep), plain(requests))
    for one, answer in zip(requests, answers, strict=True):
        names = tuple(served.event_map.name(event) for event in alone(served, one).events if event != END)
        assert (answer.events, answer.path, answer.fallback) == (names, strategy, None)
    assert sorted(row.request_id for row in rows) == sorted(one.request.request_id for one in requests)
    assert to_table(rows).num_rows == 30
    for row in rows:
        assert row.arrival <= row.start <= row.first_event <= row.end
        assert (row.valid, row.error, row.cache) == (True, None, strategy == "cached")
        assert 1 <= row.batch_size <= served.bounds.slots
    assert sum(service.counts.answered.values()) == 30
    assert health["status"] == "ok"


class Raises(ToyDecoder):
    """Fails from the fourth call on."""

    calls = 0

    def fail(self):
        raise RuntimeError("the device is gone")

    def _read(self, events, valid, rows):
        self.calls += 1
        if self.calls > 3:
            self.fail()
        return super()._read(events, valid, rows)


class Exits(Raises):
    def fail(self):
        raise SystemExit(3)


class Hangs(Raises):
    """Never comes back; released by the test."""

    released = threading.Event()

    def fail(self):
        self.released.wait(20)


class NotANumber(ToyDecoder):
    calls = 0

    def _read(self, events, valid, rows):
        self.calls += 1
        logits, rows = super()._read(events, valid, rows)
        return (logits * torch.nan if self.calls > 3 else logits), rows


class PadsAtLast(ToyDecoder):
    """Proposes padding, which only an unmasked setting would let out."""

    def next_logits(self, row):
        return [9.0, *super().next_logits(row)[1:]]


FAULTS = {
    "raises": (Raises, "greedy"),
    "leaves": (Exits, "greedy"),
    "gives no numbers": (NotANumber, "greedy"),
    "breaks the order": (PadsAtLast, "unmasked"),
}


@pytest.mark.parametrize("strategy", ["cached", "full prefix"])
@pytest.mark.parametrize("fault", FAULTS)
def test_the_fallback_artifact_answers_every_request_that_the_new_one_cannot(fault, strategy):
    make, setting = FAULTS[fault]
    served = replace(toy(setting, strategy, make(MAP.size, 14)), digest="sha256:new")
    earlier = replace(toy(), digest="sha256:earlier", decoder=ToyDecoder(MAP.size, 14, seed=4))
    requests = requests_for(served, 25)
    answers, rows, service, health = ask_all(lambda keep: Service(served, fallback=earlier, keep=keep), plain(requests))
    for one, answer in zip(requests, answers, strict=True):
        if answer.artifact == "sha256:earlier":
            assert answer.path == "fallback artifact"
            assert answer.fallback
            expected = alone(earlier, one)
        else:  # answered before the fault showed, rightly
            expected = alone(replace(served, decoder=ToyDecoder(MAP.size, 14)), one)
        assert answer.events == tuple(MAP.name(event) for event in expected.events if event != END)
    assert len(rows) == 25
    late = [row for row in rows if row.artifact == "sha256:earlier"]
    assert late
    assert all(row.fallback for row in late)
    assert service.counts.answered["fallback artifact"] == len(late)
    if fault == "breaks the order":
        assert all(row.valid is False and row.rule for row in late)
    else:
        assert health["status"] == "degraded"


@pytest.mark.parametrize("fault", FAULTS)
def test_without_a_fallback_artifact_every_request_gets_an_error_and_a_row(fault):
    make, setting = FAULTS[fault]
    served = toy(setting, "full prefix", make(MAP.size, 14))
    requests = requests_for(served, 25)
    answers, rows, _, _ = ask_all(lambda keep: Service(served, keep=keep), plain(requests))
    failed = [answer for answer in answers if isinstance(answer, RequestFailedError)]
    assert failed
    assert all(isinstance(answer, RequestFailedError) or answer.events is not None for answer in answers)
    assert sum(row.error == "no answer" for row in rows) == len(failed)
    assert len(rows) == 25


def test_an_engine_that_hangs_is_given_up_and_the_fallback_answers():
    served = toy(decoder=Hangs(MAP.size, 14))
    earlier = replace(toy(), digest="sha256:earlier")
    try:
        answers, _, _, _ = ask_all(
            lambda keep: Service(served, fallback=earlier, keep=keep, timeout=0.3), plain(requests_for(served, 6))
        )
    finally:
        Hangs.released.set()
    late = [answer for answer in answers if answer.path == "fallback artifact"]
    assert late
    assert all("longer than" in answer.fallback or "no answer" in answer.fallback for answer in late)


def test_a_rejected_cache_is_counted_and_every_answer_is_right():
    served = toy(decoder=Forgetful(MAP.size, 14))
    requests = requests_for(served, 30)
    answers, rows, service, health = ask_all(lambda keep: Service(served, keep=keep), plain(requests))
    sound = toy()
    for one, answer in zip(requests, answers, strict=True):
        assert answer.events == tuple(MAP.name(event) for event in alone(sound, one).events if event != END)
    assert {row.fallback for row in rows} == {None, "rejected cache"} or {row.fallback for row in rows} == {
        "rejected cache"
    }
    assert len(health["rejected_caches"]) == 1
    assert health["status"] == "degraded"
    assert service.counts.answered["full prefix"] == sum(not row.cache for row in rows) > 0


def test_a_full_queue_says_busy_at_once_and_nobody_else_suffers():
    served = toy(slots=2, queue=3)
    requests = plain(requests_for(served, 12))
    answers, rows, service, _ = ask_all(lambda keep: Service(served, keep=keep), requests)
    busy = [answer for answer in answers if isinstance(answer, RequestRefusedError)]
    assert [answer.code for answer in busy] == ["busy"] * 7
    assert service.counts.refused["busy"] == 7
    assert sum(row.error == "busy" for row in rows) == 7
    assert sum(row.error is None for row in rows) == 5


def test_a_second_request_of_one_id_is_refused_while_the_first_is_under_way_and_has_no_row():
    served = toy()
    one = Request("s", ("c",), {}, None, "r")
    answers, rows, service, _ = ask_all(lambda keep: Service(served, keep=keep), [one] * 2)
    assert answers[0].request_id == "r"
    assert answers[1].code == "duplicate"
    assert [row.error for row in rows] == [None]  # a second row under one id would speak of the first request
    assert service.counts.refused["duplicate"] == 1


def test_a_caller_who_leaves_gets_a_row_and_frees_the_slot():
    served = toy(slots=1)
    rows = []

    async def run():
        async with Service(served, keep=rows.append) as service:
            leaving = asyncio.create_task(service.answer(Request("a", ("c",))))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            return await service.answer(Request("b", ("c", "c")))

    answer = asyncio.run(run())
    assert answer.events is not None
    assert sorted(str(row.error) for row in rows) == ["None", "caller left"]


class Gated(ToyDecoder):
    """Its calls of one verb wait until the gate is opened, and say that they have come there."""

    def __init__(self, verb):
        super().__init__(MAP.size, 14)
        self.reached, self.gate = threading.Event(), threading.Event()
        inner = getattr(self, verb)
        setattr(self, verb, lambda *arguments: self._through(inner, arguments))

    def _through(self, inner, arguments):
        self.reached.set()
        assert self.gate.wait(20)
        return inner(*arguments)


def test_a_retry_under_the_id_of_a_caller_who_left_gets_its_own_answer():
    decoder = Gated("extend")
    served = toy(decoder=decoder)
    retry = encode(Request("s", ("c", "c", "b"), {}, 5, "r"), served)

    async def run():
        async with Service(served) as service:
            leaving = asyncio.create_task(service.answer(Request("s", ("c",), {}, 5, "r")))
            assert await asyncio.to_thread(decoder.reached.wait, 20)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            again = asyncio.create_task(service.answer(retry.request))
            await asyncio.sleep(0)
            decoder.gate.set()
            return await again

    answer = asyncio.run(run())
    assert served.event_map.encode(answer.events) == tuple(e for e in alone(toy(), retry).events if e != END)
    assert (answer.path, answer.fallback) == ("cached", None)


def test_two_comparisons_under_one_id_are_each_of_their_own_answer():
    decoder = Gated("full")
    rows = []

    async def run():
        async with Service(toy(decoder=decoder), keep=rows.append, compare=1.0, timeout=10) as service:
            for prefix in (("c",), ("c", "c", "b")):  # the second comes while the first is being compared
                await service.answer(Request("s", prefix, {}, 5, "r"))
            assert await asyncio.to_thread(decoder.reached.wait, 20)
            decoder.gate.set()
            await service.settle()
            return service.counts

    counts = asyncio.run(run())
    assert (counts.compared, counts.mismatches, counts.failed["comparison"]) == (2, 0, 0)
    assert [row.events_digest == row.shadow_events_digest for row in rows] == [True, True]


def test_answers_are_compared_with_the_full_path_and_wrong_ones_are_seen():
    class Drifts(ToyDecoder):
        """Its cached path forgets the first event of what it has read."""

        def extend(self, events, valid, cache):
            cache.rows = tuple(row[:1] + row[2:] if len(row) > 3 else row for row in cache.rows)
            return super().extend(events, valid, cache)

    requests = plain(requests_for(toy(), 30))
    for decoder, some in ((ToyDecoder(MAP.size, 14), False), (Drifts(MAP.size, 14), True)):
        served = toy(decoder=decoder)
        _, rows, service, _ = ask_all(
            lambda keep, served=served: Service(served, keep=keep, compare=1.0, label=Label("new", "shadow")), requests
        )
        assert len(rows) == 30
        assert service.counts.compared == 30
        assert {(row.arm, row.stage) for row in rows} == {("new", "shadow")}
        differing = [row for row in rows if row.events_digest != row.shadow_events_digest]
        assert bool(differing) == some
        assert service.counts.mismatches == len(differing)
        for row in differing:
            assert row.first_differing_step is not None
            assert row.margin > 2 * served.tolerance


class NeverPads(ToyDecoder):
    """Gives padding no chance at all, which is allowed; its cached path, where `turned`, swaps events."""

    turned = True

    def next_logits(self, row):
        return [-math.inf, *super().next_logits(row)[1:]]

    def extend(self, events, valid, cache):
        logits, cache = super().extend(events, valid, cache)
        return (logits.roll(1, -1) if self.turned else logits), cache


class CannotBeMeasured(NeverPads):
    """Its cached path answers once, and fails when it is asked again how far apart the paths are."""

    prefills = 0

    def prefill(self, events, valid):
        self.prefills += 1
        if self.prefills > 1:
            raise self.problem
        return super().prefill(events, valid)


@pytest.mark.parametrize("setting", ["greedy", "unmasked", "beam", "sampled"])
def test_a_wrong_answer_has_its_row_also_where_gap_and_margin_are_no_numbers(setting, tmp_path):
    served = toy(setting, decoder=NeverPads(MAP.size, 14))
    keeper = Keeper(RequestLog(tmp_path))
    answers, _, service, _ = ask_all(
        lambda _: Service(served, keep=keeper.keep, compare=1.0, timeout=10), plain(requests_for(served, 20))
    )
    keeper.close()
    given = [answer for answer in answers if not isinstance(answer, Exception)]
    rows = rows_in(tmp_path)
    assert len(rows) == len(answers) == 20
    assert (keeper.lost, service.counts.failed["comparison"], service.counts.compared) == (0, 0, len(given))
    differing = [row for row in rows if not row["error"] and row["events_digest"] != row["shadow_events_digest"]]
    assert len(differing) == service.counts.mismatches > 0
    assert all(row["first_differing_step"] is not None for row in differing)
    for name in ("margin", "largest_logit_gap"):
        assert all(row[name] is None or math.isfinite(row[name]) for row in differing)


def test_logits_that_are_minus_infinity_on_both_paths_are_no_gap():
    decoder = NeverPads(MAP.size, 14)
    decoder.turned = False
    served = toy(decoder=decoder)
    one = encode(Request("s", ("c",)), served)
    exact = alone(served, one).events
    assert compare_events(served, one, (3 if exact[0] != 3 else 4, *exact[1:]), exact).gap == 0.0


@pytest.mark.parametrize("problem", [RuntimeError("gone"), SystemExit(3), asyncio.CancelledError()])
def test_a_wrong_answer_that_cannot_be_measured_is_logged_as_wrong(problem, tmp_path):
    decoder = CannotBeMeasured(MAP.size, 14)
    decoder.problem = problem
    keeper = Keeper(RequestLog(tmp_path))
    request = Request("s", ("c",), {}, 5, "r")
    [answer], _, service, _ = ask_all(
        lambda _: Service(toy(decoder=decoder), keep=keeper.keep, compare=1.0, timeout=10), [request]
    )
    keeper.close()
    [row] = rows_in(tmp_path)
    assert (answer.path, row["error"]) == ("cached", None)
    assert row["events_digest"] != row["shadow_events_digest"] is not None
    assert (row["margin"], row["largest_logit_gap"]) == (None, None)
    assert (service.counts.failed["comparison"], service.counts.mismatches) == (1, 1)


@pytest.mark.parametrize(("second", "tie"), [(1.0 + 1e-7, True), (1.0 + 1e-5, False), (3.0, False)])
def test_margins_tell_near_ties_from_faults(second, tie):
    served = toy(decoder=ToyDecoder(MAP.size, 14, logits=lambda row: [-9.0, -9.0, 0.0, 1.0, second, -1.0]))
    one = encode(Request("s", ("c",)), served)
    exact = (4, *alone(served, one).events[1:])
    found = compare_events(served, one, (3, *exact[1:]), exact)
    assert (found.step, found.digest) == (0, events_digest(exact))
    assert found.margin == pytest.approx(second - 1.0, abs=1e-7)
    assert found.is_tie(served.tolerance) == tie
    assert not compare_events(served, one, exact, exact).differs


def test_where_one_event_only_was_legal_no_rounding_explains_another():
    served = toy()
    one = encode(Request("s", ("c",), {}, 1), served)  # one new event: only the end is legal
    assert compare_events(served, one, (3,), (END,)).margin == NO_CHOICE


@pytest.mark.parametrize("kind", ["sampled", "beam"])
def test_sampled_and_beam_answers_have_margins_too(kind):
    served = replace(toy(), setting=SETTINGS[kind])
    one = encode(Request("s", ("c",)), served)
    exact = alone(served, one).events
    other = (3 if exact[0] != 3 else 4, *exact[1:])
    assert compare_events(served, one, other, exact).margin >= 0


def test_moments_of_a_service_never_go_back():
    walls, steadies = iter([1000.0, 5.0]), iter([10.0, 11.5, 12.0])
    clock = Clock(lambda: next(walls), lambda: next(steadies))
    assert (clock.now(), clock.now()) == (1_001_500_000, 1_002_000_000)
