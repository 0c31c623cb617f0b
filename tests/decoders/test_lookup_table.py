"""The look-up baseline and the ceiling, against counting by hand."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.decoders.lookup import LookupTable, ceiling, near_ties
from auditlib.errors import DecoderError

ROWS = [(1, 3, 4, 2), (1, 3, 4, 2), (1, 3, 5, 2), (1, 6, 4, 5, 2)]
any_rows = st.lists(
    st.lists(st.integers(3, 6), min_size=1, max_size=6).map(lambda ids: (1, *ids, 2)), min_size=1, max_size=12
)


@pytest.mark.parametrize(
    ("prefix", "event"),
    [
        ((1, 3), 4),  # the whole prefix: 4 twice, 5 once
        ((1, 6, 4), 5),
        ((1, 5, 6, 4), 5),  # unknown, but (6, 4) was seen
        ((1, 5, 6, 6, 4), 5),
        ((1, 6, 6, 3), 4),  # down to the last event
        ((1, 4), 2),
        ((1, 9), 2),  # never seen at all: the smallest id that ever follows
    ],
)
def test_the_longest_known_context_decides(prefix, event):
    assert LookupTable(ROWS).predict(prefix) == event


def test_three_events_are_looked_at_before_two():
    table = LookupTable([(1, 3, 4, 5, 6, 2)] + [(1, 6, 4, 5, 3, 2)] * 3)
    assert table.predict((1, 4, 3, 4, 5)) == 6  # after (4, 5) alone it would be 3
    assert table.predict((1, 4, 5, 4, 5)) == 3


def test_ties_go_to_the_smallest_id():
    assert LookupTable([(1, 3, 5, 2), (1, 3, 4, 2)]).predict((1, 3)) == 4


def test_accuracy_counts_every_prefix_with_at_least_one_event():
    found = LookupTable(ROWS).evaluate([(1, 3, 4, 2), (1, 3, 5, 2), (1, 2)])
    assert found.events == 4
    assert found.accuracy == 3 / 4  # only the 5 after 3 is missed
    assert math.isfinite(found.nll)


def test_chances_of_all_events_and_of_the_unknown_add_up_to_one():
    table = LookupTable(ROWS)
    for prefix in ((1, 3), (1, 9), (1, 6, 4)):
        # After a prefix the NLL of a one-step row is -log of its last event's chance.
        chances = [math.exp(-_last_nll(table, (*prefix, event))) for event in (2, 3, 4, 5, 6)]
        unknown = math.exp(-_last_nll(table, (*prefix, 99)))
        known = [event for event in (2, 3, 4, 5, 6) if event in {2, 4, 5}]  # 3 and 6 never follow an event
        assert sum(chances[event - 2] for event in known) + unknown == pytest.approx(1.0)


def test_a_short_prefix_is_one_context_and_not_several():
    # After (1, 3): 4 once, 2 three times. One of 3 kinds at first (2, 4 and the unknown), then 3 alone, then the whole.
    table = LookupTable([(1, 3, 2)] * 3 + [(1, 3, 4, 2)])
    after_last = (1 + 2 * (1 / 3)) / (4 + 2)
    assert _last_nll(table, (1, 3, 4)) == pytest.approx(-math.log((1 + 2 * after_last) / (4 + 2)))


def test_a_table_needs_an_event_to_learn_from():
    for rows in ([], [(1, 2)]):
        with pytest.raises(DecoderError, match="no session has an event to learn from"):
            LookupTable(rows)


def _last_nll(table: LookupTable, row: tuple[int, ...]) -> float:
    whole, shorter = table.evaluate([row]), len(row) > 3 and table.evaluate([row[:-1]])
    return whole.nll * whole.events - (shorter.nll * shorter.events if shorter else 0.0)


@given(any_rows)
def test_the_table_of_the_held_out_rows_themselves_reaches_their_ceiling(rows):
    assert LookupTable(rows).evaluate(rows).accuracy == pytest.approx(ceiling(rows))


@given(any_rows, any_rows)
def test_no_table_is_above_the_ceiling(training, held_out):
    assert LookupTable(training).evaluate(held_out).accuracy <= ceiling(held_out) + 1e-12


@given(any_rows)
def test_the_ceiling_is_what_counting_by_hand_gives(rows):
    counts = defaultdict(Counter)
    for row in rows:
        for size in range(2, len(row)):
            counts[row[:size]][row[size]] += 1
    total = sum(sum(each.values()) for each in counts.values())
    assert ceiling(rows) == pytest.approx(sum(max(each.values()) for each in counts.values()) / total)


def test_near_ties_name_the_prefix_on_which_most_hangs():
    training = [(1, 3, 4, 2)] * 10 + [(1, 3, 5, 2)] * 9 + [(1, 6, 4, 2)] * 9 + [(1, 6, 5, 2)]
    held_out = [(1, 3, 4, 2)] * 3 + [(1, 6, 4, 2)]
    ties = near_ties(training, held_out)
    assert (ties.prefix, ties.prefixes) == ((1, 3), 1)
    assert ties.largest == ties.share == pytest.approx(3 / 8)
    assert near_ties(training).share == pytest.approx(19 / 58)
    assert near_ties(held_out).prefixes == 0


def test_sessions_without_events_leave_nothing_to_measure():
    for ask in (ceiling, LookupTable(ROWS).evaluate):
        with pytest.raises(DecoderError, match="no session"):
            ask([(1, 2)])
