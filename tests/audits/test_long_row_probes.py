"""Probes of long rows and of many sessions: each reaches a situation in which a decoder goes wrong and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from auditlib.audits.beyond import accepted_beyond
from auditlib.audits.checked import CheckedDecoder
from auditlib.audits.counterexamples import counterexamples_for
from auditlib.audits.growing import Bench
from auditlib.audits.held_out import held_out, material
from auditlib.audits.long_row_probes import LONG_ROW_PROBES
from auditlib.audits.neighbours import Neighbours
from auditlib.audits.twins import crowd_rows, long_twins
from auditlib.audits.work import Watch
from auditlib.errors import ContextExceededError
from auditlib.events.event_map import EventMap
from tests.plain import Plain
from tests.subjects import subject_of

CONTEXT = 80
BEYOND = "accepted beyond the context"


@dataclass
class Known:
    """A cache of the plain decoder, with what has been done to it."""

    inner: object
    lengths: list
    columns: int
    moves: int = 0
    appends: int = 0
    idled: bool = False
    spoilt: bool = False


class Spoilt:
    """A sound decoder, but for one verb in one situation: there its answers are one too high, or a refusal is lost."""

    def __init__(self, verb, situation, dtype=torch.float32, context=CONTEXT):
        self.inner = Plain(dtype=dtype, context_length=context)
        self.revision, self.vocabulary_size, self.context_length = "spoilt", 8, context
        self.verb, self.situation = verb, situation

    def wrong(self, verb, events, valid, cache):
        return verb == self.verb and self.situation(events, valid, cache)

    def full(self, events, valid):
        return self.inner.full(events, valid) + self.wrong("full", events, valid, None)

    def prefill(self, events, valid):
        logits, inner = self.inner.prefill(events, valid)
        known = Known(inner, valid.sum(1).tolist(), events.shape[1])
        return logits + self.wrong("prefill", events, valid, known), known

    def extend(self, events, valid, cache):
        wrong = cache.spoilt or self.wrong("extend", events, valid, cache)
        lengths = [before + int(new) for before, new in zip(cache.lengths, valid.sum(1), strict=True)]
        idled = cache.idled or any(had == self.context_length for had in cache.lengths)
        after = Known(
            None, lengths, cache.columns + events.shape[1], cache.moves, cache.appends + 1, idled, cache.spoilt
        )
        try:
            logits, after.inner = self.inner.extend(events, valid, cache.inner)
        except ContextExceededError:
            if self.wrong("refusal", events, valid, cache):
                return torch.zeros(*events.shape, 8), after
            raise
        return logits + wrong, after

    def reorder(self, cache, parents):
        lengths = [cache.lengths[parent] for parent in parents]
        moved = Known(self.inner.reorder(cache.inner, parents), lengths, cache.columns, cache.moves + 1, cache.appends)
        moved.spoilt = cache.spoilt or self.wrong("reorder", parents, None, cache)
        return moved

    def cache_bytes(self, cache):
        return self.inner.cache_bytes(cache.inner)


def even(events, valid, _):
    return bool(valid.all()) and len(valid) >= 4 and valid.shape[1] >= 16


def begin_alike(events, valid, _):
    rows = [tuple(row[keep].tolist()) for row, keep in zip(events, valid, strict=True)]
    return any(a != b and b[: len(a)] == a and len(a) > 3 for a in rows for b in rows)


def first_has_no_padding(events, valid, _):
    return bool(valid[0].all()) and not bool(valid[:, 0].all())


def grown_apart(least):
    """Rows of several lengths, copies among them, move when the longest has at least so many events."""
    return lambda parents, _, cache: (
        max(cache.lengths) >= least and len(set(cache.lengths)) > 2 and len(set(parents.tolist())) < len(parents)
    )


SITUATIONS = {
    "copies of long rows": ("reorder", grown_apart(33), "reordered rows"),
    "rows that move right after their prompt": (
        "reorder", lambda _, __, cache: len(cache.lengths) > 1 and not cache.appends, "reordered rows",
    ),
    "rows that are left over from copies": (
        "reorder", lambda parents, _, cache: cache.moves == 2 and len(parents) < len(cache.lengths), "reordered rows",
    ),
    "many events at once after a move": (
        "extend", lambda events, _, cache: cache.moves > 0 and events.shape[1] > 8, "reordered rows",
    ),
    "even prompts, prefilled": ("prefill", even, "long chunks"),
    "even prompts, read whole": ("full", even, "long chunks"),
    "a prompt that begins another": ("prefill", begin_alike, "uneven rows"),
    "no padding before the first row, prefilled": ("prefill", first_has_no_padding, "padded left"),
    "no padding before the first row, read whole": ("full", first_has_no_padding, "padded left"),
    "more columns than the context": (
        "extend", lambda events, _, cache: cache.columns > CONTEXT, "exact boundary",
    ),
    "a full row that stands idle": (
        "extend", lambda _, valid, cache: CONTEXT in cache.lengths and not bool(valid.all()), "exact boundary",
    ),
    "left padding as wide as the context": (
        "prefill", lambda _, valid, __: valid.shape[1] >= CONTEXT - 2 and not bool(valid[:, 0].all()), "padded left",
    ),
    "right padding as wide as the context": (
        "prefill", lambda _, valid, __: valid.shape[1] >= CONTEXT - 2 and not bool(valid[:, -1].all()), "uneven rows",
    ),
}  # fmt: skip


def gaps_of(decoder):
    subject = subject_of(lambda dtype: decoder)
    bench = Bench(CheckedDecoder(decoder, "cpu", lambda: None), material(subject, held_out(subject)))
    for _, probe in LONG_ROW_PROBES:
        probe(bench)
    return {one.name: one.value for one in bench.gaps.measurements()}


@pytest.mark.parametrize("name", SITUATIONS)
def test_each_situation_of_long_rows_is_reached_and_counts_for_its_check(name):
    verb, situation, check = SITUATIONS[name]
    assert gaps_of(Spoilt(verb, situation))[check] > 0.5


@pytest.mark.parametrize("context", [1, 2, 3, 4, 5, 9, 21, 40, CONTEXT, 200])
def test_a_sound_decoder_of_any_context_is_right_in_all_of_them(context):
    gaps = gaps_of(Spoilt("", None, context=context))
    assert max(gaps.values()) < 1e-5


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        (lambda _, __, cache: cache.moves > 0, "changed places"),
        (lambda _, __, cache: cache.idled, "stood idle"),
    ],
    ids=["after a move", "after idling"],
)
def test_a_refusal_that_is_lost_with_the_rows_is_seen(situation, words):
    decoder = Spoilt("refusal", situation)
    subject = subject_of(lambda dtype: decoder)
    rows = material(subject, held_out(subject))
    accepted, _ = accepted_beyond(CheckedDecoder(decoder, "cpu", lambda: None), rows)
    assert [one for one in accepted if words in one] == accepted != []
    checks = [{"name": BEYOND, "status": "failed", "limit": 0.0, "unit": "requests"}]
    (case,) = counterexamples_for(subject, {"audits": {"cache parity": {"checks": checks}}}, seconds=60).values()
    assert len(case.asked.steps) == 3
    assert case.expect == "refused"


class Asked:
    """What a decoder with a memory of its own was asked for; shared by nobody."""

    def __init__(self):
        self.prompts, self.last, self.calls = {}, {}, 0


class Remembering(Spoilt):
    """Goes wrong by what it was asked before: for prompts, or for caches that others have come after."""

    def __init__(self, kind, dtype=torch.float32):
        super().__init__("", None, dtype)
        self.kind, self.asked = kind, Asked()

    def prefill(self, events, valid):
        logits, cache = super().prefill(events, valid)
        row, memory = tuple(events[0].tolist()), self.asked
        key = {"pages": row[32:], "beginning": row[:16]}.get(self.kind)
        first = memory.prompts.setdefault(key, row) if key and len(row) > 16 else row
        cache.row, cache.made = row, memory.calls
        memory.calls += 1
        return logits + (first != row), cache

    def extend(self, events, valid, cache):
        memory = self.asked
        before = memory.last.get(cache.row)
        shared = self.kind == "one prompt" and before is not None and before[0] != cache.made and before[1] > cache.made
        old = self.kind == "lease" and memory.calls - cache.made > 40
        logits, after = super().extend(events, valid, cache)
        after.row, after.made = cache.row, cache.made
        memory.calls += 1
        memory.last[cache.row] = (cache.made, memory.calls)
        return logits + (shared or old), after


@pytest.mark.parametrize(
    ("kind", "after"),
    [
        ("pages", "the first event changed"),
        ("beginning", "a longer row that began alike and parted"),
        ("one prompt", "a session that began alike"),
        ("lease", "23 sessions underway"),
    ],
)
def test_what_a_decoder_keeps_of_others_is_seen_in_the_company_that_shows_it(kind, after):
    subject = subject_of(lambda dtype: Remembering(kind, dtype))
    neighbours = Neighbours(subject, long_twins(subject), Watch(subject.progress))
    pieces = [work for name, work in neighbours.pieces() if name != "answers after another revision"]
    for work in pieces:
        work()
    wrong = {trial[0] for trial in neighbours.found.trials if trial[3] != "the cold answer"}
    assert f"asked after: {after}" in wrong


class Overwrites(Spoilt):
    """Answers from one piece of memory, as a captured graph does: the next step of that shape writes over the last."""

    def __init__(self, dtype=torch.float32):
        super().__init__("", None, dtype)
        self.answers = {}

    def extend(self, events, valid, cache):
        logits, after = super().extend(events, valid, cache)
        return self.answers.setdefault(events.shape, torch.empty_like(logits)).copy_(logits), after


def test_answers_that_the_next_step_writes_over_are_seen():
    neighbours = Neighbours(subject_of(Overwrites), (), Watch(subject_of(Overwrites).progress))
    dict(neighbours.pieces())["many sessions at once"]()
    assert neighbours.found.answers == 24
    assert neighbours.found.worst > 0.1


def test_many_sessions_are_of_different_rows_and_leave_room_for_what_follows():
    for context, events in ((20, 5), (20, 2), (9, 1), (5, 3)):
        names = [f"e{number}" for number in range(events)]
        subject = subject_of(lambda dtype, context=context: Plain(context_length=context))
        object.__setattr__(subject, "event_map", EventMap.build(names))
        rows = crowd_rows(subject, 24)
        assert max(map(len, rows)) + 2 <= context
        assert len(set(rows)) == 24 or events == 1 or context < 9
    short = subject_of(lambda dtype: Plain(context_length=3))
    assert crowd_rows(short, 24) == []
    assert long_twins(short) == ()
