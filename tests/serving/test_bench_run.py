"""A bench sees answers that are missing, invalid, mislabelled or not the full path's, and bytes that are wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from auditlib.audits.bench_findings import bench_findings
from auditlib.decoders.capabilities import CacheShape
from auditlib.errors import InputError, PolicyError, RequestRefusedError
from auditlib.release.checks import Measured
from auditlib.release.serving_limits import bench_limits, judge_serving
from auditlib.serving.bench import BenchPlan, run_bench
from auditlib.serving.engine import Engine
from auditlib.serving.fixed_batch import read_fixed_batch
from auditlib.serving.memory import MemoryPlan, shape_of
from auditlib.serving.service import Service
from tests.doubles import Around
from tests.packed import small_artifact

PLAN = BenchPlan(2, requests=60, others=12, compared=12, rounds=2, levels=(2,), open_loop=False)
GENEROUS = {"first event p95": 1e6, "whole request p95": 1e6, "peak cache bytes": 1e9, "invalid sequences": 0.05}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def batch(artifact):
    return read_fixed_batch(artifact)


@pytest.fixture
def served(artifact):
    return replace(artifact.load(), tolerance=1e-4)


def benched(served, batch, plan=PLAN, stated=GENEROUS):
    return judged(bench_findings(served, run_bench(served, batch, plan)), stated)


def judged(found, stated):
    standing = judge_serving(bench_limits(stated), Measured(found.measurements, found.not_applicable))
    return found, {one.name: one.status for one in standing.checks}, standing.status


def value(found, name):
    return next(one.value for one in found.measurements if one.name == name)


def test_a_sound_artifact_passes_and_both_paths_stand_side_by_side(served, batch):
    found, said, status = benched(served, batch, replace(PLAN, levels=(1, 2, 3), open_loop=True))
    assert status == "passed", said
    loads = found.tables["loads"]
    assert set(loads["arm"]) == {"cached", "full prefix"}
    assert list(dict.fromkeys(loads["load"])) == [
        "1 at once", "2 at once", "3 at once", "50 % of capacity", "80 % of capacity",
    ]  # fmt: skip
    assert (loads["answered"] == loads["requests"]).all()
    own = loads[(loads["load"] == "2 at once") & (loads["arm"] == "cached")]
    assert own["requests"].item() == 60
    latency = found.tables["latency"]
    assert len(latency) == len(loads) * 6
    assert latency[latency["share"] == 0.99]["high"].isna().all()  # 60 requests bound no 99th percentile
    assert set(found.tables["ratios"]["load"]) == {"1 at once", "2 at once", "3 at once"}
    assert value(found, "peak cache bytes") == value(found, "peak cache bytes by the formula") > 0
    assert value(found, "answers by another path") == 0
    assert value(found, "process peak") >= value(found, "process peak before") > 1 << 20


def test_limits_are_held_against_upper_bounds_and_too_few_requests_pass_nothing(served, batch):
    tight = {"first event p95": 0.0, "whole request p95": 1e-9, "peak cache bytes": 1, "invalid sequences": 0.001}
    _, said, status = benched(served, batch, replace(PLAN, requests=59), stated=tight)
    assert status == "failed"
    assert [said[name] for name in tight] == ["failed", "failed", "failed", "not measured"]
    _, said, status = benched(served, batch, replace(PLAN, requests=58))
    assert said["first event p95"] == said["whole request p95"] == "not measured"
    assert status == "not measured"


def test_what_the_policy_does_not_state_is_information(served, batch):
    found, said, status = benched(served, batch, replace(PLAN, requests=12), stated={})
    assert "first event p95" not in said
    assert value(found, "first event p95") > 0
    assert status == "passed"


@pytest.mark.parametrize("stated", [{"second event p95": 1.0}, {"first event p95": math.nan}, {"first event p95": -1}])
def test_a_limit_that_makes_no_sense_is_refused(stated):
    with pytest.raises(PolicyError):
        bench_limits(stated)


def test_who_is_turned_away_is_counted_and_infinitely_slow(served, batch, monkeypatch):
    whole = Service.answer

    async def answer(self, request):
        if request.request_id.endswith("7"):
            raise RequestRefusedError("busy", "one of ten")
        return await whole(self, request)

    monkeypatch.setattr(Service, "answer", answer)
    found, said, _ = benched(served, batch)
    assert said["requests without an answer"] == "failed"
    assert said["first event p95"] == said["whole request p95"] == "failed"
    assert math.isinf(value(found, "whole request p95"))
    assert found.tables["loads"]["refused"].sum() > 0


def test_more_than_the_artifact_is_meant_for_may_be_turned_away(served, batch):
    tight = replace(served, bounds=replace(served.bounds, slots=1, queue=1))
    found, said, _ = benched(tight, batch, replace(PLAN, levels=(2, 6), open_loop=False))
    assert said["requests without an answer"] == "passed"
    loads = found.tables["loads"]
    assert loads[loads["load"] == "6 at once"]["refused"].sum() > 0


def test_who_is_turned_away_adds_nothing_to_the_capacity(served, batch):
    tight = replace(served, bounds=replace(served.bounds, slots=1, queue=0))
    run = run_bench(tight, batch, replace(PLAN, others=60, levels=(1, 2, 12)))
    assert {one.error for part in run.parts for one in part.sent} == {None, "busy"}
    for arm, capacity in run.capacity.items():
        rates = [sum(one.answer is not None for one in part.sent) / part.seconds for part in run.of(arm)]
        assert 0 < capacity <= max(rates)


def step_with(**changes):
    whole = Engine.step
    return lambda self: [replace(one, best=replace(one.best, **changes)) for one in whole(self)]


def test_answers_that_the_service_keeps_back_count_against_the_invalid_share(served, batch, monkeypatch):
    monkeypatch.setattr(Engine, "step", step_with(events=(2, 3), stop="end"))
    found, said, _ = benched(served, batch, replace(PLAN, open_loop=True))
    assert said["requests without an answer"] == "failed"
    assert said["invalid sequences served"] == "not measured"  # nothing at all was served
    assert (value(found, "capacity, cached"), set(found.tables["loads"]["load"])) == (0, {"2 at once"})
    assert said["invalid sequences"] == "not measured"


def test_an_invalid_answer_that_gets_out_is_seen(served, batch, monkeypatch):
    monkeypatch.setattr("auditlib.serving.service.wrong_event", lambda *_: None)
    monkeypatch.setattr(Engine, "step", step_with(events=(0,), stop="capped"))
    _, said, _ = benched(served, batch)
    assert said["invalid sequences served"] == "failed"


def test_a_wrong_reason_to_stop_is_seen(served, batch, monkeypatch):
    monkeypatch.setattr(Engine, "step", step_with(stop="no legal event"))
    _, said, _ = benched(served, batch)
    assert said["wrong stop reasons"] == "failed"


def test_a_cached_path_that_answers_differently_is_seen(served, batch):
    class Drifts(Around):
        def extend(self, events, valid, cache):
            logits, cache = self.inner.extend(events, valid, cache)
            return logits.roll(1, -1), cache

    _, said, _ = benched(replace(served, decoder=Drifts(served.decoder)), batch)
    assert said["answers that differ from the full path"] == "failed"


def test_bytes_that_are_not_those_of_the_formula_are_seen(served, batch):
    class Hungry(Around):
        def cache_bytes(self, cache):
            return self.inner.cache_bytes(cache) + 4096

    class Silent:
        """Tells no shape."""

        def __init__(self, inner):
            for name in ("revision", "vocabulary_size", "context_length", "full", "prefill", "extend", "reorder"):
                setattr(self, name, getattr(inner, name))
            self.cache_bytes = inner.cache_bytes

    _, said, _ = benched(replace(served, decoder=Hungry(served.decoder)), batch)
    assert said["cache bytes beside the formula"] == "failed"
    found, said, status = benched(replace(served, decoder=Silent(served.decoder)), batch)
    assert "cache bytes beside the formula" not in said
    assert found.not_applicable.keys() == {"cache bytes beside the formula"}
    assert status == "passed"


def test_full_prefixes_alone_have_no_cache_and_no_ratio(served, batch):
    found, said, status = benched(replace(served, strategy="full prefix"), batch)
    assert status == "passed", said
    assert set(found.tables["loads"]["arm"]) == {"full prefix"}
    assert found.tables["ratios"].empty
    assert value(found, "peak cache bytes") == 0


def test_an_untouched_plan_asks_at_one_half_all_and_twice_the_intended_clients():
    assert [load.clients for load in BenchPlan(8).closed] == [1, 4, 8, 16]
    assert [load.overload for load in BenchPlan(8).closed] == [False, False, False, True]
    assert [load.clients for load in BenchPlan(8, levels=(1, 32)).closed] == [1, 8, 32]
    for wrong in ({"requests": 0}, {"rounds": 0}, {"levels": (0,)}, {"timeout": 0.0}):
        with pytest.raises(InputError):
            BenchPlan(8, **wrong)


def test_planned_bytes_are_those_that_an_engine_holds(served, batch):
    fixed = replace(served, strategy="preallocated slots")
    shape, bounds = shape_of(fixed), fixed.bounds
    assert shape == CacheShape(2, 1, shape.slots, 2, 8, 4)
    found, _, _ = benched(fixed, batch)
    context = 1 + bounds.max_prefix_events + bounds.max_new_events
    plan = MemoryPlan(
        min(context, fixed.decoder.context_length), shape.layers, shape.heads, shape.head_size, shape.itemsize,
        bounds.slots, residents=bounds.residents, strategy="preallocated slots",
    )  # fmt: skip
    assert plan.peak == value(found, "peak cache bytes")
    assert plan.most_at_once(plan.peak) == bounds.slots
    assert plan.most_at_once(plan.peak - 1) == bounds.slots - 1
    assert plan.most_at_once(0) == 0
    wider = replace(plan, width=3)
    assert wider.rows == 3 * bounds.slots + bounds.residents + 1
    assert replace(plan, strategy="cached", context=33).slots == 64
