"""Each planted fault of decoding must be seen by the measurement that is named for it, and none on a sound loop."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from auditlib.audits import policy_runs
from auditlib.audits.base import Subject
from auditlib.audits.decoding_policy import DECODING_POLICY
from auditlib.decoding import filters, generated, lanes, masks
from auditlib.decoding.lanes import Lanes
from auditlib.decoding.policies import Setting
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule, Reopening
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder

MAP = EventMap.build(["assigned", "closed", "opened", "reopened", "repaired"])
ASSIGNED, CLOSED, OPENED = MAP.encode(["assigned", "closed", "opened"])
RULES = (OrderRule("init", "opened"), OrderRule("not succession", "closed", "assigned"))
ORDER = EventOrder("1", RULES, Reopening("reopened", allowed=True)).compile(MAP)
GREEDY = Setting("greedy", "greedy")
SAMPLED = Setting("sampled", "sampled", top_p=0.9)
BEAM = Setting("beam", "beam", width=3, length_penalty=1.0)
MUST_BE_ZERO = (
    "padding emitted", "events after the end", "invalid sequences", "capped sequences", "mislabelled stops",
    "wrong effective cap", "batch dependent sequences", "repeated hypotheses", "top-k 1 differs from greedy",
    "filter errors",
)  # fmt: skip

SESSIONS = tuple(
    Session(f"s{number}", ("opened", *events))
    for number, events in enumerate(
        [
            (),
            ("assigned",),
            ("assigned", "repaired"),
            ("assigned", "repaired", "closed"),
            ("repaired", "closed"),
            ("repaired", "closed", "reopened", "assigned", "closed"),
            ("assigned", "assigned", "repaired", "repaired", "closed"),
            ("closed", "reopened", "repaired"),
        ]
    )
)


def subject_of(decoder=ToyDecoder, settings=(GREEDY, SAMPLED, BEAM), sessions=SESSIONS, max_new=5, **more):
    def load(dtype):
        return decoder(vocabulary_size=MAP.size, context_length=12, dtype=dtype, **more)

    return Subject(
        "toy", "sha256:0", load(torch.float32), load, MAP, ORDER, sessions, None, tuple(settings), max_new
    )  # fmt: skip


def measured(subject):
    findings = DECODING_POLICY.measure(subject)
    names = [one.name for one in findings.measurements]
    assert len(names) == len(set(names))
    return {one.name: one for one in findings.measurements}, findings


def test_a_sound_loop_shows_nothing_wrong_under_the_mask():
    found, findings = measured(subject_of())
    for setting in (GREEDY, SAMPLED, BEAM):
        for check in MUST_BE_ZERO:
            one = found.get(f"{setting.name}: {check}")
            if one is not None:
                assert (one.value, one.count > 0) == (0, True), one
        assert found[f"{setting.name}: share not ended by choice"].value < 0.9
    assert found["beam: beam score error"].value < 1e-5
    assert found["greedy without order mask: invalid sequences"].value > 0
    assert set(findings.tables["rates"].setting) == {
        name for one in (GREEDY, SAMPLED, BEAM) for name in (one.name, one.twin().name)
    }
    assert not findings.not_applicable


def test_the_same_subject_gives_the_same_numbers():
    first, second = measured(subject_of())[1], measured(subject_of(sessions=SESSIONS[::-1]))[1]
    assert first.measurements == second.measurements
    assert first.notes == second.notes
    assert first.tables["sequences"].equals(second.tables["sequences"])


def wrapped(change):
    """`generate` whose results pass through `change(hypotheses, row)`."""
    sound = policy_runs.generate

    def faulty(decoder, prefixes, setting, **more):
        found = sound(decoder, prefixes, setting, **more)
        return [change(hypotheses, prefix) for hypotheses, prefix in zip(found, prefixes, strict=True)]

    return faulty


def each(change):
    return wrapped(lambda hypotheses, row: [change(one) for one in hypotheses])


def after_end(*events):
    return each(lambda one: replace(one, events=(*one.events, *events)) if one.stop == "end" else one)


def capped_at(cap):
    sound = policy_runs.generate
    return lambda *given, **more: sound(*given, **more | {"max_new": min(cap, more["max_new"])})


def without_crossing(scores, share):
    ranked = scores.softmax(-1).sort(dim=-1, descending=True)
    kept = ranked.values.cumsum(-1) <= share
    kept[..., 0] = True
    stays = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, ranked.indices, kept)
    return scores.masked_fill(~stays, -torch.inf)


def bad_cell(automata, states, remaining, vocabulary_size, sound=masks.order_mask):
    allowed = sound(automata, states, remaining, vocabulary_size)
    closed = np.array([one.state_after((OPENED, CLOSED)) for one in automata])
    allowed[:, ASSIGNED] |= torch.from_numpy((states == closed) & (remaining > 1))
    return allowed


def no_budget(automata, states, remaining, vocabulary_size, sound=masks.order_mask):
    return sound(automata, states, remaining + 99, vocabulary_size)


def empty_rows(automata, states, remaining, vocabulary_size, sound=masks.order_mask):
    allowed = sound(automata, states, remaining, vocabulary_size)
    allowed[torch.from_numpy(remaining == 3)] = False
    return allowed


def neighbours_state(automata, states, events, sound=masks.next_states):
    return np.roll(sound(automata, states, events), 1)


def equal_beams(sound=Lanes.opening):
    def opening(prefixes, automata, setting, max_new, context_length):
        many = replace(setting, kind="sampled") if setting.kind == "beam" else setting
        return sound(prefixes, automata, many, max_new, context_length)

    return opening


FAULTS = {
    "padding behind the end": (policy_runs, "generate", lambda: after_end(0), GREEDY, "padding emitted"),
    "an event behind the end": (policy_runs, "generate", lambda: after_end(ASSIGNED), GREEDY, "events after the end"),
    "capped told as ended": (
        policy_runs,
        "generate",
        lambda: each(lambda one: replace(one, stop="end")),
        replace(GREEDY, order_mask=False),
        "mislabelled stops",
    ),
    "forced told as chosen": (
        policy_runs,
        "generate",
        lambda: each(lambda one: replace(one, forced=False, chosen_end=one.stop == "end")),
        BEAM,
        "mislabelled stops",
    ),
    "a smaller cap": (policy_runs, "generate", lambda: capped_at(4), GREEDY, "wrong effective cap"),
    "a smaller cap, without the mask": (
        policy_runs,
        "generate",
        lambda: capped_at(4),
        replace(GREEDY, order_mask=False),
        "wrong effective cap",
    ),
    "top-p without the crossing event": (filters, "keep_top_p", lambda: without_crossing, SAMPLED, "filter errors"),
    "top-k one too many": (
        filters,
        "keep_top_k",
        lambda sound=filters.keep_top_k: lambda scores, count: sound(scores, count + 1),
        SAMPLED,
        "top-k 1 differs from greedy",
    ),
    "equal beams": (
        policy_runs,
        "generate",
        lambda: wrapped(lambda hypotheses, row: hypotheses[:1] * len(hypotheses)),
        BEAM,
        "repeated hypotheses",
    ),
    "beams that start as copies": (Lanes, "opening", equal_beams, BEAM, "repeated hypotheses"),
    "states of the neighbour": (masks, "next_states", lambda: neighbours_state, BEAM, "invalid sequences"),
    "one bad cell": (masks, "order_mask", lambda: bad_cell, GREEDY, "invalid sequences"),
    "an empty mask": (masks, "order_mask", lambda: empty_rows, GREEDY, "mislabelled stops"),
    "the end not forced": (masks, "order_mask", lambda: no_budget, GREEDY, "capped sequences"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_of_the_loop_is_seen_by_its_measurement(monkeypatch, fault):
    place, name, make, setting, check = FAULTS[fault]
    decoder = {"seed": 1} | ({"logits": straight_to_assigned} if fault == "one bad cell" else {})
    sound, _ = measured(subject_of(settings=[setting], **decoder))
    monkeypatch.setattr(place, name, make())
    broken, _ = measured(subject_of(settings=[setting], **decoder))
    assert sound[f"{setting.name}: {check}"].value == 0
    assert broken[f"{setting.name}: {check}"].value > 0


def straight_to_assigned(row):
    return [0.0, 0.0, 1.0, 5.0, 4.0, 0.0, 0.0, 0.0] if CLOSED in row else [0.0, 0.0, 1.0, 0.0, 5.0, 2.0, 0.0, 0.0]


def test_a_length_penalty_over_the_whole_row_is_seen_by_the_ranking(monkeypatch):
    # One event at -1.0, or three at -1.8 in all: by new events the longer hypothesis is the better one.
    def logits(row):
        return [-30.0, -30.0, 1.0, -30.0, -30.0, -30.0, -30.0, 0.9 if len(row) < 4 else -30.0]

    subject = subject_of(settings=[BEAM], logits=logits)
    assert measured(subject)[0]["beam: beam score error"].value < 1e-3
    sound = generated.normalised
    monkeypatch.setattr(generated, "normalised", lambda score, new, setting: sound(score, new + 9, setting))
    assert measured(subject)[0]["beam: beam score error"].value > 1e-3


class Stuck(ToyDecoder):
    """Keeps the right rows of its cache, in the order in which they were."""

    def reorder(self, cache, parents):
        return super().reorder(cache, parents.sort().values)


class Company(ToyDecoder):
    """Lets a row's logits depend on how many rows stand beside it."""

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        logits[:, 5] += 9.0 * (len(events) < 3)
        return logits, cache


