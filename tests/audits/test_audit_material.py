"""What audits read: rows of held-out sessions, made-up rows, their batches, and how padding is laid out."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.audits import long_row_probes
from auditlib.audits.checked import Alone, CheckedDecoder, refusal
from auditlib.audits.gaps import Gaps, gap
from auditlib.audits.growing import Bench, Growing, Layout
from auditlib.audits.held_out import batches, held_out, material, spread, written
from auditlib.audits.parity_probes import battery
from auditlib.audits.sweep import Advance, cached_logits
from auditlib.errors import CancelledError, DecoderError, InputError
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder
from tests.subjects import MAP, SESSIONS, subject_of

ROWS = st.lists(st.lists(st.integers(3, 7), min_size=1, max_size=9).map(tuple), min_size=1, max_size=30)


def toy(context=20):
    return lambda dtype: ToyDecoder(vocabulary_size=MAP.size, context_length=context, dtype=dtype)


def checked(context=20):
    return CheckedDecoder(toy(context)(torch.float32), "cpu", lambda: None)


def test_every_session_row_begins_a_maximal_row_and_ends_are_never_read():
    subject = subject_of(toy())
    held = held_out(subject)
    for session in SESSIONS:
        row = subject.row(session)[:-1]
        assert any(longer[: len(row)] == row for longer in held.rows)
        assert row in held.sessions
    assert sum(held.weights.values()) == len(SESSIONS)
    assert all(MAP.end not in row for row in held.rows)
    assert held.shortened == 0


def test_sessions_beyond_the_context_are_cut_and_counted():
    subject = subject_of(toy(4))
    held = held_out(subject)
    assert max(len(row) for row in held.rows) == 4
    assert held.shortened == sum(len(session.events) + 1 > 4 for session in SESSIONS)


@pytest.mark.parametrize("context", [1, 2, 3, 7, 20, 64, 129, 400])
def test_made_up_rows_are_valid_fit_the_context_and_reach_its_edge(context):
    subject = subject_of(toy(context))
    rows = material(subject, held_out(subject))
    every = (*rows.made_up, *rows.boundary)
    assert all(row[0] == MAP.start and set(row[1:]) <= set(MAP.domain) for row in every)
    assert {len(row) for row in rows.boundary} == {context, max(1, context - 1)}
    assert all(len(row) <= min(context, 130) for row in rows.made_up)
    assert 1 in {len(row) for row in rows.made_up}


def test_rows_of_one_seed_are_the_same_and_of_another_differ():
    first, again, other = (material(s, held_out(s)) for s in (subject_of(toy(), seed=seed) for seed in (1, 1, 2)))
    assert first == again
    assert first.made_up != other.made_up


@given(ROWS, st.integers(2, 12))
def test_a_spread_keeps_first_and_last_and_stays_in_order(rows, count):
    found = spread(rows, count)
    assert len(found) == min(len(rows), count)
    assert (found[0], found[-1]) == (rows[0], rows[-1])


@given(ROWS, st.integers(1, 8), st.integers(10, 300))
def test_batches_hold_every_row_once_in_order_within_the_bounds(rows, most_rows, most_logits):
    found = list(batches(rows, 5, most_rows, most_logits))
    assert [row for batch in found for row in batch] == rows
    for batch in found:
        assert len(batch) <= most_rows
        assert len(batch) == 1 or len(batch) * max(map(len, batch)) * 5 <= most_logits


@given(ROWS, st.sampled_from(["left", "right", "both"]), st.integers(0, 3), st.booleans())
def test_a_layout_holds_the_events_in_order_and_keeps_padding_on_its_side(pieces, side, spare, garbage):
    subject = subject_of(toy())
    rows = material(subject, held_out(subject))
    events, valid = Layout(side, spare, garbage).lay(pieces, rows, Random(0))
    for piece, ids, keep in zip(pieces, events, valid, strict=True):
        assert tuple(event for event, kept in zip(ids, keep, strict=True) if kept) == piece
        inside = keep[keep.index(True) : len(keep) - keep[::-1].index(True)]
        assert all(inside)
        assert all(0 <= event < rows.vocabulary for event in ids)
        if side != "both":
            assert keep[-1 if side == "left" else 0]
        if not garbage:
            assert all(event == rows.padding for event, kept in zip(ids, keep, strict=True) if not kept)
    assert len({len(ids) for ids in events}) == 1


@settings(deadline=None, max_examples=20)
@given(ROWS, st.integers(1, 4), st.integers(1, 4))
def test_a_sweep_gives_every_event_of_every_row_once_read(rows, first, size):
    decoder = checked()
    logits, seen = cached_logits(decoder, rows, Advance(first, size), 3)
    whole = decoder.whole(rows)
    shortest_prompt = min(first, max(map(len, rows)))
    for row, given_logits, wanted, looked in zip(rows, logits, whole, seen, strict=True):
        assert looked.tolist() == [shortest_prompt - 1 <= place < len(row) for place in range(len(looked))]
        assert torch.equal(given_logits[looked], wanted[looked])


def test_rows_that_take_another_parent_s_place_must_begin_like_it():
    subject = subject_of(toy())
    growing = Growing(Bench(checked(), material(subject, held_out(subject))), "probe", Layout())
    growing.begin([(1, 3, 4), (1, 5, 6)], [2, 2])
    with pytest.raises(DecoderError, match="does not continue its parent"):
        growing.take([1], [(1, 3, 4)])


def test_a_reference_row_is_read_in_a_batch_of_its_own_and_once():
    shapes = []

    class Notes(ToyDecoder):
        def full(self, events, valid):
            shapes.append(tuple(events.shape))
            return super().full(events, valid)

    alone = Alone(CheckedDecoder(Notes(), "cpu", lambda: None))
    assert torch.equal(alone((1, 3, 4)), alone((1, 3, 4)))
    assert shapes == [(1, 3)]


def test_a_gap_that_is_no_number_is_the_largest_of_all():
    left = torch.tensor([[1.0, float("nan")], [float("inf"), 0.0], [2.0, 0.0]])
    right = torch.tensor([[1.0, 0.0], [float("inf"), 0.0], [0.0, 0.0]])
    assert gap(left, right).tolist() == [float("inf"), float("inf"), 2.0]


def test_the_table_keeps_the_worst_prefixes_and_the_measurement_counts_all():
    gaps = Gaps()
    for number in range(1200):
        gaps.add("probe", (1, 3, number), 3, torch.tensor([float(number)], dtype=torch.float64))
    (found,) = gaps.measurements()
    rows = gaps.rows(held_out(subject_of(toy())), "other")
    assert (found.value, found.count) == (1199.0, 1200)
    assert [row[4] for row in rows] == [float(value) for value in range(1199, 699, -1)]
    assert rows[0][2] == written((1, 3, 1199))


def test_rows_that_outgrow_the_memory_of_references_are_read_again(monkeypatch):
    monkeypatch.setattr("auditlib.audits.checked._MOST_REMEMBERED", 3 * MAP.size)
    decoder = checked()
    alone = Alone(decoder)
    alone.ready([(1, 3, 4), (1, 5, 6), (1, 3)])
    for row in ((1, 3, 4), (1, 5, 6), (1, 3), (1, 3, 4)):
        assert torch.equal(alone(row), decoder.whole([row])[0])


def test_without_a_held_out_session_nothing_is_measured():
    with pytest.raises(InputError, match="no held-out session"):
        held_out(subject_of(toy(), sessions=()))


def test_any_exception_is_a_refusal_except_the_wish_to_stop():
    def raises(problem):
        raise problem

    assert refusal(lambda: 1) is None
    assert refusal(lambda: raises(IndexError("slot 21"))) == "IndexError: slot 21"
    with pytest.raises(CancelledError):
        refusal(lambda: raises(CancelledError("stop")))


def test_an_event_that_the_map_lacks_is_refused_with_its_name():
    with pytest.raises(Exception, match="escalated"):
        held_out(subject_of(toy(), sessions=(Session("s", ("escalated",)),)))


@pytest.mark.parametrize(
    ("ends", "reached"), [((), set()), ((11,), {10, 11, 12}), ((20, 300), {19, 20}), ((1,), {1, 2})]
)
def test_rows_are_made_up_on_either_side_of_the_block_ends_that_a_decoder_names(ends, reached):
    class Named(ToyDecoder):
        block_ends = ends

    subject = subject_of(lambda dtype: Named(vocabulary_size=MAP.size, context_length=20, dtype=dtype))
    plain = subject_of(toy())
    rows, others = material(subject, held_out(subject)), material(plain, held_out(plain))
    assert rows.block_ends == tuple(end for end in ends if end <= 20)
    assert {len(row) for row in rows.made_up} == {len(row) for row in others.made_up} | reached
    assert set(others.made_up) <= set(rows.made_up)


def steps_read(ends):
    """Row lengths that each probe of the cached path compares, for a decoder that names these block ends."""

    class Named(ToyDecoder):
        block_ends = ends

    class Steps(Gaps):
        def add(self, probe, row, first_step, gaps):
            read.setdefault(probe, set()).update(range(first_step, first_step + len(gaps)))
            super().add(probe, row, first_step, gaps)

    read: dict[str, set[int]] = {}
    subject = subject_of(lambda dtype: Named(vocabulary_size=MAP.size, context_length=64, dtype=dtype))
    rows = material(subject, held_out(subject))
    for _, work in battery(Bench(CheckedDecoder(subject.decoder, "cpu", lambda: None), rows, Steps())):
        work()
    return read


def test_probes_go_past_a_block_end_unevenly_padded_in_chunks_and_reordered(monkeypatch):
    """A fault that shows only where rows of a batch have just become longer than 23 is left to these probes.

    Those of long rows pass such a length in any decoder, but not just there: they are left out.
    """
    monkeypatch.setattr(long_row_probes, "LONG_ROW_PROBES", ())
    with_end, without = steps_read((23,)), steps_read(())
    around = {22, 23, 24, 25}
    for probe in ("single events", "chunks of 2, 3 and 5", "uneven rows", "padded left", "reordered rows"):
        assert around <= with_end[probe]
    for probe in ("uneven rows", "reordered rows"):
        assert not around & without[probe]


def test_large_calls_are_asked_for_many_events_at_once_many_rows_and_long_rows_behind_padding():
    class Sizes(ToyDecoder):
        def extend(self, events, valid, cache):
            appended.add(int(valid.sum(1).max()))
            return super().extend(events, valid, cache)

        def prefill(self, events, valid):
            behind.update(valid.sum(1)[~valid[:, 0]].tolist())
            return super().prefill(events, valid)

        def reorder(self, cache, parents):
            moved.add(len(parents))
            return super().reorder(cache, parents)

    appended, behind, moved = set(), set(), set()
    subject = subject_of(lambda dtype: Sizes(vocabulary_size=MAP.size, context_length=64, dtype=dtype))
    bench = Bench(CheckedDecoder(subject.decoder, "cpu", lambda: None), material(subject, held_out(subject)))
    for _, work in battery(bench):
        work()
    assert {8, 16, 63} <= appended
    assert max(behind) >= 32
    assert max(moved) > 32
