from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import OrderError
from auditlib.events.event_map import EventMap
from auditlib.events.order import MOST_CONDITIONS, Condition, EventOrder, OrderRule, Reopening
from auditlib.events.rules import MOST_TIMES
from auditlib.events.templates import TEMPLATES

MAP = EventMap.build(["opened", "assigned", "closed", "reopened"])
GOLD = Condition("contract", ("gold", "platinum"))
NO_RETURN = OrderRule("not succession", "closed", "assigned")
CONTRACT = {
    "format": 1,
    "version": "2",
    "rules": [{"template": "not succession", "first": "closed", "then": "assigned"}],
    "reopening": {"event": "reopened", "allowed": True},
}


def changed(**members):
    return json.dumps({**CONTRACT, **members})


def with_rule(**members):
    return changed(rules=[members])


def test_reads_the_json_of_the_contract():
    order = EventOrder.from_json(json.dumps(CONTRACT))
    assert order == EventOrder("2", (NO_RETURN,), Reopening("reopened", allowed=True))
    assert EventOrder.from_json(changed(reopening=None)).reopening is None
    assert EventOrder.from_json('{"format": 1, "version": "1", "rules": []}') == EventOrder("1")


def test_reads_conditions_on_rules_and_on_reopening():
    when = {"attribute": "contract", "in": ["gold", "platinum"]}
    order = EventOrder.from_json(
        changed(
            rules=[{"template": "init", "event": "opened", "when": when}],
            reopening={"event": "reopened", "allowed": True, "when": when},
        )
    )
    assert order == EventOrder("2", (OrderRule("init", "opened", when=GOLD),), Reopening("reopened", True, GOLD))


def test_a_template_over_one_event_takes_it_as_event_or_as_first():
    for key in ("event", "first"):
        order = EventOrder.from_json(with_rule(template="existence", count=2, **{key: "opened"}))
        assert order.rules == (OrderRule("existence", "opened", count=2),)


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
conditions = st.builds(Condition, names, st.lists(names, min_size=1, max_size=3, unique=True).map(tuple))


@st.composite
def rules(draw):
    template = draw(st.sampled_from(sorted(TEMPLATES)))
    shape = TEMPLATES[template]
    first, then = draw(st.lists(names, min_size=2, max_size=2, unique=True))
    count = draw(st.none() | st.integers(1, 9)) if shape.counts else None
    return OrderRule(template, first, then if shape.arity == 2 else None, count, draw(st.none() | conditions))


orders = st.builds(
    EventOrder,
    names,
    st.lists(rules(), max_size=4, unique_by=lambda rule: rule.name).map(tuple),
    st.none() | st.builds(Reopening, names, st.just(True), st.none() | conditions),
)


@settings(deadline=None)
@given(orders)
def test_json_round_trips_exactly_whatever_the_rules(order):
    again = EventOrder.from_json(order.to_json())
    assert again == order
    assert again.to_json() == order.to_json()
    assert again.digest == order.digest


@settings(deadline=None)
@given(rules(), rules())
def test_different_rules_have_different_names_however_hostile_the_events(one, other):
    assert (one.name == other.name) == (one == other)
    assert one.name.isprintable()
    assert one.meaning.isprintable()