class Rounding(ToyDecoder):
    """Two events tie but for rounding, and in float32 rounding depends on the batch."""

    def next_logits(self, row):
        return [-9.0, -9.0, -1.0 + 3 * (len(row) > 6), 0.0, 0.0, 1.0, 1.0 + 1e-9, 0.0]

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        if self.dtype == torch.float32 and len(events) < 3:
            logits[:, 6] += 1e-6
        return logits, cache


@pytest.mark.parametrize(("decoder", "right"), [(ToyDecoder, True), (Stuck, False)])
def test_beam_scores_tell_whether_the_cache_was_reordered(decoder, right):
    found, _ = measured(subject_of(decoder, [BEAM], seed=2))
    assert (found["beam: beam score error"].value < 1e-3) == right


@pytest.mark.parametrize("setting", [GREEDY, SAMPLED, BEAM])
@pytest.mark.parametrize(("decoder", "right"), [(ToyDecoder, True), (Company, False)])
def test_results_that_depend_on_the_batch_are_seen(decoder, right, setting):
    found, _ = measured(subject_of(decoder, [setting], seed=2))
    assert (found[f"{setting.name}: batch dependent sequences"].value == 0) == right


def test_ties_that_rounding_decides_are_listed_and_not_counted():
    setting = replace(GREEDY, order_mask=False)
    found, findings = measured(subject_of(Rounding, [setting]))
    assert found["greedy: batch dependent sequences"].value == 0
    assert any("by rounding alone" in note for note in findings.notes)


