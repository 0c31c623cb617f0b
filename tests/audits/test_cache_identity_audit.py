"""A guard that overlooks one field, and decoders that remember what they should not: each must be seen."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from auditlib.audits.base import Subject
from auditlib.audits.cache_identity import CACHE_IDENTITY
from auditlib.decoders.fingerprint import fingerprint
from auditlib.decoding import cache_guard
from auditlib.decoding.cache_guard import CacheIdentity, GuardedCache, GuardedDecoder
from auditlib.decoding.policies import DEFAULT_SETTINGS
from auditlib.errors import DecoderError, InputError
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder

MAP = EventMap.build(["assigned", "closed", "opened", "reopened", "repaired"])
ORDER = EventOrder("1").compile(MAP)
NAMES = sorted(MAP.events)
SESSIONS = tuple(
    Session(f"s{number}", tuple(NAMES[(number + k * k) % 5] for k in range(number % 9))) for number in range(40)
)


class Weighted(ToyDecoder):
    """Toy with weights that take part, can be named and changed in place, and a cache that can be looked into."""

    def __init__(self, **more):
        super().__init__(**more)
        self.module = nn.ParameterList([nn.Parameter(torch.ones(8, dtype=self.dtype), requires_grad=False)])

    def fingerprint(self):
        return fingerprint({}, self.module.state_dict())

    def stored(self, cache):
        return torch.zeros(1), torch.zeros(1), torch.tensor([len(row) for row in cache.rows])

    def _read(self, events, valid, rows):
        logits, grown = super()._read(events, valid, rows)
        return logits * self.module[0], grown


def subject_of(kind=Weighted, load=None, sessions=SESSIONS, **more):
    def fresh(dtype):
        return kind(vocabulary_size=MAP.size, context_length=16, dtype=dtype, **more)

    decoder = fresh(torch.float32)
    return Subject(
        "toy", "sha256:0", decoder, load or fresh, MAP, ORDER, sessions, None, DEFAULT_SETTINGS, 8
    )  # fmt: skip


def measured(subject):
    findings = CACHE_IDENTITY.measure(subject)
    return {one.name: one for one in findings.measurements}, findings


def accepted(findings):
    trials = findings.tables["trials"]
    wrong = trials[(trials.field != "answer") & (trials.expected != trials.outcome)]
    return set(wrong[wrong.expected != "accepted"].alteration)


def test_a_sound_guard_refuses_all_that_is_altered_and_serves_its_own():
    found, findings = measured(subject_of())
    checks = ("altered requests accepted", "own requests rejected", "answer after another session", "repeated answer")
    assert [found[check].value for check in checks] == [0, 0, 0, 0]
    assert all(found[check].count > 0 for check in checks)
    assert found["tolerance"].value > 0
    assert not findings.not_applicable
    fields = set(findings.tables["trials"].field)
    assert {
        "events", "length", "rows", "spent", "kind", "weights", "revision", "dtype", "device", "positions", "event map",
        "event order", "key", "answer",
    } <= fields  # fmt: skip


@pytest.mark.parametrize(
    ("name", "alteration"),
    [
        ("event_map", "decoder of another event map"),
        ("event_order", "decoder of another event order"),
        ("dtype", "another dtype asked for"),
        ("device", "another device asked for"),
        ("positions", "another positions asked for"),
        ("revision", "another revision asked for"),
        ("weights", "one bit of a weight changed in place"),
    ],
)
def test_a_guard_that_overlooks_one_field_is_seen(monkeypatch, name, alteration):
    monkeypatch.setattr(cache_guard, "_NAMES", tuple(one for one in cache_guard._NAMES if one != name))
    found, findings = measured(subject_of())
    assert found["altered requests accepted"].value > 0
    assert alteration in accepted(findings)


def by_hash(self, asked):
    """Compares hashes of lengths and last events only, as a careless cache key would."""
    mine, its = [[(len(row), row[-1]) for row in rows] for rows in (self.rows, asked.rows)]
    if mine != its or self.weights != asked.weights:
        raise cache_guard._rejected("events", "other rows")


def never_spent(self):
    return None


def lengths_unlooked(self, cache):
    return None


def equal_keys(self):
    return f"{self.revision}{self.weights}{self.event_map}{self.event_order}{[e for row in self.rows for e in row]}"


@pytest.mark.parametrize(
    ("place", "name", "fault", "alteration"),
    [
        (CacheIdentity, "check", by_hash, "one event changed"),
        (CacheIdentity, "check", by_hash, "all but the last event changed"),
        (GuardedCache, "spend", never_spent, "used twice"),
        (GuardedDecoder, "_check_lengths", lengths_unlooked, "shorter than it claims"),
        (GuardedDecoder, "_check_lengths", lengths_unlooked, "longer than it claims"),
        (CacheIdentity, "key", property(equal_keys), "rows grouped otherwise"),
        (CacheIdentity, "key", property(equal_keys), "a boundary moved between fields"),
    ],
)
def test_a_careless_guard_is_seen(monkeypatch, place, name, fault, alteration):
    monkeypatch.setattr(place, name, fault)
    found, findings = measured(subject_of())
    assert found["altered requests accepted"].value > 0
    assert alteration in accepted(findings)


def test_a_guard_that_refuses_its_own_requests_is_seen(monkeypatch):
    sound = GuardedDecoder.reorder

    def in_old_order(self, cache, parents):
        return GuardedCache(sound(self, cache, parents).inner, cache.identity)

    monkeypatch.setattr(GuardedDecoder, "reorder", in_old_order)
    found, _ = measured(subject_of())
    assert found["own requests rejected"].value > 0


# -- decoders with a memory of their own -------------------------------------------------------------------------------


class Remembering(Weighted):
    """Keeps the rows of prefills under a key; the key sees too little of a row."""

    shared = None

    def __init__(self, **more):
        super().__init__(**more)
        self.memory = {} if self.shared is None else self.shared

    def key(self, row):
        return len(row), row[-1]

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        rows = tuple(self.memory.setdefault(self.key(row), row) for row in cache.rows)
        if rows != cache.rows:
            width = max(map(len, rows))
            events = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
            valid = torch.tensor([[place < len(row) for place in range(width)] for row in rows])
            return super().prefill(events, valid)
        return logits, cache


class RememberingWhole(Remembering):
    """Sound: the key is the whole row."""

    def key(self, row):
        return row


class FirstEvents(Remembering):
    """Looks at the beginning and the length."""

    def key(self, row):
        return len(row), row[:2]


class RememberingForAll(Remembering):
    """As Remembering, and all decoders of the process share the memory."""

    def __init__(self, **more):
        RememberingForAll.shared = RememberingForAll.shared if RememberingForAll.shared is not None else {}
        super().__init__(**more)


class RememberingLogits(Weighted):
    """Keeps logits of whole rows under the revision's name, across all decoders: others of that name get them too."""

    memory = {}  # noqa: RUF012

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        kept = [
            self.memory.setdefault((self.revision, row), line) for row, line in zip(cache.rows, logits, strict=True)
        ]
        return torch.stack(kept), cache