def test_names_say_the_rule_in_the_words_of_declare():
    assert NO_RETURN.name == "not succession(closed, assigned)"
    assert OrderRule("existence", "opened").name == "existence(opened)"
    assert OrderRule("absence", "opened", count=3).name == "absence(opened, 3)"
    assert OrderRule("exactly", "opened").name == "exactly(opened, 1)"
    named = OrderRule("init", "opened", when=GOLD).name
    assert named == "init(opened) when contract in [gold, platinum]"
    assert OrderRule("init", "a, b").name == 'init("a, b")'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "line 1 column 1"),
        (changed(format=2), "at format: is 2"),
        (changed(rules={}), "at rules: is an object; write a list"),
        (changed(rules=["init"]), "at rules[0]: is a string; write an object"),
        (with_rule(first="opened"), "at rules[0]: lacks 'template'"),
        (with_rule(template="init"), "at rules[0]: needs 'first' and 'then', or only 'event'"),
        (with_rule(template="init", event="a", first="b"), "at rules[0]: needs 'first' and 'then'"),
        (with_rule(template="response", event="a", then="b"), "at rules[0]: needs 'first' and 'then'"),
        (with_rule(template="succesion", first="a", then="b"), "did you mean 'succession'?"),
        (with_rule(template="Not_Succession", first="a", then="b"), "did you mean 'not succession'?"),
        (with_rule(template="zzz", event="a"), "there is no template 'zzz' (known are init, end,"),
        (with_rule(template="init", first="a", then="b"), "init takes one event"),
        (with_rule(template="response", first="a"), "response takes two events"),
        (with_rule(template="response", first="a", then="a"), "needs two different events, not 'a' twice"),
        (with_rule(template="init", event="a", count=1), "init takes no count"),
        (with_rule(template="existence", event="a", count=0), "at rules[0].count: is 0"),
        (with_rule(template="existence", event="a", count=True), "at rules[0].count: is true or false"),
        (with_rule(template="existence", event="a", count=10**9), f"counts from 1 to {MOST_TIMES}"),
        (with_rule(template="init", event=""), "at rules[0].event: is an empty string"),
        (with_rule(template="init", event=3), "at rules[0].event: is the number 3"),
        (with_rule(template="init", event="a", note="x"), "has 'note', which means nothing here"),
        (with_rule(template="init", event="a", when={"attribute": "c"}), "at rules[0].when: lacks 'in'"),
        (with_rule(template="init", event="a", when={"attribute": "c", "in": "gold"}), "at rules[0].when.in: is a str"),
        (with_rule(template="init", event="a", when={"attribute": "c", "in": []}), "needs one or more"),
        (with_rule(template="init", event="a", when={"attribute": "c", "in": ["x", "x"]}), "different values"),
        (changed(rules=[{"template": "init", "event": "a"}] * 2), "the same rule stands twice: init(a)"),
        (changed(reopening={"event": "a"}), "at reopening: lacks 'allowed'"),
        (changed(reopening={"event": "a", "allowed": 1}), "at reopening.allowed: is the number 1"),
        (
            changed(reopening={"event": "a", "allowed": False, "when": {"attribute": "c", "in": ["x"]}}),
            "at reopening: a reopening that is not allowed takes no condition",
        ),
    ],
)
def test_refuses_what_makes_no_sense_with_file_place_and_reason(text, says):
    with pytest.raises(OrderError) as refusal:
        EventOrder.from_json(text, "rules/o.json")
    assert str(refusal.value).startswith("rules/o.json")
    assert says in str(refusal.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: OrderRule("init", ""),
        lambda: OrderRule("init", None),
        lambda: OrderRule("existence", "a", count="2"),
        lambda: OrderRule("existence", "a", count=True),
        lambda: Condition("contract", "gold"),
        lambda: Condition("contract", ()),
        lambda: Condition("", ("gold",)),
        lambda: Reopening("", allowed=True),
        lambda: EventOrder(""),
    ],
)
def test_refuses_the_same_when_made_in_code(make):
    with pytest.raises(OrderError):
        make()


def test_reads_a_file(tmp_path):
    path = tmp_path / "order.json"
    path.write_text(json.dumps(CONTRACT), encoding="utf-8")
    assert EventOrder.read(path).rules == (NO_RETURN,)
    with pytest.raises(OrderError, match=r"none\.json: cannot be read"):
        EventOrder.read(tmp_path / "none.json")


def test_lists_all_events_that_the_map_lacks():
    order = EventOrder(
        "9", (OrderRule("init", "born"), OrderRule("response", "opened", "died")), Reopening("back", True)
    )
    with pytest.raises(
        OrderError, match="event order '9' names events that event map '1' lacks: 'back', 'born', 'died'"
    ):
        order.compile(MAP)


