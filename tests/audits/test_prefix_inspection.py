"""The inspector: both paths side by side, legal and illegal told apart, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.audits.inspection import inspect
from auditlib.errors import ContextExceededError, DecoderError
from auditlib.events.order import EventOrder, OrderRule
from tests.planted import StaleKey
from tests.subjects import MAP, gpt

OPENED, CLOSED, ASSIGNED = (MAP.events[name] for name in ("opened", "closed", "assigned"))
ORDER = EventOrder("1", (OrderRule("not succession", "closed", "assigned"), OrderRule("init", "opened")))
AUTOMATON = ORDER.compile(MAP).automaton({})


def test_steps_and_next_events_agree_with_the_decoder():
    decoder, ids = gpt(), (MAP.start, OPENED, ASSIGNED, CLOSED)
    found = inspect(decoder, MAP, AUTOMATON, ids)
    full = decoder.full(torch.tensor([ids]), torch.ones(1, 4, dtype=torch.bool))[0].double().softmax(-1)
    steps = found.steps
    assert steps["event"].tolist() == ["<start>", "opened", "assigned", "closed"]
    assert steps["step"].tolist() == [1, 2, 3, 4]
    assert math.isnan(steps.loc[0, "full_probability"])
    for place in (1, 2, 3):
        assert steps.loc[place, "full_probability"] == pytest.approx(float(full[place - 1, ids[place]]))
    assert (steps["gap"] < 1e-5).all()
    after = found.next_events.set_index("id")
    assert after["full"].sum() == pytest.approx(1)
    assert after.loc[CLOSED, "full"] == pytest.approx(float(full[-1, CLOSED]))
    assert after["full"].is_monotonic_decreasing


def test_what_the_order_forbids_is_marked_with_the_rules_that_forbid_it():
    found = inspect(gpt(), MAP, AUTOMATON, (MAP.start, OPENED, CLOSED)).next_events.set_index("event")
    assert not found.loc["assigned", "legal"]
    assert found.loc["assigned", "rules"] == "not succession(closed, assigned)"
    assert found.loc["repaired", "legal"]
    assert found.loc["<end>", "legal"]
    assert not found.loc["<padding>", "legal"]
    assert not found.loc["<start>", "legal"]


def test_after_a_wrong_event_nothing_is_legal_any_more():
    found = inspect(gpt(), MAP, AUTOMATON, (MAP.start, ASSIGNED, OPENED))
    assert found.steps["legal"].tolist() == [True, False, False]
    assert not found.next_events["legal"].any()


def test_a_faulty_cache_shows_a_gap_where_it_begins():
    steps = inspect(StaleKey(), MAP, AUTOMATON, (MAP.start, OPENED, ASSIGNED, CLOSED)).steps
    assert steps["gap"].tolist()[:2] == pytest.approx([0, 0], abs=1e-5)
    assert steps.loc[2, "gap"] > 1e-2


def test_ids_of_the_vocabulary_that_mean_nothing_are_shown_and_are_not_legal():
    decoder = gpt(vocabulary_size=MAP.size + 2)
    found = inspect(decoder, MAP, AUTOMATON, (MAP.start, OPENED)).next_events.set_index("event")
    assert not found.loc[f"<unused id {MAP.size}>", "legal"]
    assert len(found) == MAP.size + 2


def test_a_prefix_begins_with_start_and_fits_the_context():
    for ids in ((), (OPENED,)):
        with pytest.raises(DecoderError, match="start token"):
            inspect(gpt(), MAP, AUTOMATON, ids)
    with pytest.raises(ContextExceededError):
        inspect(gpt(context_length=3), MAP, AUTOMATON, (MAP.start, OPENED, OPENED, OPENED))
