from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from auditlib.decoding import generation
from auditlib.decoding.cache_guard import GuardedDecoder
from auditlib.decoding.lanes import Lanes
from auditlib.decoding.loop import generate
from auditlib.decoding.policies import Setting
from auditlib.errors import ContextExceededError, DecoderError, EventMapError, PolicyError, PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.events.order import EventOrder, OrderRule, Reopening
from tests.doubles import ToyDecoder

MAP = EventMap.build(["assigned", "closed", "opened", "reopened", "repaired"])
ASSIGNED, CLOSED, OPENED, REOPENED, REPAIRED = (MAP.encode([name])[0] for name in sorted(MAP.events))
RULES = (OrderRule("init", "opened"), OrderRule("not succession", "closed", "assigned"))
ORDER = EventOrder("1", RULES, Reopening("reopened", allowed=False)).compile(MAP).automaton({})
FREE = EventOrder("1").compile(MAP).automaton({})
GREEDY = Setting("greedy", "greedy")
SAMPLED = Setting("sampled", "sampled", width=3, top_p=0.95)
BEAM = Setting("beam", "beam", width=3, length_penalty=1.0)
KINDS = [GREEDY, SAMPLED, BEAM, GREEDY.unmasked(), SAMPLED.unmasked(), BEAM.unmasked()]


def run(decoder, prefixes, setting, automaton=FREE, max_new=8, **more):
    automata = [automaton] * len(prefixes)
    return generate(decoder, prefixes, setting, event_map=MAP, automata=automata, max_new=max_new, **more)


def scripted(script, context_length=16, vocabulary_size=MAP.size):
    """Decoder that all but surely emits what `script(row)` says."""

    def logits(row):
        return [20.0 * (event == script(row)) for event in range(vocabulary_size)]

    return ToyDecoder(vocabulary_size, context_length, logits=logits)


def score_of(decoder, prefix, events):
    row, total = tuple(prefix), 0.0
    for event in events:
        logits = torch.tensor(decoder.next_logits(row), dtype=decoder.dtype).double()
        total += float(logits.log_softmax(-1)[event])
        row = (*row, event)
    return total


PREFIXES = [(1,), (1, OPENED), (1, OPENED, ASSIGNED, REPAIRED), (1, OPENED, REPAIRED), (1, REPAIRED, CLOSED, OPENED)]


@pytest.mark.parametrize("setting", KINDS, ids=lambda setting: setting.name)
def test_both_paths_and_every_batch_give_the_same(setting):
    decoder = ToyDecoder(MAP.size, 12, dtype=torch.float64)
    together = run(decoder, PREFIXES, setting)
    assert run(decoder, PREFIXES, setting, cached=False) == together
    assert run(decoder, PREFIXES, setting, batch=1) == together
    turned = run(decoder, PREFIXES[::-1], setting, batch=3)
    assert turned[::-1] == together
    for prefix, hypotheses in zip(PREFIXES, together, strict=True):
        for found in hypotheses:
            assert found.score == pytest.approx(score_of(decoder, prefix, found.events), abs=1e-9)


def test_rows_that_end_at_different_steps_keep_what_they_had():
    decoder = scripted(lambda row: 2 if len(row) >= row[min(1, len(row) - 1)] else REPAIRED)
    prefixes = [(1, event) for event in (OPENED, CLOSED, ASSIGNED, REOPENED, REPAIRED)]
    for (found,), prefix in zip(run(decoder, prefixes, GREEDY.unmasked()), prefixes, strict=True):
        assert found.events == (*[REPAIRED] * (prefix[1] - 2), 2)
        assert found.stop == "end"
        assert found.score == pytest.approx(score_of(decoder, prefix, found.events), abs=1e-6)