def test_a_decoder_that_emits_padding_is_told_from_one_that_breaks_the_order():
    padding = subject_of(settings=[replace(GREEDY, order_mask=False)], logits=lambda row: [9.0, *[0.0] * 7])
    found, _ = measured(padding)
    assert found["greedy: padding emitted"].value > 0
    assert found["greedy: invalid sequences"].value == 0
    assert found["greedy: capped sequences"].value > 0
    breaking = subject_of(
        settings=[replace(GREEDY, order_mask=False)],
        logits=lambda row: [0.0, 0.0, 9.0 * (row[-1] == ASSIGNED), 5.0 * (row[-1] == CLOSED), 4.0, 0.0, 0.0, 0.0],
    )
    found, findings = measured(breaking)
    assert found["greedy: invalid sequences"].value > 0
    assert found["greedy: padding emitted"].value == 0
    table = findings.tables["sequences"].dropna(subset=["first_wrong"])
    worst = table[(table.setting == "greedy") & (table.prefix == f"1-{OPENED}")].iloc[0]
    assert worst.rules == "not succession(closed, assigned)"
    ids = [int(event) for event in worst.events.split("-")]
    assert ids[worst.first_wrong - 1 : worst.first_wrong + 1] == [CLOSED, ASSIGNED]


def test_prefixes_that_are_already_wrong_are_counted_apart():
    wrong = (*SESSIONS, Session("wrong", ("opened", "closed", "assigned", "repaired")))
    _, findings = measured(subject_of(settings=[GREEDY], sessions=wrong))
    assert any("already break the order" in note for note in findings.notes)
    assert not findings.tables["sequences"].prefix.str.startswith(f"1-{OPENED}-{CLOSED}-{ASSIGNED}").any()


def test_sampled_ends_that_only_the_budget_brings_are_seen():
    found, _ = measured(subject_of(settings=[SAMPLED], logits=lambda row: [-50.0, -50.0, -50.0, *[0.0] * 5]))
    assert found["sampled: share not ended by choice"].value > 0.99


def test_rare_ends_are_counted_over_so_many_sequences_that_chance_does_not_call_them_none():
    """One end in forty events: most seeds draw few sequences without any, none draws five hundred without."""
    rare = [-50.0, -50.0, -math.log(40 / 5), *[0.0] * 5]
    whole = replace(SAMPLED, top_p=1.0, order_mask=True)
    shares = []
    for seed in range(12):
        found, findings = measured(subject_of(settings=[replace(whole, seed=seed)], logits=lambda row: rare))
        seen = found["sampled: share not ended by choice"]
        first = findings.tables["sequences"].query("setting == 'sampled'")
        assert seen.count > len(first) or ((first.stop == "end") & ~first.forced).sum() >= 8
        shares.append(seen.value)
    assert max(shares) <= 0.99
    assert max(shares) - min(shares) < 0.2


def test_ends_that_never_come_are_as_few_however_often_they_are_drawn():
    found, _ = measured(subject_of(settings=[SAMPLED], logits=lambda row: [-50.0, -50.0, -50.0, *[0.0] * 5]))
    seen = found["sampled: share not ended by choice"]
    assert seen.value > 0.99
    assert seen.count >= 512


def test_the_context_boundary_is_told_apart_from_the_cap():
    _, findings = measured(subject_of(settings=[GREEDY]))
    table = findings.tables["sequences"]
    full = table[table.order_mask & (table.stop == "context full")]
    assert set(full.prefix.str.count("-")) == {11}
    assert (full.events == full.prefix).all()


def test_the_rates_hold_the_counts_and_their_bounds():
    _, findings = measured(subject_of())
    for _, row in findings.tables["rates"].iterrows():
        assert row.invalid_rate == row.invalid_sequences / row.sequences
        assert row.invalid_rate < row.invalid_upper <= 1
        assert row.event_rate < row.event_upper <= 1
        assert 0 <= row.similarity <= 1
        assert 0 <= row.accuracy <= 1


def test_an_unused_import_of_the_mask_would_hide_faults():
    # The faults above replace functions in `masks`; the loop must look them up there.
    assert lanes.masks is masks
