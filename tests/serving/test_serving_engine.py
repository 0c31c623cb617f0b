"""Rows that join and leave: an answer never depends on the company, and every cache is checked before it is used."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Setting
from auditlib.errors import DecoderError, RequestRefusedError
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule
from auditlib.serving.engine import Engine, serve_all
from auditlib.serving.request import Encoded, Request, encode
from auditlib.serving.served import Bounds, Served
from tests.doubles import ToyDecoder
from tests.small_gpt import EVENT_MAP, small_gpt

MAP = EventMap.build(["a", "b", "c"])
ORDER = EventOrder("1", (OrderRule("not succession", "b", "a"),), None)
SETTINGS = {
    "greedy": Setting("greedy", "greedy"),
    "sampled": Setting("sampled", "sampled", width=2, seed=3),
    "beam": Setting("beam", "beam", width=3, length_penalty=1.0),
    "unmasked": Setting("unmasked", "greedy", order_mask=False),
}


def toy(setting="greedy", strategy="cached", decoder=None, **bounds) -> Served:
    decoder = decoder or ToyDecoder(MAP.size, 14)
    limits = Bounds(**{"max_prefix_events": 9, "max_new_events": 5, "slots": 4, "residents": 3, **bounds})
    return Served("sha256:toy", decoder, MAP, ORDER.compile(MAP), SETTINGS[setting], strategy, limits, 1e-6)


def gpt(setting="greedy", strategy="cached", **bounds) -> Served:
    order = EventOrder("1", (OrderRule("not succession", "closed", "assigned"),), None).compile(EVENT_MAP)
    limits = Bounds(**{"max_prefix_events": 12, "max_new_events": 7, "slots": 5, "residents": 4, **bounds})
    return Served("sha256:gpt", small_gpt(seed=2), EVENT_MAP, order, SETTINGS[setting], strategy, limits, 1e-4)


def requests_for(served: Served, count=40, seed=0) -> list[Encoded]:
    """Legal prefixes of many lengths, with several requests a session that continue each other."""
    chance = random.Random(seed)
    names = list(served.event_map.events)
    found = []
    while len(found) < count:
        events: tuple[str, ...] = ()
        session = f"s{len(found)}"
        for _ in range(chance.randint(1, 4)):
            longer = (*events, *chance.choices(names, k=chance.randint(0, 4)))
            ids = served.event_map.encode(longer)
            if len(longer) > served.bounds.max_prefix_events or served.order.automaton({}).state_after(ids) < 0:
                break
            events = longer
            number = chance.randint(1, served.bounds.max_new_events)
            found.append(encode(Request(session, events, {}, number, f"r{len(found)}"), served))
    return found[:count]


def alone(served: Served, one: Encoded):
    return generate(
        served.decoder,
        [one.prefix],
        served.setting,
        event_map=served.event_map,
        automata=[served.order.automaton(one.request.attributes)],
        max_new=one.max_new,
        cached=False,
    )[0][0]


def drain(engine: Engine, requests, size=lambda free: free):
    """Answers by request id; `size` says how many may join when so many slots are free."""
    waiting, got = list(requests), {}
    while waiting or engine.busy:
        joining = waiting[: size(engine.free)]
        waiting = waiting[len(joining) :]
        engine.admit(joining)
        got |= {one.encoded.request.request_id: one for one in engine.step()}
    return got


@pytest.mark.parametrize("strategy", ["cached", "preallocated slots", "full prefix"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_answer_is_the_one_that_its_prefix_gets_alone(setting, strategy):
    served = gpt(setting, strategy)
    requests = requests_for(served)
    answers = serve_all(served, requests)
    assert set(answers) == {one.request.request_id for one in requests}
    for one in requests:
        best, expected = answers[one.request.request_id].best, alone(served, one)
        assert (best.events, best.stop, best.forced) == (expected.events, expected.stop, expected.forced)
        assert best.score == pytest.approx(expected.score, abs=1e-4)


def test_requests_that_arrive_at_any_step_get_the_same_answers():
    served = toy()
    requests = requests_for(served, 60)
    expected = {one.request.request_id: alone(served, one).events for one in requests}
    chance = random.Random(5)
    got = drain(Engine(served), requests, lambda free: min(free, chance.randint(0, 3)))
    got = {name: one.best.events for name, one in got.items()}
    assert got == expected


def test_a_session_that_comes_again_is_read_from_where_it_was():
    served = toy(slots=1)
    engine = Engine(served)
    for events in (("c", "c"), ("c", "c", "a"), ("c", "c", "a")):
        one = encode(Request("s", events), served)
        engine.admit([one])
        done = []
        while not done:
            done = engine.step()
        assert done[0].best.events == alone(served, one).events
    assert (engine.uses.joined, engine.uses.continued) == (3, 2)
    assert (engine.uses.events_read, engine.uses.events_spared) == (3, 5)


def test_no_other_session_starts_from_the_prefix_of_one():
    served = toy(slots=1)
    engine = Engine(served)
    for session in ("one", "other"):
        engine.admit([encode(Request(session, ("c", "c")), served)])
        while not engine.step():
            pass
    assert engine.uses.continued == 0


def test_only_as_many_prefixes_are_kept_as_the_bounds_say():
    served = toy(slots=2, residents=2)
    engine = Engine(served)
    for number in range(7):
        engine.admit([encode(Request(f"s{number}", ("c",) * (number % 4)), served)])
        while not engine.step():
            pass
    assert len(engine._path._kept) == 2
    assert {one.session for one in engine._path._kept} == {"s5", "s6"}


class Forgetful(ToyDecoder):
    """Loses a row's newest event from the third append on, and says so through what it stores."""

    appends = 0

    def extend(self, events, valid, cache):
        logits, cache = super().extend(events, valid, cache)
        self.appends += 1
        if self.appends >= 3:
            cache.rows = tuple(row[:-1] if len(row) > 1 else row for row in cache.rows)
        return logits, cache

    def stored(self, cache):
        lengths = torch.tensor([len(row) for row in cache.rows])
        empty = torch.zeros(1, len(cache.rows), 1, max(map(len, cache.rows)), 1)
        return empty, empty, lengths