@pytest.mark.parametrize("setting", KINDS, ids=lambda setting: setting.name)
def test_a_session_that_never_ends_is_capped_or_made_to_end(setting):
    decoder = scripted(lambda row: REPAIRED, context_length=32)
    for hypotheses in run(decoder, [(1,), (1, OPENED)], setting, max_new=3):
        for found in hypotheses:
            assert len(found.events) <= 3
            assert found.cap == 3
            if setting.order_mask:
                assert (found.stop, found.events[-1]) == ("end", 2)
            elif 2 not in found.events:
                assert (found.stop, len(found.events), found.chosen_end) == ("capped", 3, False)
    forced = run(decoder, [(1,)], GREEDY, max_new=3)[0][0]
    assert (forced.events, forced.forced, forced.chosen_end) == ((REPAIRED, REPAIRED, 2), True, False)


@pytest.mark.parametrize(
    ("length", "mask", "events", "stop"),
    [
        (8, False, 0, "context full"),
        (7, False, 1, "context full"),
        (7, True, 1, "end"),
        (6, True, 2, "end"),
        (8, True, 0, "context full"),
        (5, False, 3, "context full"),
        (4, False, 4, "capped"),
        (3, False, 4, "capped"),
    ],
)
def test_prefix_and_new_events_stay_within_context_and_cap(length, mask, events, stop):
    decoder = scripted(lambda row: REPAIRED, context_length=8)
    setting = GREEDY if mask else GREEDY.unmasked()
    beside = (1, OPENED)  # company with more room
    (found,), _ = run(decoder, [(1, *[REPAIRED] * (length - 1)), beside], setting, max_new=4)
    assert (len(found.events), found.stop) == (events, stop)
    assert found.cap == min(4, 8 - length)


def test_a_prefix_beyond_the_context_is_refused_by_its_place():
    with pytest.raises(ContextExceededError, match="prefix 1 has 9 events, the context holds 8"):
        run(scripted(lambda row: 2, context_length=8), [(1,), (1, *[OPENED] * 8)], GREEDY)


def test_a_prefix_whose_end_is_out_of_reach_says_which_budget_is_short():
    rules = EventOrder(
        "1", (OrderRule("response", "opened", "closed"), OrderRule("chain response", "closed", "repaired"))
    )
    automaton = rules.compile(MAP).automaton({})
    decoder = scripted(lambda row: REPAIRED, context_length=6)
    prefix = (1, OPENED)
    assert run(decoder, [prefix], GREEDY, automaton, max_new=3)[0][0].stop == "end"
    assert run(decoder, [prefix], GREEDY, automaton, max_new=2)[0][0].stop == "capped"
    long = (1, REPAIRED, REPAIRED, OPENED)
    assert run(decoder, [long], GREEDY, automaton, max_new=5)[0][0].stop == "context full"


@pytest.mark.parametrize("setting", [GREEDY, SAMPLED, BEAM])
def test_a_prefix_that_is_already_wrong_gets_no_event_under_the_mask(setting):
    wrong = (1, OPENED, CLOSED, ASSIGNED)
    bad, good = run(ToyDecoder(MAP.size, 16), [wrong, (1, OPENED)], setting, ORDER)
    assert {(found.events, found.stop) for found in bad} == {((), "no legal event")}
    assert all(found.stop == "end" for found in good)


@pytest.mark.parametrize("setting", [GREEDY, SAMPLED, BEAM])
@pytest.mark.parametrize("seed", range(4))
def test_masked_settings_never_break_the_order(setting, seed):
    decoder = ToyDecoder(MAP.size, 16, seed=seed)
    prefixes = [(1,), (1, OPENED), (1, OPENED, CLOSED), (1, OPENED, CLOSED, REPAIRED, CLOSED), (1, OPENED, ASSIGNED)]
    for prefix, hypotheses in zip(prefixes, run(decoder, prefixes, setting, ORDER), strict=True):
        for found in hypotheses:
            assert ORDER.first_wrong((*prefix[1:], *found.events), ended=True) is None
    raw = run(decoder, prefixes, setting.unmasked(), ORDER)
    assert any(
        ORDER.first_wrong((*prefix[1:], *found.events), ended=False)
        for prefix, hypotheses in zip(prefixes, raw, strict=True)
        for found in hypotheses
    ), "the decoder keeps the order by itself, so the test shows nothing"


