"""A replay sees an answer that hangs on its company, one that is lost, and one that breaks what it was bound to."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auditlib.audits.compositions import compositions
from auditlib.audits.replay import replay
from auditlib.release.checks import Measured
from auditlib.release.serving_limits import REPLAY_LIMITS, judge_serving
from auditlib.serving.engine import Engine
from auditlib.serving.fixed_batch import FixedBatch, read_fixed_batch
from tests.doubles import Around
from tests.packed import small_artifact

ROWS = 12


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    return small_artifact(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def batch(artifact) -> FixedBatch:
    """A dozen rows of the fixed batch, of many lengths: the whole would take a minute."""
    whole = read_fixed_batch(artifact)
    known = [place for place, stratum in enumerate(whole.strata) if stratum.seen]  # some of these continue each other
    places = sorted({*known, *range(20, len(whole.prefixes), 40)})[:ROWS]
    taken = [[list(column)[place] for place in places] for column in (whole.prefixes, whole.attributes, whole.strata)]
    answers = tuple(whole.answers[place] for place in places)
    return FixedBatch(*map(tuple, taken), answers, whole.logits[places])


@pytest.fixture
def served(artifact):
    return replace(artifact.load(), tolerance=1e-4)


def standing(found):
    return {one.name: one.status for one in judge_serving(REPLAY_LIMITS, Measured(found.measurements)).checks}


def value(found, name):
    return next(one.value for one in found.measurements if one.name == name)


class Leaks(Around):
    """Each row's logits take a little of the next row's, on both paths, once there is one."""

    def full(self, events, valid):
        return self._leak(self.inner.full(events, valid))

    def extend(self, events, valid, cache):
        logits, cache = self.inner.extend(events, valid, cache)
        return self._leak(logits), cache

    def _leak(self, logits):
        return logits + 0.5 * logits.roll(1, 0) if len(logits) > 1 else logits


class DropsResidents(Around):
    """Gives rows that are taken over the keys of their neighbour."""

    def reorder(self, cache, parents):
        return self.inner.reorder(cache, parents.roll(1) if len(parents) > 2 else parents)


def test_a_sound_artifact_passes_in_every_composition_on_both_paths(served, batch):
    found = replay(served, batch)
    assert set(standing(found).values()) == {"passed"}
    table = found.tables["compositions"]
    assert set(table["composition"]) == {
        "alone", "by eight", "by slots", "permuted", "mixed lengths", "early finishers", "continued sessions",
    }  # fmt: skip
    assert set(table["path"]) == {"cached", "full prefix"}
    assert (table["compared"] == ROWS).all()
    assert value(found, "requests that continued a kept prefix") > 0
    assert found.tables["differences"].empty


def test_every_composition_holds_every_prefix_once(served, batch):
    for one in compositions(served, batch):
        assert sorted(one.rows.values()) == list(range(ROWS))
        assert {request.request.request_id for request in one.requests} >= set(one.rows)


@pytest.mark.parametrize("fault", [Leaks, DropsResidents])
def test_rows_that_reach_each_other_are_seen_and_listed(served, batch, fault):
    found = replay(replace(served, decoder=fault(served.decoder)), batch)
    said = standing(found)
    assert "failed" in (
        said["answers that differ"],
        said["scores beyond the tolerance"],
        said["answers by another path"],
    )
    if fault is Leaks:
        listed = found.tables["differences"]
        assert len(listed) == value(found, "answers that differ") + value(found, "near ties") > 0
        assert (listed["margin"].dropna() >= 0).all()
        assert "full prefix" in set(listed["path"])


def test_an_engine_that_loses_a_row_is_seen(served, batch, monkeypatch):
    whole = Engine.step
    monkeypatch.setattr(
        Engine, "step", lambda self: [one for one in whole(self) if one.encoded.prefix != batch.prefixes[3]]
    )
    found = replay(served, batch)
    assert value(found, "requests without an answer") > 0
    assert standing(found)["requests without an answer"] == "failed"


def test_a_decoder_that_breaks_leaves_requests_without_an_answer_and_says_why(served, batch):
    class Breaks(Around):
        def full(self, events, valid):
            if len(events) > 1:
                raise RuntimeError("the device ran away")
            return self.inner.full(events, valid)

    found = replay(replace(served, decoder=Breaks(served.decoder)), batch)
    assert standing(found)["requests without an answer"] == "failed"
    assert any("the device ran away" in note for note in found.notes)


def changed(**changes):
    """An engine's step whose answers are altered."""
    whole = Engine.step

    def step(self):
        return [replace(one, best=replace(one.best, **changes)) for one in whole(self)]

    return step


