from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.errors import InputError
from auditlib.events.prefixes import PrefixTrie, pad

ROWS = [(1, 3, 4, 2), (1, 3, 4, 2), (1, 3, 5, 2), (1, 3)]
some_rows = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=6).map(tuple), max_size=12)


@pytest.mark.parametrize(
    ("side", "events", "valid"),
    [
        ("right", [[7, 0, 0, 0], [7, 8, 9, 0]], ["x...", "xxx."]),
        ("left", [[0, 0, 0, 7], [0, 7, 8, 9]], ["...x", ".xxx"]),
        ("both", [[0, 7, 0, 0], [7, 8, 9, 0]], [".x..", "xxx."]),
    ],
)
def test_pads_on_the_side_asked_for(side, events, valid):
    batch, flags = pad([[7], [7, 8, 9]], 0, side, width=4)
    assert batch.tolist() == events
    assert ["".join("x" if flag else "." for flag in row) for row in flags] == valid
    assert (batch.dtype, flags.dtype) == (np.int64, np.bool_)


@settings(deadline=None)
@given(some_rows, st.sampled_from(["right", "left", "both"]), st.integers(0, 3))
def test_padding_loses_no_event_and_adds_none(rows, side, extra):
    width = max(map(len, rows), default=0) + extra
    events, valid = pad(rows, 0, side, width)
    assert events.shape == valid.shape == (len(rows), width)
    assert [tuple(row[flags].tolist()) for row, flags in zip(events, valid, strict=True)] == rows
    assert (events[~valid] == 0).all()


def test_a_batch_without_width_is_as_wide_as_its_longest_row():
    assert pad([[7], [7, 8]], 0)[0].shape == (2, 2)
    assert pad([], 0)[0].shape == (0, 0)


@pytest.mark.parametrize(
    ("rows", "side", "width", "says"),
    [
        ([[1], []], "right", None, "row 1 of a batch has no event"),
        ([[1], [1, 2, 3]], "right", 2, "row 1 of a batch has 3 events, more than the width 2"),
        ([[1]], "middle", None, "not 'middle'"),
    ],
)
def test_refuses_rows_that_make_no_batch(rows, side, width, says):
    with pytest.raises(InputError, match=says):
        pad(rows, 0, side, width)


def every_prefix(rows):
    return Counter(row[: place + 1] for row in rows for place in range(len(row)))


@settings(deadline=None)
@given(some_rows)
def test_a_trie_holds_every_distinct_prefix_once_with_the_rows_that_begin_with_it(rows):
    trie = PrefixTrie.from_rows(rows)
    found = {
        trie.prefix(depth, index): int(weight)
        for depth, level in enumerate(trie.levels)
        for index, weight in enumerate(level.weight)
    }
    assert found == every_prefix(rows)
    assert trie.count == len(found)
    for depth, level in enumerate(trie.levels):
        assert [tuple(row) for row in trie.rows(depth).tolist()] == [
            trie.prefix(depth, index) for index in range(len(level.event))
        ]


@settings(deadline=None)
@given(some_rows)
def test_leaves_are_the_rows_that_no_other_continues_and_hold_every_prefix(rows):
    trie = PrefixTrie.from_rows(rows)
    leaves = trie.leaves()
    begun = {row for row in rows for other in rows if len(other) > len(row) and other[: len(row)] == row}
    assert sorted(leaves) == sorted(set(rows) - begun)
    assert set(every_prefix(leaves)) == set(every_prefix(rows))


@settings(deadline=None)
@given(some_rows)
def test_next_events_are_counted_for_every_prefix(rows):
    trie = PrefixTrie.from_rows(rows)
    for depth, level in enumerate(trie.levels):
        counts = trie.next_counts(depth, 5)
        for index in range(len(level.event)):
            prefix = trie.prefix(depth, index)
            following = Counter(row[depth + 1] for row in rows if row[: depth + 1] == prefix and len(row) > depth + 1)
            assert trie.next_events(depth, index) == following
            assert {event: count for event, count in enumerate(counts[index].tolist()) if count} == following


def test_levels_are_ordered_by_parent_and_event_whatever_the_order_of_the_rows():
    one, other = PrefixTrie.from_rows(ROWS), PrefixTrie.from_rows(reversed(ROWS))
    for level, same in zip(one.levels, other.levels, strict=True):
        assert level.parent.tolist() == same.parent.tolist()
        assert level.event.tolist() == same.event.tolist()
        assert level.weight.tolist() == same.weight.tolist()
    assert one.levels[0].parent.tolist() == [-1]
    assert one.levels[2].event.tolist() == [4, 5]
    assert one.levels[2].weight.tolist() == [2, 1]


def test_a_trie_of_nothing_is_empty_and_a_row_of_nothing_is_refused():
    empty = PrefixTrie.from_rows([])
    assert (empty.count, empty.levels, empty.leaves()) == (0, (), [])
    with pytest.raises(InputError, match="has no event"):
        PrefixTrie.from_rows([(1,), ()])


def test_one_long_row_among_many_short_ones_costs_no_rectangle():
    rows = [(1, 100 + n) for n in range(2000)] + [tuple(range(1, 5001))]
    trie = PrefixTrie.from_rows(rows)
    assert trie.count == 1 + 2000 + 4999
    assert len(trie.levels) == 5000