def test_each_prefix_follows_its_own_automaton():
    decoder = scripted(lambda row: ASSIGNED if len(row) < 5 else 2)
    automata = [ORDER, FREE, ORDER]
    prefixes = [(1, OPENED, CLOSED)] * 3
    found = generate(decoder, prefixes, GREEDY, event_map=MAP, automata=automata, max_new=6)
    assert [ASSIGNED in one.events for (one,) in found] == [False, True, False]


def test_an_unmasked_setting_shows_what_the_decoder_would_emit():
    decoder = scripted(lambda row: (0, 1, MAP.size)[len(row) - 1] if len(row) < 4 else 2, vocabulary_size=MAP.size + 1)
    assert run(decoder, [(1,)], GREEDY.unmasked())[0][0].events == (0, 1, MAP.size, 2)
    assert not {0, 1, MAP.size} & set(run(decoder, [(1,)], GREEDY)[0][0].events)


def test_samples_of_one_prefix_start_differently_and_repeat_by_seed():
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [0.0] * MAP.size)
    many = Setting("s", "sampled", width=16)
    (first,) = run(decoder, [(1, OPENED)], many)
    assert len({found.events[0] for found in first}) > 1
    assert run(decoder, [(1, OPENED)], many) == [first]
    assert run(decoder, [(1, OPENED)], Setting("s", "sampled", width=16, seed=1)) != [first]


@pytest.mark.parametrize("setting", [SAMPLED, SAMPLED.unmasked()], ids=lambda setting: setting.name)
def test_samples_come_by_their_number_and_not_by_who_ended_first(setting):
    # Lengths spread widely, so that an order of endings would show; unmasked, some are capped and never end.
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [0.0] * MAP.size)
    one, many = replace(setting, width=1, top_p=1.0), replace(setting, width=6, top_p=1.0)
    prefixes = [(1, first, second) for first in MAP.domain for second in MAP.domain]
    found = run(decoder, prefixes, many)
    lengths = [[len(sample.events) for sample in samples] for samples in found]
    assert any(row != sorted(row) for row in lengths)
    assert [samples[0] for samples in found] == [samples[0] for samples in run(decoder, prefixes, one)]
    narrower = run(decoder, prefixes, replace(many, width=4))
    assert [samples[:4] for samples in found] == narrower


def test_one_kept_event_is_greedy():
    decoder = ToyDecoder(MAP.size, 16)
    for narrow in (
        Setting("s", "sampled", top_k=1),
        Setting("s", "sampled", top_p=1e-9),
        Setting("b", "beam", width=1),
    ):
        assert [found[0].events for found in run(decoder, PREFIXES, narrow, ORDER)] == [
            found[0].events for found in run(decoder, PREFIXES, GREEDY, ORDER)
        ]


@pytest.mark.parametrize("setting", [GREEDY, SAMPLED, BEAM], ids=lambda setting: setting.name)
def test_a_cap_far_beyond_the_context_costs_no_columns_and_changes_nothing(setting):
    prefixes, context = [(1, OPENED), (1, OPENED, REPAIRED)], 9
    lanes = Lanes.opening(prefixes, [FREE] * 2, setting, [10**9, 3], context)
    assert lanes.events.shape[1] == 7
    assert lanes.draws.shape[1] in (0, 7)
    assert Lanes.opening([(1,) * 9], [FREE], setting, [4], context).events.shape[1] == 0
    decoder = ToyDecoder(MAP.size, context)
    near = run(decoder, prefixes, setting, max_new=7)
    far = run(decoder, prefixes, setting, max_new=10**6)
    assert [[(one.events, one.score) for one in found] for found in far] == [
        [(one.events, one.score) for one in found] for found in near
    ]


