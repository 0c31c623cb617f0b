"""Coverage as a number: every valid prefix up to a depth is enumerated, compared once, and what is not is said."""

from __future__ import annotations

import dataclasses
from itertools import product

import pytest
import torch

from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.coverage import held_out_coverage
from auditlib.audits.enumerated_parity import enumerate_prefixes, enumerated_parity
from auditlib.audits.gaps import PrefixGaps
from auditlib.audits.held_out import held_out
from auditlib.events.order import EventOrder
from tests import planted
from tests.plain import Plain
from tests.subjects import MAP, over_limit, subject_of, values

torch.set_num_threads(1)
ORDER = EventOrder.from_json(
    '{"format": 1, "version": "1", "rules": [{"template": "init", "event": "opened"},'
    ' {"template": "not succession", "first": "closed", "then": "assigned"},'
    ' {"template": "absence", "event": "repaired", "when": {"attribute": "contract", "in": ["none"]}}],'
    ' "reopening": null}'
).compile(MAP)


def ordered(kind=Plain, order=ORDER, **more):
    return dataclasses.replace(subject_of(lambda dtype: kind(dtype=dtype, **more)), order=order)


def by_trying(depth: int) -> set[tuple[int, ...]]:
    """The valid prefixes of up to `depth` events, by asking the order about every sequence there is."""
    automata = ORDER.automata().values()
    sequences = (events for length in range(depth) for events in product(MAP.domain, repeat=length))
    return {(1, *events) for events in sequences if any(one.state_after(events) >= 0 for one in automata)}


@pytest.mark.parametrize(("budget", "depth"), [(4, 2), (30, 3), (300, 4), (1500, 5)])
def test_the_enumeration_holds_exactly_the_valid_prefixes_up_to_the_depth_that_fits(budget, depth):
    space = enumerate_prefixes(ordered(), budget)
    beginnings = {row[:length] for row in space.rows for length in range(1, len(row) + 1)}
    assert space.depth == depth
    assert beginnings == by_trying(depth)
    assert space.prefixes == len(beginnings)
    assert space.next_count == len(by_trying(depth + 1)) - len(beginnings)
    assert sum(map(len, by_trying(depth + 1) - beginnings)) > budget


def test_each_combination_of_flags_has_its_own_number():
    space = enumerate_prefixes(ordered(), 300)
    for flags, automaton in ORDER.automata().items():
        assert space.by_flags[flags] == sum(automaton.state_after(row[1:]) >= 0 for row in by_trying(space.depth))
    assert len(set(space.by_flags.values())) > 1


def test_where_every_prefix_fits_nothing_is_left_out():
    space = enumerate_prefixes(ordered(context_length=4), 10**6)
    assert (space.depth, space.next_count) == (4, 0)
    found = enumerated_parity(ordered(context_length=4), 10**6)
    assert found.compared == space.prefixes == round(10**space.log10_of_all)
    assert not any(note.startswith("NOT COVERED") for note in found.notes())


def test_a_sound_decoder_agrees_on_every_enumerated_prefix_and_the_note_has_the_numbers():
    found = enumerated_parity(ordered(), 3000)
    assert found.compared == found.enumeration.prefixes
    assert found.worst < 1e-5
    assert next(found.notes()).startswith(f"COVERED {found.compared} of {found.compared} valid prefixes")


@pytest.mark.parametrize("fault", [planted.StaleKey, planted.NeverMoves, planted.KeysMove, planted.PlaceRestarts])
def test_a_fault_of_the_cache_shows_in_the_enumerated_prefixes(fault):
    assert enumerated_parity(ordered(fault), 300).worst > 0.01


def test_a_fault_that_only_a_rare_prefix_shows_is_seen_and_judged():
    class Rare(Plain):
        def extend(self, events, valid, cache):
            logits, grown = super().extend(events, valid, cache)
            rare = (events[:, -1] == 7) & (grown.lengths == 4) & (getattr(cache, "last", events[:, -1]) == 6)
            grown.last = events[:, -1]
            return logits + rare[:, None, None], grown

        def reorder(self, cache, parents):
            moved = super().reorder(cache, parents)
            moved.last = cache.last[parents] if hasattr(cache, "last") else torch.zeros_like(parents)
            return moved

    assert enumerated_parity(ordered(Rare), 1500).worst > 0.5
    assert "reordered rows" in over_limit(CACHE_PARITY, CACHE_PARITY.measure(ordered(Rare)))


def test_logits_that_are_no_numbers_are_counted():
    class Broken(Plain):
        def extend(self, events, valid, cache):
            logits, grown = super().extend(events, valid, cache)
            return logits * torch.where(grown.lengths == 3, torch.nan, 1.0)[:, None, None], grown

    found = enumerated_parity(ordered(Broken), 300)
    assert found.not_finite == len([row for row in by_trying(4) if len(row) == 3])
    assert found.worst == float("inf")


def test_the_audit_says_what_it_covered_in_numbers_and_words():
    findings = CACHE_PARITY.measure(ordered())
    measured = values(findings)
    assert measured["held-out prefixes covered"] == measured["held-out prefixes covered, weighted"] == 1.0
    assert measured["enumerated prefixes"] > 100
    assert sum(note.startswith("COVERED") for note in findings.notes) == 2
    assert sum(note.startswith("NOT COVERED") for note in findings.notes) == 1


def test_held_out_prefixes_that_no_pass_reached_are_counted_with_the_reason():
    subject = ordered(context_length=5)
    held = held_out(subject)
    gaps = PrefixGaps(held)
    row = held.rows[-1]
    gaps.add([row], torch.zeros(1, len(row)), torch.tensor([[place != 2 for place in range(len(row))]]))
    coverage = held_out_coverage(subject, held, gaps)
    longest = {subject.row(one)[:-1] for one in subject.held_out}
    everything = [row[:length] for row in longest for length in range(1, len(row) + 1)]
    assert coverage.distinct == len(set(everything))
    assert coverage.beyond == len({row for row in everything if len(row) > 5}) > 0
    assert coverage.covered == len(row) - 1
    assert 0 < coverage.share < 1
    assert 0 < coverage.weighted_share < 1
    covered, missing = coverage.notes()
    assert covered.startswith(f"COVERED {coverage.covered} of {coverage.distinct}")
    assert f"{coverage.beyond} are longer than the context" in missing
    assert "reached by no pass" in missing
