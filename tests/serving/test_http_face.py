"""Whatever comes in over HTTP, what goes out is an answer that holds, or an error that says what was wrong."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from dataclasses import replace

import pytest

from auditlib.serving.http import STATUS, HttpService
from auditlib.serving.http_input import LARGEST_BODY
from auditlib.serving.request_log import RequestLog
from tests.doubles import ToyDecoder
from tests.serving.asking import JSON, Caller, call, opened, post, question, with_app
from tests.serving.test_serving_engine import MAP, alone, gpt, requests_for, toy

END = MAP.end
SOUND = {"session": "s", "events": ["c"]}


def test_answers_over_http_are_those_of_each_prefix_alone():
    served = gpt()
    requests = requests_for(served, 20)
    service = opened(served)

    async def script(app):
        return await asyncio.gather(*(post(app, question(one)) for one in requests))

    for one, reply in zip(requests, with_app(lambda: service, script), strict=True):
        best = alone(served, one)
        assert reply.status == 200
        assert reply.document == {
            "request_id": one.request.request_id,
            "events": [served.event_map.name(event) for event in best.events if event != served.event_map.end],
            "stop": best.stop,
            "forced": best.forced,
            "score": pytest.approx(best.score, abs=1e-4),
            "path": "cached",
            "artifact": "sha256:gpt",
            "fallback": None,
        }


WRONG = {
    "no JSON": (b"{", "malformed"),
    "nothing": (b"", "malformed"),
    "a list": (b"[]", "malformed"),
    "half a character": (b'{"session": "\\ud800", "events": []}', "malformed"),
    "no UTF-8": (b'{"session": "\xff", "events": []}', "malformed"),
    "a key twice": (b'{"session": "a", "session": "b", "events": []}', "malformed"),
    "a key too many": ({**SOUND, "debug": True}, "malformed"),
    "no session": ({"events": []}, "malformed"),
    "an empty session": ({"session": "", "events": []}, "malformed"),
    "events as text": ({"session": "s", "events": "c"}, "malformed"),
    "a number for an event": ({"session": "s", "events": [3]}, "malformed"),
    "not a number": (b'{"session": "s", "events": [], "max_new": NaN}', "malformed"),
    "a number of 5,000 digits": (b'{"session": "s", "events": [], "max_new": ' + b"9" * 5000 + b"}", "malformed"),
    "true for a number": ({**SOUND, "max_new": True}, "malformed"),
    "a fraction": ({**SOUND, "max_new": 1.5}, "malformed"),
    "deeper than anything": (b"[" * 200_000, "malformed"),
    "attributes as a list": ({**SOUND, "attributes": []}, "malformed"),
    "too many attributes": ({**SOUND, "attributes": {str(n): "x" for n in range(65)}}, "malformed"),
    "a long attribute": ({**SOUND, "attributes": {"a": "x" * 513}}, "malformed"),
    "a line break in the id": ({**SOUND, "request_id": "a\r\nSet-Cookie: x"}, "malformed"),
    "a long id": ({**SOUND, "request_id": "a" * 129}, "malformed"),
    "a long session": ({"session": "s" * 513, "events": []}, "malformed"),
    "an unknown event": ({"session": "s", "events": ["no such"]}, "unknown event"),
    "an event with markup": ({"session": "s", "events": ["<script>\u202e\x1b[2J"]}, "unknown event"),
    "too many events": ({"session": "s", "events": ["c"] * 10}, "prefix too long"),
    "too much asked": ({**SOUND, "max_new": 6}, "output out of bounds"),
    "more than a body may hold": (b" " * (LARGEST_BODY + 1), "body too large"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_request_gets_its_code_and_no_more(case):
    body, code = WRONG[case]
    reply = with_app(lambda: opened(toy()), lambda app: post(app, body))
    assert (reply.status, reply.document["error"]) == (STATUS[code], code)
    assert set(reply.document) == {"error", "message"}
    assert len(reply.document["message"]) <= 600
    assert reply.body.isascii()
    assert all(text.isprintable() for text in (reply.document["message"], *reply.headers.values()))


def test_a_prefix_that_breaks_the_order_is_refused():
    reply = with_app(lambda: opened(gpt()), lambda app: post(app, {"session": "s", "events": ["closed", "assigned"]}))
    assert (reply.status, reply.document["error"]) == (400, "illegal prefix")


@pytest.mark.parametrize(
    "headers",
    [(), (("content-type", "text/plain"),), (("content-type", "application/json"), ("content-encoding", "gzip"))],
)
def test_only_plain_json_is_read(headers):
    """A page of another site can send a form or a text unasked, but no JSON."""
    reply = with_app(lambda: opened(toy()), lambda app: post(app, SOUND, [JSON[0], *headers]))
    assert (reply.status, reply.document["error"]) == (415, "not JSON")


HOSTS = {
    "localhost": True, "localhost:8600": True, "LOCALHOST:1": True, "127.0.0.1": True, "127.0.0.1:8600": True,
    "[::1]:8600": True, "": False, "evil.example": False, "localhost.evil.example": False, "localhost@evil": False,
    "127.0.0.1.evil.example": False, "evil.example:8600": False, "localhost:8600:1": False, "localhost evil": False,
    "127.1": False, "0.0.0.0": False, "[::]": False, "localhost/": False, "localhost\t": False, "[::1": False,
    "2130706433": False, "localhost.": False, "x" * 5000: False,
}  # fmt: skip


def test_only_names_that_are_allowed_are_answered_to():
    async def script(app):
        return [await call(app, path="/ready", headers=[("host", host)]) for host in HOSTS]

    replies = with_app(lambda: opened(toy()), script)
    assert [reply.status for reply in replies] == [200 if allowed else 403 for allowed in HOSTS.values()]
    for headers in ([], [("host", "localhost"), ("host", "evil.example")]):
        assert with_app(lambda: opened(toy()), lambda app, h=headers: call(app, headers=h)).status == 403


def test_what_is_not_there_is_said_in_json():
    async def script(app):
        return [await call(app, *ask) for ask in (("GET", "/"), ("GET", "/v1/next"), ("PUT", "/health"))]

    replies = with_app(lambda: opened(toy()), script)
    assert [reply.status for reply in replies] == [404, 405, 405]
    assert [reply.document["error"] for reply in replies] == ["not found", "wrong method", "wrong method"]
    assert replies[1].headers["allow"] == "POST"


def test_a_full_queue_says_busy_with_the_time_to_wait_and_nobody_is_lost(tmp_path):
    served = toy(slots=2, queue=3)
    requests = requests_for(served, 40)
    log = RequestLog(tmp_path)
    service = opened(served, log=log)

    async def script(app):
        return await asyncio.gather(*(post(app, question(one)) for one in requests)), await call(app, path="/metrics")

    replies, metrics = with_app(lambda: service, script)
    busy = [reply for reply in replies if reply.status == 429]
    assert len(busy) == 35
    assert {reply.headers["retry-after"] for reply in busy} == {"1"}
    assert sum(reply.status == 200 for reply in replies) == 5
    assert service.keeper.written == 40
    assert 'prefixgate_requests_total{arm="new",outcome="busy"} 35' in metrics.body.decode()


def test_an_id_that_is_under_way_is_refused():
    async def script(app):
        return await asyncio.gather(*(post(app, {**SOUND, "request_id": "same"}) for _ in range(2)))

    assert sorted(reply.status for reply in with_app(lambda: opened(toy()), script)) == [200, 409]


def test_a_sender_who_dawdles_holds_no_slot_and_is_let_go(monkeypatch):
    monkeypatch.setattr("auditlib.serving.http_input.read_body.__defaults__", (LARGEST_BODY, 0.2))
    service = opened(toy(slots=1, queue=0))
    slow = Caller([b"{"] * 50, pause=0.1)

    async def script(app):
        waiting = asyncio.create_task(post(app, b"", caller=slow))
        await asyncio.sleep(0.05)
        meanwhile = await post(app, SOUND)
        return meanwhile, await waiting

    meanwhile, late = with_app(lambda: service, script)
    assert meanwhile.status == 200
    assert (late.status, late.document["error"], late.headers["connection"]) == (408, "too slow", "close")


def test_a_body_is_cut_off_where_it_outgrows_its_bound_whatever_it_said_of_its_length():
    endless = Caller([b" " * 65_536] * 1000)
    reply = with_app(lambda: opened(toy()), lambda app: post(app, b"", caller=endless))
    assert (reply.status, reply.headers["connection"]) == (413, "close")
    assert len(endless.chunks) > 990
    told = [*JSON, ("content-length", LARGEST_BODY + 1)]
    unread = Caller([b"x"])
    assert with_app(lambda: opened(toy()), lambda app: post(app, b"", told, unread)).status == 413
    assert unread.chunks


class Slow(ToyDecoder):
    """Waits until the test lets it go on."""

    def __init__(self, gate):
        super().__init__(MAP.size, 14)
        self.gate = gate

    def _read(self, events, valid, rows):
        self.gate.wait(10)
        return super()._read(events, valid, rows)


def test_a_caller_who_hangs_up_frees_the_slot_and_has_a_row(tmp_path):
    gate = threading.Event()
    service = opened(toy(decoder=Slow(gate), slots=1, queue=0), log=RequestLog(tmp_path))
    caller = Caller([json.dumps(SOUND).encode()])

    async def script(app):
        asked = asyncio.create_task(post(app, b"", caller=caller))
        await asyncio.sleep(0.1)
        taken = await post(app, SOUND)
        caller.leave()
        left = await asked
        gate.set()
        return taken, left, await post(app, SOUND)

    taken, left, after = with_app(lambda: service, script)
    assert (taken.status, left.status, after.status) == (429, 499, 200)
    outcomes = service.keeper.tally.outcomes
    assert outcomes == {("new", "busy"): 1, ("new", "caller left"): 1, ("new", "answered"): 1}


def test_a_service_that_is_ending_takes_nothing_new():
    service = opened(toy())

    async def script(app):
        service.draining = True
        return await post(app, SOUND), await call(app, path="/ready"), await call(app)

    refused, ready, health = with_app(lambda: service, script)
    assert (refused.status, refused.document["error"], ready.status) == (503, "shutting down", 503)
    assert (health.status, health.document["draining"]) == (200, True)


def test_a_fault_of_our_own_shows_no_traceback_and_no_text_of_a_stranger(caplog):
    class Faulty:
        draining = False

        async def answer(self, request):
            raise LookupError(f"secret {request.session}\nFORGED LINE")

    reply = asyncio.run(post(HttpService(Faulty()), {"session": "stranger", "events": []}))
    assert (reply.status, reply.document["error"]) == (500, "internal")
    for text in (reply.body.decode(), caplog.text):
        assert "stranger" not in text
        assert "secret" not in text
    assert "LookupError at " in caplog.text


def mangled(chance: random.Random) -> bytes:
    """A body that began as a request, and then met somebody."""
    names = ["c", "a", "b", "", "\u202e", "\x00", "🙂" * chance.randint(0, 3), "=1+1", "../" * 9, "c" * 600]
    values = [None, True, -1, 10 ** chance.randint(0, 40), 1.5e308, [], {}, [[]], "x", names]
    body = {
        "session": chance.choice([*names, "s"]),
        "events": chance.choices(names, k=chance.randint(0, 12)),
        "attributes": chance.choice([{}, {"a": "b"}, {chance.choice(names): chance.choice(values)}]),
        "max_new": chance.choice([1, 5, 99, *values]),
        "request_id": chance.choice(["r", *names]),
    }
    for _ in range(chance.randint(0, 2)):
        body[chance.choice([*body, "more"])] = chance.choice(values)
    for _ in range(chance.randint(0, 3)):
        body.pop(chance.choice(list(body)), None) if body else None
    content = bytearray(json.dumps(body, ensure_ascii=chance.random() < 0.5).encode())
    for _ in range(chance.choice([0, 0, 1, 5])):
        place = chance.randrange(len(content))
        content[place : place + chance.randint(0, 4)] = chance.randbytes(chance.randint(0, 3))
        content = content or bytearray(b"{")
    return bytes(content[: chance.randint(0, len(content))] if chance.random() < 0.2 else content)


def test_ten_thousand_hostile_bodies_are_answered_or_refused_and_none_goes_wrong(caplog):
    chance = random.Random(4)
    bodies = [mangled(chance) for _ in range(10_000)]
    service = opened(toy(slots=64, queue=64))

    async def script(app):
        return [
            reply
            for start in range(0, len(bodies), 100)
            for reply in await asyncio.gather(*(post(app, body) for body in bodies[start : start + 100]))
        ], app

    replies, app = with_app(lambda: service, script)
    statuses = {reply.status for reply in replies}
    assert statuses <= {200, 400, 409}
    assert {200, 400} <= statuses
    assert caplog.text == ""
    assert all(b"Traceback" not in reply.body for reply in replies)
    rows = sum(service.keeper.tally.outcomes.values())
    assert rows + sum(app.refused.values()) == len(bodies)


def test_metrics_are_in_the_text_format_whatever_stands_in_a_label():
    served = replace(toy("unmasked", decoder=ToyDecoder(MAP.size, 14, logits=lambda _: [9.0] + [0.0] * (MAP.size - 1))))
    earlier = replace(toy(), digest="sha256:earlier")
    service = opened(served, earlier)

    async def script(app):
        await asyncio.gather(*(post(app, {**SOUND, "session": f"s{n}"}) for n in range(10)))
        await post(app, b"{")
        service.main.counts.fallbacks['a "reason"\n\\ of a stranger'] += 1
        return (await call(app, path="/metrics")).body.decode()

    text = with_app(lambda: service, script)
    label = r'[a-z_]+="(?:[^"\\\n]|\\["n\\])*"'
    line = re.compile(rf"prefixgate_[a-z_]+(?:\{{{label}(?:,{label})*\}})? [0-9.e+-]+")
    helps = re.compile(r"# (HELP|TYPE) prefixgate_[a-z_]+ .+")
    assert text.endswith("\n")
    for one in text.splitlines():
        assert line.fullmatch(one) or helps.fullmatch(one), one
    assert 'prefixgate_answered_total{arm="new",path="fallback artifact"} 10' in text
    assert 'prefixgate_http_refused_total{code="malformed"} 1' in text
    assert 'prefixgate_request_seconds_count{arm="new"} 10' in text
    buckets = [int(one.rpartition(" ")[2]) for one in text.splitlines() if "request_seconds_bucket" in one]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 10
    names = [one.split()[2] for one in text.splitlines() if one.startswith("# TYPE")]
    assert len(names) == len(set(names))
