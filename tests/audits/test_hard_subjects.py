"""Subjects at the edge: short contexts, few events, decoders that leave the process or give no numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from auditlib.audits.base import Subject
from auditlib.audits.battery import explain, run_battery
from auditlib.audits.cache_identity import CACHE_IDENTITY
from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.causality import CAUSALITY
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.faults.catalogue import FAULTS
from auditlib.audits.faults.causal import _NoNumbers
from auditlib.audits.numerics import NUMERICS
from auditlib.audits.policy_runs import Runs, batch_dependence
from auditlib.audits.prefix_set import prefix_set
from auditlib.audits.self_check import plant_all
from auditlib.audits.work import Watch
from auditlib.decoders.paired import PairedDecoder
from auditlib.decoding.policies import Setting
from auditlib.events.event_map import EventMap
from auditlib.runs.self_check import run_self_check
from auditlib.sessions.session import Session
from tests.audits.test_self_check import LIMIT_ROWS, ORDER, RESULTS, subject
from tests.doubles import Around
from tests.subjects import SESSIONS, gpt, missing, over_limit, subject_of, values

torch.set_num_threads(1)


def planted(known: Subject, *names: str):
    """Outcome of each named fault: the value its check gave over the one without it, or why it was not planted."""
    faults = [fault for fault in FAULTS if fault.name in names or fault.kind in names]
    return {one.fault.name: one.problem or one.reason or one.value > 10 * one.clean for one in plant_all(known, faults)}


@pytest.mark.parametrize("context", [9, 12, 20, 33])
def test_faults_of_padding_are_seen_in_every_context_that_holds_them(context):
    found = planted(subject(lambda dtype: gpt(dtype, context_length=context)), "padding")
    missed = {name: said for name, said in found.items() if said is not True and "the context holds" not in str(said)}
    assert missed == {}


def test_a_leak_before_one_event_is_planted_for_an_event_that_happens():
    ids = EventMap("1", 0, 9, 2, {"opened": 1, "closed": 3, "assigned": 4, "repaired": 5, "reopened": 6}, None)
    known = subject(lambda dtype: gpt(dtype, vocabulary_size=ids.size))
    known = replace(known, event_map=ids, order=ORDER.compile(ids))
    assert planted(known, "a leak before one event only") == {"a leak before one event only": True}


def test_what_sessions_of_one_event_cannot_show_is_not_planted():
    known = replace(subject(), held_out=tuple(Session(f"s{n}", ("opened",) * (1 + n)) for n in range(4)))
    (said,) = planted(known, "the decoder repeats its input").values()
    assert said == "the sessions at hand hold one event only"


def test_short_sessions_have_a_made_up_prefix_whose_events_can_change_places():
    known = replace(subject(), held_out=tuple(Session(f"s{n}", ("opened", "closed")[: n % 3]) for n in range(6)))
    name = "a prefix cache keyed by its events in any order"
    assert planted(known, name) == {name: True}


def test_a_memory_that_ignores_the_revision_is_seen_in_a_pair_and_a_sound_pair_has_none():
    known = subject(lambda dtype: PairedDecoder(gpt(dtype), gpt(dtype)))
    name = "a prefix cache that ignores the revision"
    assert planted(known, name) == {name: True}
    assert values(CACHE_IDENTITY.measure(known))["answer after another session"] < 1e-4


class Leaves(Around):
    """Leaves the process as if all were well."""

    def prefill(self, events, valid):
        raise SystemExit(0)


def test_a_decoder_that_leaves_the_process_is_not_measured_and_nothing_ends():
    known = subject(lambda dtype: Leaves(gpt(dtype)))
    results = run_battery((CAUSALITY, CACHE_PARITY), known)
    assert all("SystemExit" in str(one.problem) for one in results)
    checked = run_self_check(known, RESULTS, LIMIT_ROWS)
    assert checked.problem is not None or all(one.outcome != "caught" for one in checked.judged)


class Mixed(Around):
    """Each row takes a fifth of what its batch says on average."""

    def prefill(self, events, valid):
        logits, cache = self.inner.prefill(events, valid)
        return self._mixed(logits), cache

    def extend(self, events, valid, cache):
        logits, cache = self.inner.extend(events, valid, cache)
        return self._mixed(logits), cache

    def _mixed(self, logits):
        return logits + 0.2 * (logits.mean(0, keepdim=True) - logits)


def test_rows_that_hang_on_their_company_are_never_excused_as_ties():
    changed = 0
    for seed in range(4):
        known = subject_of(lambda dtype, seed=seed: Mixed(gpt(dtype, seed=seed)))
        runs, cases = Runs(known, Watch(known.progress)), prefix_set(known, 40).cases
        greedy = Setting("greedy", "greedy")
        found = batch_dependence(runs, greedy, cases, runs.run(greedy, cases))
        assert found.ties == 0
        changed += found.changed
    assert changed > 0


class Copies(Around):
    """Reads slots that nothing was written to, and shows copies of what it stores."""

    def extend(self, events, valid, cache):
        _, held, lengths = self.inner.stored(cache)
        unread = torch.arange(held.shape[3]) >= lengths[:, None]
        felt = 1e-13 * (held[0].double().mean((1, 3)) * unread).sum(1)
        logits, cache = self.inner.extend(events, valid, cache)
        return logits + felt.to(logits.dtype)[:, None, None], cache

    def stored(self, cache):
        keys, held, lengths = self.inner.stored(cache)
        return keys.clone(), held.clone(), lengths

    def __getattr__(self, name):
        if name.endswith("_altered"):
            raise AttributeError(name)
        return super().__getattr__(name)


def test_poison_that_only_reached_a_copy_proves_nothing():
    findings = CAUSALITY.measure(subject_of(lambda dtype: Copies(gpt(dtype))))
    assert "finite poison" not in values(findings)
    assert "finite poison" in findings.not_applicable


def test_a_decoder_without_numbers_has_its_counterexample():
    known = subject_of(lambda dtype: _NoNumbers(gpt(dtype)), sessions=SESSIONS[:3])
    check = {"name": "not finite logits", "status": "failed", "limit": 0.0, "unit": "logits"}
    broken = {"name": "single events", "status": "failed", "limit": None, "unit": "logit"}
    report = {"audits": {"cache parity": {"checks": [broken, check]}}}
    explained = explain(known, report)
    assert explained.problem is None
    assert any("not finite" in name for name in map(str, explained.cases))


class Forbids(Around):
    """Gives padding and the start token a logit so low that neither ever comes; cached logits are `off` too high."""

    def __init__(self, inner, lowest, off=0.0):
        super().__init__(inner)
        self.lowest, self.off = lowest, off

    def full(self, events, valid):
        return self.lowered(self.inner.full(events, valid))

    def prefill(self, events, valid):
        logits, cache = self.inner.prefill(events, valid)
        return self.lowered(logits), cache

    def extend(self, events, valid, cache):
        logits, cache = self.inner.extend(events, valid, cache)
        return self.lowered(logits * (1 + self.off)), cache

    def lowered(self, logits):
        logits = logits.clone()
        logits[..., :2] = max(self.lowest, torch.finfo(logits.dtype).min)
        return logits


def forbidding(lowest, off=0.0):
    return subject_of(lambda dtype: Forbids(gpt(dtype), lowest, off), sessions=SESSIONS[:3])


@pytest.mark.parametrize("lowest", [-1e9, -3.4e38], ids=str)
def test_ids_that_are_forbidden_by_a_low_logit_leave_decisions_to_be_compared(lowest):
    findings = NUMERICS.measure(forbidding(lowest))
    assert (over_limit(NUMERICS, findings), missing(NUMERICS, findings)) == (set(), set())


@pytest.mark.parametrize(("off", "wrong"), [(0.0, set()), (1e-4, {"single events"})], ids=["sound", "a little off"])
def test_ids_that_are_forbidden_by_a_low_logit_hide_no_gap(off, wrong):
    over = over_limit(CACHE_PARITY, CACHE_PARITY.measure(forbidding(-1e9, off)))
    assert over >= wrong
    assert bool(over) == bool(wrong)


def test_huge_logits_are_told_apart_as_they_are():
    class Says(Around):
        def full(self, events, valid):
            return torch.tensor([[[1e30, 9e29, 1e29, 3.0, 2e20, -1e9, -1e29, 0.0]]])

    found = CheckedDecoder(Says(gpt()), "cpu", lambda: None).full(torch.tensor([[1]]), torch.tensor([[True]]))
    assert torch.equal(found[0, 0], torch.tensor([1e30, 9e29, 1e29, 3.0, 2e20, 0.0, 0.0, 0.0]))


def test_a_number_is_raised_and_what_is_none_is_counted_and_stays():
    class Says(Around):
        def full(self, events, valid):
            return torch.tensor([[[3.0, -1e9, math.nan, -math.inf, math.inf, -96.0, -97.5, 0.0]]])

    checked = CheckedDecoder(Says(gpt()), "cpu", lambda: None)
    found = checked.full(torch.tensor([[1]]), torch.tensor([[True]]))[0, 0]
    assert checked.not_finite == 3
    assert found[[0, 1, 3, 5, 6, 7]].tolist() == [3.0, -97.0, -97.0, -96.0, -97.0, 0.0]
    assert found[2].isnan()
    assert found[4] == math.inf