def test_a_rejected_cache_ends_the_cached_path_and_no_answer_is_wrong():
    served = toy(decoder=Forgetful(MAP.size, 14))
    requests = requests_for(served, 30)
    engine = Engine(served)
    got = drain(engine, requests)
    assert engine.rejection is not None
    assert engine.rejection.field == "length"
    assert not engine.cached
    sound = replace(served, decoder=ToyDecoder(MAP.size, 14))
    for one in requests:
        assert got[one.request.request_id].best.events == alone(sound, one).events
    assert any(not one.cached for one in got.values())


def test_weights_that_change_while_serving_void_the_cache():
    served = gpt(slots=1)
    moments = iter(range(0, 10_000, 2))
    engine = Engine(served, clock=lambda: float(next(moments)))  # every look at the clock is seconds later
    drain(engine, [encode(Request("s", ("opened",)), served)])
    with torch.no_grad():
        served.decoder.module.embed[3, 0] += 1e-3
    after = drain(engine, [encode(Request("s", ("opened", "assigned")), served)])
    assert engine.rejection is not None
    assert engine.rejection.field == "weights"
    assert not any(one.cached for one in after.values())


def test_preallocated_slots_never_change_their_size():
    served = gpt(strategy="preallocated slots")
    engine = Engine(served)
    sizes = set()
    for one in requests_for(served, 25):
        engine.admit([one] if engine.free else [])
        engine.step()
        sizes.add(engine._path.cache_bytes)
    assert len(sizes) == 1


def test_a_decoder_that_cannot_set_slots_aside_says_so():
    served = toy(strategy="preallocated slots")
    with pytest.raises(DecoderError, match="set slots aside"):
        serve_all(served, requests_for(served, 1))


def test_a_forgotten_request_leaves_and_the_others_stay():
    served = toy()
    requests = requests_for(served, 4)
    engine = Engine(served)
    owners = engine.admit(requests)
    engine.forget([owners[0], 99])
    got = {}
    while engine.busy:
        got |= {one.encoded.request.request_id: one.best.events for one in engine.step()}
    assert got == {one.request.request_id: alone(served, one).events for one in requests[1:]}


@pytest.mark.parametrize("setting", ["greedy", "sampled", "beam"])
def test_who_asks_again_under_the_id_of_a_forgotten_request_gets_an_answer_of_their_own(setting):
    served = toy(setting)
    engine = Engine(served)
    first, second = (encode(Request("s", prefix, {}, 5, "r"), served) for prefix in (("c",), ("c", "c", "b")))
    owners = engine.admit([first])
    engine.step()
    engine.forget(owners)
    assert engine.free == served.bounds.slots - 1  # its rows are still there
    (again,) = engine.admit([second])
    got = []
    while engine.busy:
        got += engine.step()
    assert [(one.owner, one.encoded, one.best.events) for one in got] == [(again, second, alone(served, second).events)]


def test_a_prefix_that_fills_the_context_is_answered_at_once():
    served = toy(decoder=ToyDecoder(MAP.size, 4))
    found = serve_all(served, [encode(Request("s", ("c", "c", "c"), {}, None, "r"), served)])["r"].best
    assert (found.events, found.stop) == ((), "context full")


REFUSED = {
    "prefix too long": Request("s", ("c",) * 10),
    "unknown event": Request("s", ("c", "nothing")),
    "illegal prefix": Request("s", ("b", "a")),
    "output out of bounds": Request("s", (), {}, 6),
    "malformed": Request("", ("c",)),
}


@pytest.mark.parametrize("code", REFUSED)
def test_what_the_bounds_do_not_hold_is_refused_by_name(code):
    with pytest.raises(RequestRefusedError) as refused:
        encode(REFUSED[code], toy())
    assert refused.value.code == code
