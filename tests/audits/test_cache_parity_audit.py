"""Cache parity on sound decoders, on decoders that can do little, and what its tables and notes say."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.held_out import held_out
from auditlib.errors import CancelledError, DecoderError
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder
from tests.plain import Open, Plain
from tests.planted import StaleKey
from tests.subjects import MAP, gpt, missing, over_limit, subject_of, values


def toy(dtype):
    return ToyDecoder(vocabulary_size=MAP.size, context_length=20, dtype=dtype)


class WindowedCache(Plain):
    """Sees the newest six events only, on the cached path."""

    def sees_new(self, valid, cache, layer):
        sees = super().sees_new(valid, cache, layer).clone()
        sees[:, :, : max(0, sees.shape[2] - 6)] = False
        return sees


@pytest.mark.parametrize("make", [toy, lambda dtype: Plain(dtype=dtype), gpt], ids=["toy", "plain", "event_gpt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_a_sound_decoder_stays_within_every_limit_and_leaves_nothing_out(make, dtype):
    findings = CACHE_PARITY.measure(subject_of(make, dtype))
    assert over_limit(CACHE_PARITY, findings) == set()
    assert missing(CACHE_PARITY, findings) == set()


@pytest.mark.parametrize("context", [1, 2, 3, 5])
def test_a_context_that_is_shorter_than_the_probes_is_no_reason_to_stop(context):
    def small(dtype):
        return ToyDecoder(vocabulary_size=MAP.size, context_length=context, dtype=dtype)

    findings = CACHE_PARITY.measure(subject_of(small))
    assert over_limit(CACHE_PARITY, findings) == set()
    assert values(findings)["accepted beyond the context"] == 0


def test_every_distinct_prefix_stands_once_in_the_table_with_its_weight_and_a_session_that_has_it():
    subject = subject_of(toy)
    gaps = CACHE_PARITY.measure(subject).tables["gaps"]
    singles = gaps[gaps["probe"] == "single events"]
    expected = {}
    for session in subject.held_out:
        row = subject.row(session)[:-1]
        for size in range(1, len(row) + 1):
            expected.setdefault("-".join(map(str, row[:size])), []).append(session.session_id)
    assert dict(zip(singles["events"], singles["weight"], strict=True)) == {k: len(v) for k, v in expected.items()}
    assert all(who in expected[events] for who, events in zip(singles["session_id"], singles["events"], strict=True))
    assert (singles["step"] == singles["events"].str.count("-") + 1).all()


def test_steps_summarise_the_distinct_prefixes_of_each_length():
    findings = CACHE_PARITY.measure(subject_of(lambda dtype: WindowedCache(dtype=dtype)))
    gaps, steps = findings.tables["gaps"], findings.tables["steps"].set_index("step")
    singles = gaps[gaps["probe"] == "single events"]
    for step, group in singles.groupby("step"):
        assert steps.loc[step, "worst"] == group["gap"].max()
        assert steps.loc[step, "prefixes"] == len(group)
    assert steps.loc[6, "worst"] < 1e-4 < steps.loc[7, "worst"]


def test_the_shortest_prefix_over_the_tolerance_is_named():
    findings = CACHE_PARITY.measure(subject_of(lambda dtype: WindowedCache(dtype=dtype)))
    singles = findings.tables["gaps"].query("probe == 'single events'")
    over = singles[singles["gap"] > values(findings)["tolerance"]]
    shortest = over[over["step"] == over["step"].min()].sort_values("gap").iloc[-1]
    note = next(note for note in findings.notes if note.startswith("Shortest"))
    assert shortest["events"] in note
    assert shortest["step"] == 7


def test_a_decoder_that_adds_context_only_where_rows_are_alone_is_compared_with_the_row_alone():
    class CompanyMatters(Plain):
        """Rows of a batch shift one another, on both paths alike: padded against padded would agree."""

        def scores(self, hidden):
            return super().scores(hidden) + 1e-3 * (len(hidden) - 1)

    found = over_limit(CACHE_PARITY, CACHE_PARITY.measure(subject_of(lambda dtype: CompanyMatters(dtype=dtype))))
    assert {"padded left", "padded right", "padded both sides", "dropped rows", "reordered rows"} <= found


def test_without_float64_parity_rests_on_values_and_says_so():
    def load(dtype):
        raise DecoderError(f"no {dtype} path here")

    findings = CACHE_PARITY.measure(subject_of(lambda dtype: Plain(dtype=dtype), load=load))
    assert "no torch.float64 path here" in findings.not_applicable["single events in float64"]
    assert over_limit(CACHE_PARITY, findings) == set()
    assert missing(CACHE_PARITY, findings) == set()
    assert any("float64" in note for note in findings.notes)
    faulty = CACHE_PARITY.measure(subject_of(lambda dtype: StaleKey(dtype=dtype), load=load))
    assert "single events" in over_limit(CACHE_PARITY, faulty)


class LosesValues(type(gpt())):
    """Reorder leaves the values of the last layer where they were, in a native decoder."""

    def reorder(self, cache, parents):
        moved = super().reorder(cache, parents)
        _, before, _ = self.stored(cache)
        _, values_after, _ = self.stored(moved)
        rows = torch.arange(len(parents)).clamp(max=before.shape[1] - 1)
        slots = min(before.shape[3], values_after.shape[3])
        values_after[-1, :, :, :slots] = before[-1, rows, :, :slots]
        return moved


def test_stored_keys_and_values_show_what_moved_wrongly():
    found = CACHE_PARITY.measure(subject_of(lambda dtype: LosesValues(gpt(dtype).module)))
    assert {"stored keys and values", "reordered rows"} <= over_limit(CACHE_PARITY, found)


def test_a_method_that_only_bears_the_name_of_an_offer_is_not_applicable_with_the_reason():
    class Namesake(Plain):
        def stored(self, tensor):
            return tensor

    findings = CACHE_PARITY.measure(subject_of(lambda dtype: Namesake(dtype=dtype)))
    assert "cannot be read" in findings.not_applicable["stored keys and values"]
    assert missing(CACHE_PARITY, findings) == set()


def test_nan_is_never_the_smaller_number():
    class SometimesNan(Plain):
        """One logit of one step is not a number."""

        def extend(self, events, valid, cache):
            logits, grown = super().extend(events, valid, cache)
            return torch.where((events == 4)[..., None], math.nan, logits), grown

    findings = CACHE_PARITY.measure(subject_of(lambda dtype: SometimesNan(dtype=dtype)))
    assert not math.isfinite(values(findings)["single events"])
    assert values(findings)["not finite logits"] > 0
    assert math.isinf(findings.tables["gaps"]["gap"].max())


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("full", lambda logits: logits[:, -1]),
        ("full", lambda logits: logits.argmax(-1)),
        ("full", lambda _: None),
        ("extend", lambda logits: logits[:, -1]),
    ],
)
def test_an_answer_of_the_wrong_shape_is_refused_with_both_shapes(verb, answer):
    class Misshapen(Plain):
        def full(self, events, valid):
            logits = super().full(events, valid)
            return answer(logits) if verb == "full" else logits

        def extend(self, events, valid, cache):
            logits, grown = super().extend(events, valid, cache)
            ready = verb == "extend" and cache.kept.shape[1]
            return (answer(logits) if ready else logits), grown

    with pytest.raises(DecoderError, match=f"{verb} gave .* due by contract 1"):
        CACHE_PARITY.measure(subject_of(lambda dtype: Misshapen(dtype=dtype)))


def test_a_decoder_that_raises_in_the_middle_is_not_swallowed():
    class Breaks(Plain):
        def reorder(self, cache, parents):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        CACHE_PARITY.measure(subject_of(lambda dtype: Breaks(dtype=dtype)))


def test_whoever_watches_can_stop_it_and_is_told_how_far_it_is():
    told = []

    def watch(done, total, note):
        told.append((done, total, note))
        if len(told) > 5:
            raise CancelledError("enough")

    with pytest.raises(CancelledError):
        CACHE_PARITY.measure(subject_of(toy, progress=watch))
    assert len(told) == 6

    told.clear()
    CACHE_PARITY.measure(subject_of(toy, progress=lambda *step: told.append(step)))
    assert told[-1][0] == told[-1][1]
    assert all(0 <= done <= total for done, total, _ in told)


def test_the_numbers_are_the_same_every_time():
    first, second = (CACHE_PARITY.measure(subject_of(lambda dtype: Open(dtype=dtype))) for _ in range(2))
    assert first.measurements == second.measurements
    assert first.tables["gaps"].equals(second.tables["gaps"])


def test_work_follows_distinct_prefixes_and_not_sessions():
    class Counts(ToyDecoder):
        positions = 0

        def full(self, events, valid):
            Counts.positions += events.numel()
            return super().full(events, valid)

        def extend(self, events, valid, cache):
            Counts.positions += events.numel()
            return super().extend(events, valid, cache)

    few = tuple(Session(f"s{n}", ("opened", "assigned", "repaired")[: 1 + n % 3]) for n in range(9))
    many = tuple(Session(f"s{n}", few[n % 9].events) for n in range(900))
    positions = []
    for sessions in (few, many):
        Counts.positions = 0
        CACHE_PARITY.measure(subject_of(lambda dtype: Counts(MAP.size, 20, dtype), sessions=sessions))
        positions.append(Counts.positions)
    assert positions[0] == positions[1]
    assert len(held_out(subject_of(toy, sessions=many)).rows) == 1
