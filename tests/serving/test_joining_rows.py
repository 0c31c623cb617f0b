"""Who joins a batch under way is read in the call in which the others advance; its first event is not told early."""

from __future__ import annotations

from itertools import count

from auditlib.errors import CacheRejectedError
from auditlib.serving.engine import Engine
from tests.doubles import ToyDecoder
from tests.serving.test_serving_engine import MAP, alone, drain, requests_for, toy


class Counts(ToyDecoder):
    calls = 0

    def extend(self, events, valid, cache):
        self.calls += 1
        return super().extend(events, valid, cache)


def test_a_step_with_joining_rows_is_one_call_of_the_decoder():
    decoder = Counts(MAP.size, 14)
    engine = Engine(toy(decoder=decoder))
    first, *others = requests_for(toy(), 4)
    engine.admit([first])
    for one in others:
        if not engine.busy:
            break
        before = decoder.calls
        engine.admit([one])
        assert decoder.calls == before
        engine.step()
        assert decoder.calls <= before + 1


def test_a_joining_row_has_its_first_event_one_step_after_it_was_read():
    ticks = count()
    engine = Engine(toy(), clock=lambda: float(next(ticks)))
    requests = requests_for(toy(), 12)
    answers = drain(engine, requests, size=lambda free: min(free, 1))
    assert len(answers) == 12
    for one in answers.values():
        assert one.joined < one.first_event <= one.ended


def test_a_cache_that_is_rejected_while_rows_join_loses_none_of_them():
    class Refuses(Counts):
        def extend(self, events, valid, cache):
            if self.calls == 5:
                self.calls += 1
                raise CacheRejectedError("spent", "refused by the test")
            return super().extend(events, valid, cache)

    requests = requests_for(toy(), 20)
    engine = Engine(toy(decoder=Refuses(MAP.size, 14)))
    answers = drain(engine, requests, size=lambda free: min(free, 2))
    assert engine.rejection is not None
    assert {name: one.best.events for name, one in answers.items()} == {
        one.request.request_id: alone(toy(), one).events for one in requests
    }


def test_a_request_that_is_forgotten_before_it_was_read_leaves_the_others_as_they_are():
    requests = requests_for(toy(), 3)
    engine = Engine(toy())
    engine.admit(requests[:1])
    owners = engine.admit(requests[1:])
    engine.forget(owners[:1])
    answers = drain(engine, [])
    assert answers.keys() == {one.request.request_id for one in (requests[0], requests[2])}
    for one in (requests[0], requests[2]):
        assert answers[one.request.request_id].best.events == alone(toy(), one).events