class Leftover(Weighted):
    """A row that broke off stays in the decoder, and the next one of another length is read behind it."""

    left = ()

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        if self.left and len(self.left) != len(cache.rows[0]):
            logits = logits + 0.5
        self.left = cache.rows[0]
        return logits, cache


class Restless(Weighted):
    """Gives another answer every time."""

    asked = 0

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        self.asked += 1
        return logits + 1e-3 * self.asked, cache


class NotANumber(Weighted):
    """Answers NaN to whoever comes second."""

    asked = 0

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        self.asked += 1
        return (logits * math.nan if self.asked > 60 else logits), cache


class CannotBeCopied(Remembering):
    """Must be loaded anew for every cold answer."""

    def __deepcopy__(self, memo):
        raise TypeError("holds a handle that cannot be copied")


@pytest.mark.parametrize(
    ("kind", "sound"),
    [
        (Weighted, True),
        (RememberingWhole, True),
        (CannotBeCopied, False),
        (Remembering, False),
        (FirstEvents, False),
        (RememberingForAll, False),
        (RememberingLogits, False),
        (Leftover, False),
        (NotANumber, False),
    ],
)
def test_an_answer_that_depends_on_another_session_is_seen(kind, sound):
    for forgotten in (RememberingForAll, RememberingLogits):
        forgotten.shared, forgotten.memory = None, {}
    found, _ = measured(subject_of(kind))
    answer = found["answer after another session"]
    assert answer.count > 20
    assert (answer.value <= found["tolerance"].value) == sound
    assert found["altered requests accepted"].value == 0


