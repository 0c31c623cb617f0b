"""Mined rules: proposed from the training side, held against the held-out side, each rule by itself."""

from __future__ import annotations

import streamlit as st

from auditlib.events.candidates import Proposal
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule
from auditlib.sessions.session import Session
from auditlib.web import rule_facts
from tests.web.world import NAMES


def rule(template, first, then=None, count=None):
    return Proposal(OrderRule(template, first, then, count), 10, 10)


def test_what_one_rule_forbids_does_not_hide_what_another_does():
    names = EventMap.build(["a", "b", "c"])
    rules = [rule("init", "a"), rule("not succession", "b", "c")]
    sessions = [
        Session("1", ("a", "c")),
        Session("2", ("b", "c")),
        Session("3", ("a", "b", "c")),
        Session("4", ("b", "c")),
    ]
    found = rule_facts._broken(rules, names, sessions)
    assert found == {
        "init(a)": [("2", 1, "b", "b → c"), ("4", 1, "b", "b → c")],
        "not succession(b, c)": [("2", 2, "c", "b → c"), ("4", 2, "c", "b → c"), ("3", 3, "c", "a → b → c")],
    }


def test_rules_are_mined_from_training_and_counted_on_the_held_out_side(world):
    st.cache_resource.clear()
    found = rule_facts.mined(world.store, world.snapshot, 0.99)
    names = {one.rule.name for one in found.proposals}
    assert f"init({NAMES[0]})" in names
    assert set(found.counts) == names
    assert found.training + found.held_out == 40
    assert all(found.counts[name] == len(found.broken[name]) for name in names)
    order = rule_facts.order_of(found.proposals, "7")
    assert EventOrder.from_json(order.to_json()) == order
    assert rule_facts.compiles(world.store, order) == ""


def test_rules_that_clash_are_told(world):
    clash = rule_facts.order_of([rule("init", "opened"), rule("absence", "opened", count=1)], "1")
    assert rule_facts.compiles(world.store, clash)