def test_of_equal_logits_the_lowest_id_wins():
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [0.0] * MAP.size)
    assert run(decoder, [(1,)], GREEDY)[0][0].events == (2,)
    assert run(decoder, [(1,)], GREEDY, ORDER, max_new=2)[0][0].events == (OPENED, 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_refused(bad):
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [bad, *[0.0] * (MAP.size - 1)])
    with pytest.raises(DecoderError, match="logit of id 0"):
        run(decoder, [(1,)], GREEDY)


def test_a_decoder_that_rules_everything_out_stops_without_an_event():
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [-math.inf] * MAP.size)
    for setting in KINDS:
        assert {(found.events, found.stop) for found in run(decoder, [(1,)], setting)[0]} == {((), "no legal event")}


@pytest.mark.parametrize("setting", [GREEDY, SAMPLED, BEAM], ids=lambda setting: setting.name)
@pytest.mark.parametrize(
    ("other", "max_new", "forced"), [(-math.inf, 8, False), (-math.inf, 1, False), (-9.0, 1, True)]
)
def test_an_end_is_forced_only_where_a_larger_budget_would_have_left_a_choice(setting, other, max_new, forced):
    decoder = ToyDecoder(MAP.size, 16, logits=lambda row: [0.0 if event == 2 else other for event in range(MAP.size)])
    for found in run(decoder, [(1, OPENED)], setting, max_new=max_new)[0]:
        assert (found.events, found.forced, found.chosen_end) == ((2,), forced, not forced)


def test_a_choice_beside_the_mask_is_refused(monkeypatch):
    monkeypatch.setattr(
        generation, "pick_likeliest", lambda scores: (np.arange(len(scores)), np.zeros(len(scores), dtype=int))
    )
    with pytest.raises(PrefixgateError, match="masked id 0"):
        run(ToyDecoder(MAP.size, 16), [(1,)], GREEDY)


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (PolicyError, {"max_new": 0}),
        (PolicyError, {"batch": 0}),
        (PolicyError, {"automata": []}),
        (DecoderError, {"prefixes": [()]}),
        (EventMapError, {"decoder": ToyDecoder(3, 16)}),
    ],
)
def test_wrong_use_is_refused(error, change):
    use = {"decoder": ToyDecoder(MAP.size, 16), "prefixes": [(1,)], "automata": [FREE], "max_new": 4} | change
    with pytest.raises(error):
        generate(use.pop("decoder"), use.pop("prefixes"), GREEDY, event_map=MAP, **use)


def test_only_new_events_are_read_on_the_cached_path():
    class Counting(ToyDecoder):
        read = 0

        def _read(self, events, valid, rows):
            self.read += int(valid.sum())
            return super()._read(events, valid, rows)

    decoder = Counting(MAP.size, 16, logits=scripted(lambda row: REPAIRED).next_logits)
    (found,) = run(decoder, [(1, OPENED, OPENED)], GREEDY.unmasked(), max_new=6)[0]
    assert (len(found.events), decoder.read) == (6, 3 + 5)


def test_a_long_prefix_does_not_make_short_ones_be_padded_to_its_length():
    class Measuring(ToyDecoder):
        padded = 0

        def prefill(self, events, valid):
            self.padded += int((~valid).sum())
            return super().prefill(events, valid)

    decoder = Measuring(MAP.size, 256)
    prefixes = [(1, OPENED), (1, *[REPAIRED] * 250), (1,)]
    found = run(decoder, prefixes, GREEDY, max_new=3)
    assert decoder.padded == 1
    assert found == [run(decoder, [prefix], GREEDY, max_new=3)[0] for prefix in prefixes]


@pytest.mark.parametrize("setting", KINDS, ids=lambda setting: setting.name)
def test_the_loop_works_through_the_guard(setting):
    plain = ToyDecoder(MAP.size, 16)
    guarded = GuardedDecoder(plain, "map", "order", dtype=torch.float32, device="cpu")
    assert run(guarded, PREFIXES, setting) == run(plain, PREFIXES, setting)
