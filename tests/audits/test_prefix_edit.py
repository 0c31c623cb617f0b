"""One event edited: what is compared stands at the same event, and what becomes illegal is named."""

from __future__ import annotations

import pytest
import torch

from auditlib.audits.inspection_edit import Edit, downstream
from auditlib.errors import InputError
from auditlib.events.order import EventOrder, OrderRule
from tests.subjects import MAP, gpt

OPENED, CLOSED, ASSIGNED = (MAP.events[name] for name in ("opened", "closed", "assigned"))
ORDER = EventOrder("1", (OrderRule("not succession", "closed", "assigned"), OrderRule("init", "opened")))
AUTOMATON = ORDER.compile(MAP).automaton({})
IDS = (MAP.start, OPENED, ASSIGNED, ASSIGNED, CLOSED)


@pytest.mark.parametrize(
    ("edit", "wanted"),
    [
        (Edit("replace", 2, CLOSED), (MAP.start, OPENED, CLOSED, ASSIGNED, CLOSED)),
        (Edit("delete", 2), (MAP.start, OPENED, ASSIGNED, CLOSED)),
        (Edit("insert", 1, CLOSED), (MAP.start, CLOSED, OPENED, ASSIGNED, ASSIGNED, CLOSED)),
        (Edit("insert", 5, CLOSED), (*IDS, CLOSED)),
    ],
)
def test_an_edit_changes_one_event_and_leaves_the_start(edit, wanted):
    assert edit.of(IDS) == wanted


@pytest.mark.parametrize(
    "edit",
    [
        Edit("replace", 0, OPENED),
        Edit("delete", 5),
        Edit("insert", 6, OPENED),
        Edit("delete", 1, OPENED),
        Edit("replace", 1),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(edit):
    with pytest.raises(InputError):
        edit.of(IDS)


def chances(decoder, ids):
    return decoder.full(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0].double().softmax(-1)


@pytest.mark.parametrize("edit", [Edit("replace", 1, CLOSED), Edit("delete", 1), Edit("insert", 1, ASSIGNED)])
def test_each_later_event_is_compared_with_itself_wherever_the_edit_moved_it(edit):
    decoder = gpt()
    found = downstream(decoder, MAP, AUTOMATON, IDS, edit)
    before, after = chances(decoder, IDS), chances(decoder, found.ids)
    first = 1 if edit.kind == "insert" else 2
    assert found.steps["number"].tolist() == list(range(first, len(IDS)))
    for row in found.steps.to_dict("records"):
        place, there = row["number"], row["number"] + edit.shift
        assert IDS[place] == found.ids[there]
        assert row["event"] == MAP.name(IDS[place])
        assert row["before"] == pytest.approx(float(before[place - 1, IDS[place]]))
        assert row["after"] == pytest.approx(float(after[there - 1, IDS[place]]))
        assert row["moved"] == pytest.approx(float((before[place] - after[there]).abs().sum() / 2))
        assert 0 < row["moved"] <= 1
    ends = found.next_events.set_index("id")
    assert ends.loc[CLOSED, "after"] == pytest.approx(float(after[-1, CLOSED]))
    apart = (found.next_events["after"] - found.next_events["before"]).abs()
    assert apart.is_monotonic_decreasing


def test_the_order_that_an_edit_breaks_is_named_with_its_rule_and_state():
    found = downstream(gpt(), MAP, AUTOMATON, IDS, Edit("replace", 2, CLOSED))
    assert found.wrong == (3, "assigned", "not succession(closed, assigned)")
    steps = found.steps.set_index("number")
    assert steps["legal_before"].all()
    assert not steps["legal_after"].any()
    assert steps.loc[3, "rules"] == "not succession(closed, assigned)"
    assert steps.loc[3, "state"] == -1
    assert steps.loc[4, "rules"] == "nothing may follow a wrong event"


def test_an_edit_that_keeps_the_order_says_so():
    found = downstream(gpt(), MAP, AUTOMATON, IDS, Edit("delete", 3))
    assert found.wrong is None
    assert found.steps["legal_after"].all()
    assert (found.steps["state"] >= 0).all()


def test_replacing_an_event_by_itself_changes_nothing():
    found = downstream(gpt(), MAP, AUTOMATON, IDS, Edit("replace", 2, ASSIGNED))
    assert found.steps["moved"].max() == 0
