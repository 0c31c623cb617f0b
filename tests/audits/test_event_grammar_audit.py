"""The mask is proved state by state: a single bad cell shows, wherever it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from auditlib.audits.base import Subject
from auditlib.audits.event_grammar import EVENT_GRAMMAR
from auditlib.decoding import masks
from auditlib.decoding.lanes import Lanes
from auditlib.decoding.policies import DEFAULT_SETTINGS
from auditlib.events.event_map import EventMap
from auditlib.events.order import Condition, EventOrder, OrderRule, Reopening
from tests.doubles import ToyDecoder

MAP = EventMap.build(["assigned", "closed", "opened", "reopened", "repaired"])
ASSIGNED, CLOSED, OPENED, REOPENED, REPAIRED = MAP.encode(["assigned", "closed", "opened", "reopened", "repaired"])
RULES = (
    OrderRule("init", "opened"),
    OrderRule("not succession", "closed", "assigned"),
    OrderRule("response", "opened", "closed"),
    OrderRule("absence", "repaired", count=3, when=Condition("contract", ("basic",))),
)
GOLD = Reopening("reopened", allowed=True, when=Condition("contract", ("gold",)))
CHECKS = ("allowed illegal cells", "states with no event", "ends out of reach", "end not forced")


def subject_of(rules=RULES, reopening=GOLD, max_new=6, context_length=12, extra_ids=2):
    decoder = ToyDecoder(MAP.size + extra_ids, context_length)
    order = EventOrder("7", rules, reopening).compile(MAP)
    return Subject("toy", "sha256:0", decoder, lambda _: decoder, MAP, order, (), None, DEFAULT_SETTINGS, max_new)


def measured(subject):
    findings = EVENT_GRAMMAR.measure(subject)
    return {one.name: one for one in findings.measurements}, findings


def test_a_sound_mask_is_proved_in_every_state_under_every_flag_and_budget():
    subject = subject_of()
    found, findings = measured(subject)
    assert {found[check].value for check in CHECKS} == {0}
    assert found["legal cells withheld"].value == 0
    automata = subject.order.automata()
    assert len(automata) == 3  # a contract is gold, basic or neither
    # Every state and the state -1, under each budget of the cap, and under each smaller one of the context.
    assert found["allowed illegal cells"].count == sum((one.states + 1) * (6 + 5) for one in automata.values())
    assert findings.notes[0].startswith("PROVED")
    assert any("NOT CHECKED" in note for note in findings.notes)
    assert set(findings.tables["flags"].verdict) == {"PROVED"}
    assert "contract" in "".join(findings.tables["flags"]["flags"])


def test_it_covers_as_many_sessions_as_counting_one_by_one_finds():
    subject = subject_of(max_new=4)
    found, _ = measured(subject)

    def sessions(automaton, ids, room):
        ends = room > 0 and automaton.first_wrong(ids, ended=True) is None
        longer = (sessions(automaton, (*ids, event), room - 1) for event in MAP.domain) if room > 1 else ()
        return ends + sum(longer)

    counted = sum(sessions(automaton, (), 4) for automaton in subject.order.automata().values())
    assert found["valid sequences covered (log10)"].value == pytest.approx(math.log10(counted))


def planted(change):
    sound = masks.order_mask

    def faulty(automata, states, remaining, vocabulary_size):
        allowed = sound(automata, states, remaining, vocabulary_size).numpy()
        change(allowed, automata, states, remaining)
        return torch.from_numpy(allowed)

    return faulty


def closed_states(automata, states):
    return np.array([automata[0].state_after((OPENED, CLOSED)) == state for state in states])


def allow_assigned(allowed, automata, states, remaining):
    allowed[closed_states(automata, states) & (remaining == 4), ASSIGNED] = True


def allow_padding(allowed, automata, states, remaining):
    allowed[states == 0, MAP.padding] = True


def allow_beyond_the_map(allowed, automata, states, remaining):
    allowed[states == 0, MAP.size + 1] = True


def allow_when_lost(allowed, automata, states, remaining):
    allowed[states == -1, MAP.end] = True


def forbid_everything(allowed, automata, states, remaining):
    allowed[(states == 1) & (remaining == 5)] = False


def one_more_than_left(allowed, automata, states, remaining):
    rows = states >= 0
    later = automata[0].allowed(states[rows], remaining[rows] + 1)
    allowed[rows, : MAP.size] = later


def end_beside_others(allowed, automata, states, remaining):
    allowed[closed_states(automata, states) & (remaining == 1), REPAIRED] = True


def forbid_one(allowed, automata, states, remaining):
    allowed[states == 0, OPENED] &= remaining[states == 0] > 4


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (allow_assigned, "allowed illegal cells"),
        (allow_padding, "allowed illegal cells"),
        (allow_beyond_the_map, "allowed illegal cells"),
        (allow_when_lost, "allowed illegal cells"),
        (forbid_everything, "states with no event"),
        (one_more_than_left, "ends out of reach"),
        (end_beside_others, "end not forced"),
        (forbid_one, "legal cells withheld"),
    ],
)
def test_one_bad_cell_is_found(monkeypatch, change, check):
    monkeypatch.setattr(masks, "order_mask", planted(change))
    found, findings = measured(subject_of())
    assert found[check].value > 0
    if check != "legal cells withheld":
        assert findings.notes[0].startswith("NOT PROVED")
        assert "NOT PROVED" in set(findings.tables["flags"].verdict)


@pytest.mark.parametrize("too_many", [1, 2])
def test_a_loop_that_miscounts_its_budget_is_found(monkeypatch, too_many):
    sound = Lanes.left
    monkeypatch.setattr(Lanes, "left", lambda lanes: sound(lanes) + too_many)
    found, _ = measured(subject_of())
    assert found["end not forced"].value > 0


def test_a_loop_that_forgets_the_context_is_found(monkeypatch):
    monkeypatch.setattr(Lanes, "left", lambda lanes: np.full(len(lanes), lanes.events.shape[1] - lanes.steps))
    found, _ = measured(subject_of())
    assert found["ends out of reach"].value > 0


def test_no_rules_and_a_tiny_context_are_fine():
    found, findings = measured(subject_of((), None, max_new=50, context_length=2))
    assert {found[check].value for check in CHECKS} == {0}
    assert found["valid sequences covered (log10)"].value == 0  # only the end fits
    assert "budgets 1 to 1" in findings.notes[0]


def test_a_huge_cap_is_sampled_and_said_so():
    found, findings = measured(subject_of(RULES[:1], None, max_new=5000, context_length=4000))
    assert {found[check].value for check in CHECKS} == {0}
    assert any("budgets 1001 to 3975" in note for note in findings.notes)


def test_nothing_is_proved_where_there_is_no_budget():
    found, findings = measured(replace(subject_of(), decoder=ToyDecoder(MAP.size, 1)))
    assert found["allowed illegal cells"].count == 0
    assert findings.notes[0].startswith("NOT PROVED")
