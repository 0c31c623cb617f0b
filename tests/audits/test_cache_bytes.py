"""What a decoder says its caches take: lies are caught, and no honest way of keeping a cache is taken for one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auditlib.audits.cache_bytes import PROBE, Bounds, bounds
from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.counterexamples import counterexamples_for
from auditlib.audits.faults.memory import MEMORY, bytes_probe
from auditlib.audits.self_check import plant_all, small_world
from auditlib.decoders.paired import PairedDecoder
from auditlib.events.order import EventOrder
from auditlib.sessions.session import Session
from tests.doubles import ToyDecoder
from tests.small_adapters import MAKERS, Made
from tests.small_gpt import EVENT_MAP
from tests.subjects import MAP, gpt, missing, over_limit, subject_of, values


class Shown(PairedDecoder):
    """Shows views of what it holds and tells no shape; sets sixteen slots a row aside for the first few events."""


class CountsUsed(Shown):
    """Counts the slots in use only: no more than is there, no less than the events take."""

    def cache_bytes(self, cache):
        keys, _, lengths = self.stored(cache)
        layers, _, heads, _, size = keys.shape
        return 2 * layers * heads * size * keys.element_size() * int(lengths.sum())


class ShowsCopies(Shown):
    """Keeps a quarter of the bits that it shows: what is shown is nothing that it holds."""

    def stored(self, cache):
        keys, held, lengths = super().stored(cache)
        return keys.clone(), held.clone(), lengths

    def cache_bytes(self, cache):
        return super().cache_bytes(cache) // 4


class Third(Shown):
    def cache_bytes(self, cache):
        return super().cache_bytes(cache) // 3


class Stale(Shown):
    """What the first cache took, for ever."""

    first = None

    def cache_bytes(self, cache):
        self.first = self.first or super().cache_bytes(cache)
        return self.first


class OneRow(Shown):
    def cache_bytes(self, cache):
        return super().cache_bytes(cache) // cache.rows


class Floats(Shown):
    def cache_bytes(self, cache):
        return float(super().cache_bytes(cache))


class Refuses(Shown):
    def cache_bytes(self, cache):
        raise NotImplementedError("bytes")


class More(Shown):
    def cache_bytes(self, cache):
        return super().cache_bytes(cache) + 1


def of(kind):
    return lambda dtype: kind(gpt(dtype), gpt(dtype))


def findings(make):
    return CACHE_PARITY.measure(subject_of(make))


@pytest.mark.parametrize("kind", [Shown, CountsUsed], ids=lambda kind: kind.__name__)
def test_honest_numbers_pass_however_much_is_set_aside(kind):
    found = findings(of(kind))
    assert values(found)[PROBE] == 0
    assert over_limit(CACHE_PARITY, found) == set()
    assert missing(CACHE_PARITY, found) == set()


@pytest.mark.parametrize("kind", [Third, Stale, OneRow, Floats, Refuses, More], ids=lambda kind: kind.__name__)
def test_a_number_that_cannot_be_true_fails_that_check_alone_and_the_notes_say_how(kind):
    found = findings(of(kind))
    assert over_limit(CACHE_PARITY, found) == {PROBE}
    assert any(note.startswith("Said of a cache, ") and "where what it stores takes" in note for note in found.notes)


@pytest.mark.parametrize("make", [of(ShowsCopies), lambda dtype: ToyDecoder(MAP.size, 20, dtype)])
def test_who_shows_nothing_that_it_holds_is_not_asked(make):
    found = findings(make)
    assert PROBE not in values(found)
    assert "no views" in found.not_applicable[PROBE]
    assert missing(CACHE_PARITY, found) == set()


def test_a_shape_is_held_against_the_number_to_the_byte_and_against_what_is_stored():
    sound = gpt()
    events = torch.tensor([[1, 3, 4]])
    _, cache = sound.prefill(events, torch.ones_like(events, dtype=torch.bool))
    found = bounds(sound, sound, cache)
    assert found.least == found.most == sound.cache_bytes(cache)
    assert bounds(sound, None, cache) == replace(found, why="the shape that it tells")

    class Forgets(type(sound)):
        """Number and shape forget the values alike."""

        def cache_shape(self, cache):
            shape = super().cache_shape(cache)
            return replace(shape, layers=1, heads=1, slots=shape.slots // 8)

        def cache_bytes(self, cache):
            return self.cache_shape(cache).bytes

    forgetful = CACHE_PARITY.measure(subject_of(lambda dtype: Forgets(gpt(dtype).module)))
    assert over_limit(CACHE_PARITY, forgetful) == {PROBE}


@pytest.mark.parametrize(
    ("said", "admitted"), [(4, True), (9, True), (3, False), (10, False), (4.0, False), (True, False), (None, False)]
)
def test_only_whole_numbers_within_the_bounds_are_admitted(said, admitted):
    assert Bounds(4, 9, "it").admit(said) is admitted
    assert Bounds(0, 9, "it").admit(True) is False


def test_rows_that_share_their_memory_are_not_counted_twice():
    class Shares:
        def __init__(self):
            self.keys = torch.zeros(2, 1, 2, 3, 4).expand(2, 5, 2, 3, 4)

        def stored(self, cache):
            return self.keys, self.keys, torch.full((5,), 3)

    found = bounds(ToyDecoder(), Shares(), None)
    assert found.least == found.most == 2 * 2 * 3 * 4 * 4


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("bytes"))


@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"examples.markov"}))
def test_every_adapter_says_the_truth_and_each_planted_lie_is_caught_where_it_can_be(name, made):
    def load(dtype):
        return made.decoder(name, dtype)

    names = sorted(EVENT_MAP.events)
    sessions = tuple(Session(f"s{size}", tuple((names * 3)[:size])) for size in (1, 4, 9))
    order = EventOrder("1").compile(EVENT_MAP)
    subject = replace(subject_of(load, sessions=sessions), event_map=EVENT_MAP, order=order)
    world = small_world(subject)
    probe = bytes_probe(world)
    probe.run()
    assert probe.lies == []
    rolls = "rolling" in name or (name.startswith("gemma") and "kept" not in name)
    assert (probe.looked == 0) is rolls
    for planting in plant_all(world.subject, MEMORY):
        assert planting.problem == ""
        assert bool(planting.reason) is rolls
        assert rolls or (planting.value > 0 == planting.clean)


def test_there_is_no_counterexample_of_a_number():
    report = {
        "audits": {"cache parity": {"checks": [{"name": PROBE, "status": "failed", "limit": 0, "unit": "caches"}]}}
    }
    assert counterexamples_for(subject_of(of(Third)), report) == {}
