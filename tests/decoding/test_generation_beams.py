"""Beam search against a search that enumerates, and against the faults that were seen elsewhere."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from auditlib.decoding.choices import pick_beams
from auditlib.decoding.generated import Outcome, normalised
from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Setting
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder
from tests.doubles import ToyDecoder

MAP = EventMap.build(["a", "b", "c"])
FREE = EventOrder("1").compile(MAP).automaton({})
END = MAP.end


def beams(decoder, prefixes, width=3, penalty=1.0, max_new=4, order_mask=True):
    setting = Setting("beam", "beam", order_mask, width=width, length_penalty=penalty)
    return generate(decoder, prefixes, setting, event_map=MAP, automata=[FREE] * len(prefixes), max_new=max_new)


def log_probabilities(decoder, row):
    return torch.tensor(decoder.next_logits(row), dtype=torch.float64).log_softmax(-1).tolist()


def reference(decoder, prefix, setting, max_new):
    """Beam search written step by step for one prefix, with Python lists and nothing shared with the loop."""
    live, ended = [((), 0.0)], []
    for step in range(max_new):
        events = [END] if step == max_new - 1 else [END, *MAP.domain]
        grown = []
        for new, score in live:
            gains = log_probabilities(decoder, (*prefix, *new))
            grown += [((*new, event), score + gains[event]) for event in sorted(events)]
        grown.sort(key=lambda one: -one[1])
        ended += [one for one in grown[: setting.width] if one[0][-1] == END]
        ended = ended[: setting.width]
        live = [one for one in grown if one[0][-1] != END][: setting.width]
        if len(ended) == setting.width or not live:
            break
    return sorted(ended, key=lambda one: -one[1] / len(one[0]) ** setting.length_penalty)


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("penalty", [0.0, 1.0, -0.5])
def test_beams_equal_a_plain_search_row_by_row(width, penalty):
    decoder = ToyDecoder(MAP.size, 16, dtype=torch.float64, seed=3)
    prefixes = [(1, *row) for n in range(4) for row in itertools.islice(itertools.product(MAP.domain, repeat=n), 5)]
    setting = Setting("beam", "beam", width=width, length_penalty=penalty)
    for prefix, found in zip(prefixes, beams(decoder, prefixes, width, penalty), strict=True):
        wanted = reference(decoder, prefix, setting, 4)
        assert [one.events for one in found] == [events for events, _ in wanted]
        assert [one.score for one in found] == pytest.approx([score for _, score in wanted])


def test_a_beam_as_wide_as_everything_finds_the_best_of_all():
    decoder = ToyDecoder(MAP.size, 16, dtype=torch.float64, seed=5)
    every = [(*row, END) for n in range(3) for row in itertools.product(MAP.domain, repeat=n)]

    def score(events):
        return sum(log_probabilities(decoder, (1, *events[:n]))[event] for n, event in enumerate(events))

    best = max(every, key=score)
    found = beams(decoder, [(1,)], width=len(every), penalty=0.0, max_new=3)[0]
    assert found[0].events == best
    assert {one.events for one in found} == set(every)


def test_hypotheses_of_one_prefix_differ_and_come_best_first():
    decoder = ToyDecoder(MAP.size, 16)
    setting = Setting("beam", "beam", width=3, length_penalty=1.0)
    for found in beams(decoder, [(1,), (1, 3), (1, 3, 4)]):
        assert len({one.events for one in found}) == len(found) == 3
        ranks = [normalised(one.score, len(one.events), setting) for one in found]
        assert ranks == sorted(ranks, reverse=True)


def test_much_mass_on_the_end_leaves_enough_candidates():
    # Every row all but ends; as many ends as beams come up at once, and the live rows must still be three.
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [-9.0, -9.0, 6.0, 0.3, 0.2, 0.1])
    found = beams(decoder, [(1,)], width=3)[0]
    assert [one.stop for one in found] == ["end"] * 3
    totals = torch.tensor(
        [[-9.0, -9.0, -0.1, -2.0, -2.1, -2.2], [-9.0, -9.0, -0.2, -3.0, -3.1, -3.2]], dtype=torch.float64
    )
    parents, events = pick_beams(totals, np.array([0, 0]), 3, END)
    assert sorted(zip(parents.tolist(), events.tolist(), strict=True)) == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 2)]


def test_a_finished_beam_is_untouched_by_longer_company():
    def logits(row):
        if row[:2] == (1, 3):  # this prefix ends at once, the other goes on
            return [-20.0, -20.0, 9.0, 0.0, -1.0, -2.0]
        return [-20.0, -20.0, -9.0 if len(row) < 10 else 9.0, 1.0, 0.5, 0.0]

    decoder = ToyDecoder(MAP.size, 16, logits=logits)
    (alone,) = beams(decoder, [(1, 3)], max_new=12)
    together = beams(decoder, [(1, 3), (1, 4)], max_new=12)
    assert together[0] == alone
    assert len(together[1][0].events) > len(alone[0].events)


def test_the_length_penalty_counts_new_events_only():
    # Score -2 over 1 new event against -3 over 2: by new events the longer one wins, by whole rows the shorter.
    setting = Setting("beam", "beam", width=2, length_penalty=1.0)
    outcome = Outcome(setting)
    outcome.open(0, 8)
    outcome.add_ended(0, (END,), -2.0, forced=False)
    outcome.add_ended(0, (3, END), -3.0, forced=False)
    assert [len(one.events) for one in outcome.take(0)] == [2, 1]


def test_finished_and_unfinished_hypotheses_are_ranked_alike():
    setting = Setting("beam", "beam", width=2, length_penalty=1.0)
    outcome = Outcome(setting)
    outcome.open(0, 3)
    outcome.add_ended(0, (3, 3, END), -3.0, forced=False)
    outcome.add_unended(0, (3, 4, 4), -3.0 + 1e-9, "capped")
    outcome.add_unended(0, (3, 4, 3), -3.0 - 1e-9, "capped")
    assert [one.events for one in outcome.take(0)] == [(3, 4, 4), (3, 3, END)]


def test_beams_without_the_mask_fill_up_with_capped_ones():
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [-50.0, -50.0, -50.0, 1.0, 0.5, 0.0])
    found = beams(decoder, [(1,)], max_new=3, order_mask=False)[0]
    assert [(one.stop, len(one.events)) for one in found] == [("capped", 3)] * 3


class Stuck(ToyDecoder):
    """Leaves rows where they were when as many go on: the reorder that is forgotten."""

    def reorder(self, cache, parents):
        kept = parents if len(parents) != len(cache.rows) else torch.arange(len(parents))
        return super().reorder(cache, kept)


@pytest.mark.parametrize(("kind", "follows"), [(ToyDecoder, True), (Stuck, False)])
def test_scores_are_those_of_the_events_only_where_the_cache_follows_the_beams(kind, follows):
    decoder, prefixes = kind(MAP.size, 16, dtype=torch.float64, seed=1), [(1, 3), (1, 4), (1, 5, 3)]
    gaps = [
        abs(one.score - sum(log_probabilities(decoder, (*row, *one.events[:n]))[e] for n, e in enumerate(one.events)))
        for row, found in zip(prefixes, beams(decoder, prefixes, max_new=6), strict=True)
        for one in found
    ]
    assert (max(gaps) < 1e-9) == follows