@pytest.mark.parametrize(("kind", "sound"), [(Weighted, True), (Restless, False)])
def test_an_answer_that_changes_on_repetition_is_seen(kind, sound):
    found, _ = measured(subject_of(kind))
    assert (found["repeated answer"].value == 0) == sound


def test_what_a_black_box_cannot_be_asked_is_not_applicable_and_no_pass():
    found, findings = measured(subject_of(ToyDecoder))
    assert found["altered requests accepted"].value == 0
    assert {
        "weights changed in place",
        "cache longer or shorter than it claims",
        "answer after another revision",
    } == set(findings.not_applicable)
    assert not (findings.tables["trials"].alteration == "one bit of a weight changed in place").any()


def test_a_decoder_that_loads_in_one_dtype_only_is_said_so():
    def load(dtype):
        if dtype != torch.float32:
            raise DecoderError("only float32 here")
        return Weighted(vocabulary_size=MAP.size, context_length=16)

    found, findings = measured(subject_of(load=load))
    assert findings.not_applicable == {"decoder of another dtype": "only float32 here"}
    assert found["altered requests accepted"].value == 0


def test_a_loader_that_gives_the_same_decoder_again_proves_nothing():
    subject = subject_of()
    with pytest.raises(DecoderError, match="same decoder"):
        CACHE_IDENTITY.measure(replace(subject, load=lambda dtype: subject.decoder))


def test_no_session_at_all_is_not_measured():
    with pytest.raises(InputError, match="held-out"):
        CACHE_IDENTITY.measure(subject_of(sessions=()))


@pytest.mark.parametrize("sessions", [(Session("a", ()),), (Session("a", ("opened",)),)])
def test_rows_are_made_up_where_sessions_are_too_few(sessions):
    found, _ = measured(subject_of(sessions=sessions))
    assert found["altered requests accepted"].count > 20
    assert found["answer after another session"].count > 5


@pytest.mark.parametrize("room", range(4))
def test_a_context_that_holds_the_longest_session_and_little_more_is_asked_nothing_beyond_it(room):
    longest = 1 + max(len(session.events) for session in SESSIONS)

    def make(dtype):
        return Weighted(vocabulary_size=MAP.size, context_length=longest + room, dtype=dtype)

    findings = CACHE_IDENTITY.measure(replace(subject_of(load=make), decoder=make(torch.float32)))
    assert {one.name: one.value for one in findings.measurements}["answer after another session"] == 0


class Pairs(Weighted):
    """Remembers answers to prompts of exactly two rows by their lengths and last events."""

    def __init__(self, **more):
        super().__init__(**more)
        self.memory = {}

    def prefill(self, events, valid):
        key = tuple((int(keep.sum()), int(row[keep][-1])) for row, keep in zip(events, valid, strict=True))
        if len(key) != 2:
            return super().prefill(events, valid)
        if key not in self.memory:
            self.memory[key] = super().prefill(events, valid)[0]
        return self.memory[key].clone(), super().prefill(events, valid)[1]


def test_a_memory_of_whole_batches_is_seen():
    findings = CACHE_IDENTITY.measure(subject_of(Pairs))
    assert {one.name: one.value for one in findings.measurements}["answer after another session"] > 0.1