def test_an_unknown_id_does_not_hide_a_misspelt_event():
    with pytest.raises(OrderError, match="'closd'"):
        EventOrder("1", (OrderRule("end", "closd"),)).compile(EventMap.build(["closed"], unknown=True))


def test_no_rules_permit_every_order_and_the_empty_session():
    automaton = EventOrder("1").compile(MAP).automaton({})
    assert automaton.states == 1
    assert automaton.legal[0, [MAP.end, *MAP.domain]].all()
    assert automaton.first_wrong(MAP.encode(["closed", "assigned", "closed"]), ended=True) is None
    assert automaton.first_wrong((), ended=True) is None


def closed_then_assigned(order, **attributes):
    automaton = order.compile(MAP).automaton(attributes)
    return automaton.first_wrong(MAP.encode(["closed", "reopened", "assigned"]), ended=True)


def test_a_conditional_rule_is_in_force_only_where_its_condition_holds():
    order = EventOrder("1", (OrderRule("not succession", "closed", "assigned", when=GOLD),))
    assert closed_then_assigned(order) is None
    assert closed_then_assigned(order, contract="silver") is None
    wrong = closed_then_assigned(order, contract="gold")
    assert wrong.rules == ("not succession(closed, assigned) when contract in [gold, platinum]",)


def test_a_conditional_reopening_lifts_only_where_its_condition_holds():
    order = EventOrder("1", (NO_RETURN,), Reopening("reopened", True, GOLD))
    assert closed_then_assigned(order, contract="platinum") is None
    assert closed_then_assigned(order, contract="silver").position == 2
    assert closed_then_assigned(order).rules == (NO_RETURN.name,)


def test_automata_hold_every_combination_that_a_session_can_have_and_no_other():
    silver, open_hours = Condition("contract", ("silver",)), Condition("hours", ("day",))
    gold_or_silver = Condition("contract", ("gold", "silver"))
    rules = (
        OrderRule("existence", "opened", when=gold_or_silver),
        OrderRule("existence", "closed", when=silver),
        OrderRule("init", "opened", when=open_hours),
    )
    order = EventOrder("1", rules, Reopening("reopened", True, silver)).compile(MAP)
    assert order.conditions == (gold_or_silver, silver, open_hours)
    contracts = {(False, False), (True, False), (True, True)}  # silver alone cannot be: it is one of gold or silver
    assert set(order.automata()) == {(*flags, day) for flags in contracts for day in (False, True)}
    for flags, automaton in order.automata().items():
        assert len(automaton.rules) == sum(flags)
    assert order.automaton({"contract": "silver"}) is order.automata()[True, True, False]
    assert order.automaton({}) is order.automata()[False, False, False]


def test_conditions_that_never_hold_together_do_not_clash():
    silver, gold = Condition("contract", ("silver",)), Condition("contract", ("gold",))
    rules = (OrderRule("init", "opened", when=gold), OrderRule("init", "closed", when=silver))
    assert len(EventOrder("1", rules).compile(MAP).automata()) == 3


def test_refuses_more_conditions_than_it_can_compile():
    rules = tuple(
        OrderRule("existence", "opened", count=n + 1, when=Condition(f"attribute {n}", ("x",)))
        for n in range(MOST_CONDITIONS + 1)
    )
    with pytest.raises(OrderError, match="7 different conditions; at most 6"):
        EventOrder("1", rules).compile(MAP)
    assert len(EventOrder("1", rules[:-1]).compile(MAP).automata()) == 64


def test_refuses_rules_that_need_too_many_states_and_names_the_largest():
    event_map = EventMap.build([f"e{n}" for n in range(16)])
    rules = [OrderRule("absence", name, count=2) for name in event_map.events]
    with pytest.raises(OrderError, match=r"16 rules need more than 20000 states; the largest are absence\(e0, 2\)"):
        EventOrder("1", tuple(rules)).compile(event_map)


def test_refuses_a_map_without_events():
    with pytest.raises(OrderError, match="has no events"):
        EventOrder("1").compile(EventMap.build([]))