@pytest.mark.parametrize(
    ("changes", "check"),
    [
        ({"stop": "no legal event"}, "wrong stop reasons"),
        ({"events": (3,) * 9, "stop": "capped"}, "answers beyond the cap"),
        ({"events": (2, 3), "stop": "end"}, "invalid sequences"),
        ({"events": (0,), "stop": "capped"}, "invalid sequences"),
        ({"score": float("nan")}, "scores beyond the tolerance"),
    ],
)
def test_each_answer_is_judged_again_from_its_ids(served, batch, monkeypatch, changes, check):
    monkeypatch.setattr(Engine, "step", changed(**changes))
    assert standing(replay(served, batch))[check] == "failed"


def test_a_cache_that_is_rejected_is_told_from_one_that_serves(served, batch):
    class Grows(Around):
        """Reports a length that no row has."""

        def stored(self, cache):
            keys, values, lengths = self.inner.stored(cache)
            return keys, values, lengths + 1

    found = replay(replace(served, decoder=Grows(served.decoder)), batch)
    said = standing(found)
    assert said["answers by another path"] == "failed"
    assert said["answers that differ"] == "passed"


def test_near_ties_are_listed_with_step_and_margin_and_fail_nothing(served, batch):
    answers = list(batch.answers)
    exact = answers[0]
    answers[0] = replace(exact, events=(4 if exact.events[0] != 4 else 3, *exact.events[1:]))
    saved = replace(batch, answers=tuple(answers))
    far = replay(served, saved)
    assert standing(far)["answers that differ"] == "failed"
    near = replay(replace(served, tolerance=1e3), saved)
    assert standing(near)["answers that differ"] == "passed"
    assert value(near, "near ties") == len(near.tables["differences"]) == len(near.tables["compositions"])
    assert near.tables["differences"]["tie"].all()
    assert (near.tables["differences"]["step"] == 0).all()


def test_saved_logits_are_held_against_the_full_path_here(served, batch):
    moved = batch.logits.clone()
    moved[5, 3] += 1.0
    assert standing(replay(served, replace(batch, logits=moved)))["saved logits"] == "failed"
    lost = torch.full_like(batch.logits, torch.nan)
    assert standing(replay(served, replace(batch, logits=lost)))["saved logits"] == "failed"


def test_on_another_device_the_tolerance_is_void_and_nothing_passes_for_it(served, batch):
    said = standing(replay(served, batch, same_device=False))
    assert said["saved logits"] == said["scores beyond the tolerance"] == "not measured"
    assert said["answers that differ"] == "passed"


def test_where_the_cache_is_blocked_only_full_prefixes_are_replayed(served, batch):
    found = replay(replace(served, strategy="full prefix"), batch)
    assert set(found.tables["compositions"]["path"]) == {"full prefix"}


def test_the_saved_answer_of_another_kind_of_stop_is_a_difference(served, batch):
    first = batch.answers[0]
    said = replace(first, stop="capped" if first.stop == "end" else "end")
    found = replay(served, replace(batch, answers=(said, *batch.answers[1:])))
    assert standing(found)["answers that differ"] == "failed"
    assert found.tables["differences"]["step"].isna().all()
