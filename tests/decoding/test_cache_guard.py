from __future__ import annotations

import hashlib
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from auditlib.decoders.protocol import Decoder
from auditlib.decoding.cache_guard import CacheIdentity, GuardedCache, GuardedDecoder
from auditlib.errors import CacheRejectedError, DecoderError
from tests.doubles import ToyDecoder
from tests.small_gpt import everywhere, small_gpt, some_events

IDENTITY = CacheIdentity("map", "order", "torch.float32", "cpu", "rotary", "rev", "sha256:w", ((1, 3, 4), (1, 5)))


class WeightedToy(ToyDecoder):
    """Toy with one weight that can be named, and a cache that can be looked into."""

    def __init__(self, **more):
        super().__init__(**more)
        self.weight = torch.zeros(1)
        self.revision = "toy"

    def fingerprint(self):
        return "sha256:" + hashlib.sha256(self.weight.numpy().tobytes()).hexdigest()

    def stored(self, cache):
        lengths = torch.tensor([len(row) for row in cache.rows])
        return torch.zeros(1), torch.zeros(1), lengths


def guarded(decoder=None, event_map="map", event_order="order", dtype=torch.float32, device="cpu"):
    return GuardedDecoder(decoder or WeightedToy(), event_map, event_order, dtype=dtype, device=device)


def tensors(*rows):
    width = max(map(len, rows))
    events = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    return events, torch.tensor([[n < len(row) for n in range(width)] for row in rows])


def field_of(call, *arguments):
    with pytest.raises(CacheRejectedError) as refusal:
        call(*arguments)
    return refusal.value.field


def test_a_guarded_decoder_is_a_decoder_and_answers_the_same():
    guard, toy = guarded(), WeightedToy()
    assert isinstance(guard, Decoder)
    events, valid = tensors((1, 3, 4), (1, 5))
    logits, cache = guard.prefill(events, valid)
    assert torch.equal(logits, toy.prefill(events, valid)[0])
    assert cache.identity.rows == ((1, 3, 4), (1, 5))
    cache = guard.reorder(cache, torch.tensor([1, 0, 1]))
    new, kept = torch.tensor([[3, 4], [6, 0], [0, 0]]), torch.tensor([[True, True], [True, False], [False, False]])
    logits, cache = guard.extend(new, kept, cache)
    rows = ((1, 5, 3, 4), (1, 3, 4, 6), (1, 5))
    assert guard.require(cache, guard.identity(rows)) is cache
    assert torch.equal(logits[0, 1], toy.full(*tensors(rows[0]))[0, -1])
    assert guard.cache_bytes(cache) == 8 * sum(map(len, rows))


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ([(1, 3, 4), (1, 6)], "events"),
        ([(1, 5, 4), (1, 5)], "events"),
        ([(1, 5), (1, 3, 4)], "length"),
        ([(1, 3, 4)], "rows"),
        ([(1, 3, 4), (1, 5), (1, 5)], "rows"),
        ([(1, 3), (1, 5)], "length"),
        ([(1, 3, 4, 5), (1, 5)], "length"),
        ([(1, 3, 4), (1,)], "length"),
    ],
)
def test_a_request_for_other_events_is_refused(asked, field):
    guard = guarded()
    _, cache = guard.prefill(*tensors((1, 3, 4), (1, 5)))
    assert field_of(guard.require, cache, guard.identity(asked)) == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"event_map": "map 2"}, "event map"),
        ({"event_order": "order 2"}, "event order"),
        ({"dtype": torch.float64}, "dtype"),
        ({"device": "cuda"}, "device"),
    ],
)
def test_another_surrounding_is_refused_by_require_extend_and_reorder(change, field):
    decoder = WeightedToy()
    _, cache = guarded(decoder).prefill(*tensors((1, 3)))
    other = guarded(decoder, **change)
    assert field_of(other.require, cache, other.identity([(1, 3)])) == field
    assert field_of(other.extend, *tensors((4,)), cache) == field
    assert field_of(other.reorder, cache, torch.tensor([0])) == field


def test_a_bit_of_a_weight_under_the_same_name_voids_older_caches():
    decoder = WeightedToy()
    guard = guarded(decoder)
    _, cache = guard.prefill(*tensors((1, 3)))
    decoder.weight.view(torch.int32)[0] ^= 1
    assert decoder.revision == "toy"
    assert field_of(guard.extend, *tensors((4,)), cache) == "weights"


def test_another_revision_is_refused_by_its_name():
    _, cache = guarded().prefill(*tensors((1, 3)))
    other = WeightedToy()
    other.revision = "toy 2"
    assert field_of(guarded(other).extend, *tensors((4,)), cache) == "revision"


def test_a_cache_is_spent_by_extend_and_not_by_reorder():
    guard = guarded()
    _, cache = guard.prefill(*tensors((1, 3)))
    twin = guard.reorder(cache, torch.tensor([0]))
    guard.extend(*tensors((4,)), cache)
    assert field_of(guard.extend, *tensors((5,)), cache) == "spent"
    assert field_of(guard.reorder, cache, torch.tensor([0])) == "spent"
    assert field_of(guard.require, cache, guard.identity([(1, 3)])) == "spent"
    guard.extend(*tensors((5,)), twin)


def test_a_cache_whose_extend_failed_is_spent():
    guard = guarded(WeightedToy(context_length=3))
    _, cache = guard.prefill(*tensors((1, 3, 4)))
    with pytest.raises(Exception, match="context"):
        guard.extend(*tensors((5,)), cache)
    assert field_of(guard.extend, *tensors((5,)), cache) == "spent"


@pytest.mark.parametrize("stored", [(1, 3, 4), (1,)])
def test_a_cache_that_stores_more_or_less_than_it_stands_for_is_refused(stored):
    guard = guarded()
    _, cache = guard.prefill(*tensors((1, 3)))
    _, inner = guard.decoder.prefill(*tensors(stored))
    assert field_of(guard.require, GuardedCache(inner, cache.identity), guard.identity([(1, 3)])) == "length"


def test_a_cache_without_identity_is_refused():
    guard = guarded()
    _, raw = guard.decoder.prefill(*tensors((1, 3)))
    assert field_of(guard.extend, *tensors((4,)), raw) == "kind"


def test_new_events_for_another_number_of_rows_are_refused():
    guard = guarded()
    _, cache = guard.prefill(*tensors((1, 3)))
    assert field_of(guard.extend, *tensors((4,), (5,)), cache) == "rows"


@pytest.mark.parametrize("field", [field.name for field in fields(CacheIdentity) if field.name != "rows"])
def test_every_field_counts_in_the_key_and_in_the_comparison(field):
    other = replace(IDENTITY, **{field: getattr(IDENTITY, field) + "x"})
    assert other.key != IDENTITY.key
    assert field_of(IDENTITY.check, other) == field.replace("_", " ")


def test_values_that_change_places_change_the_key():
    swapped = replace(IDENTITY, event_map=IDENTITY.event_order, event_order=IDENTITY.event_map)
    assert swapped.key != IDENTITY.key
    assert (
        replace(IDENTITY, event_map="ab", event_order="c").key != replace(IDENTITY, event_map="a", event_order="bc").key
    )


ROWS = st.lists(st.lists(st.integers(0, 400), max_size=4).map(tuple), max_size=4).map(tuple)


@given(ROWS, ROWS)
def test_keys_are_equal_exactly_where_rows_are(left, right):
    one, other = replace(IDENTITY, rows=left), replace(IDENTITY, rows=right)
    assert (one.key == other.key) == (left == right)
    if left != right:
        with pytest.raises(CacheRejectedError):
            one.check(other)
    else:
        one.check(other)


def test_what_the_decoder_refuses_is_refused_in_its_own_words():
    plain = small_gpt()
    guard = GuardedDecoder(plain, "map", "order", dtype=torch.float32, device="cpu")
    events = some_events(2, 4)
    valid = everywhere(events)
    _, cache = guard.prefill(events, valid)
    for ask in (
        lambda one, _: one.prefill(events, valid[:, :2]),
        lambda one, _: one.prefill(events[0], valid[0]),
        lambda one, own: one.reorder(own, torch.tensor([5])),
        lambda one, own: one.reorder(own, torch.tensor([-1])),
    ):
        refusals = []
        for one, own in ((plain, cache.inner), (guard, cache)):
            with pytest.raises(DecoderError) as refused:
                ask(one, own)
            refusals.append(str(refused.value))
        assert refusals[0] == refusals[1]
    assert guard.require(cache, guard.identity(events.tolist())) is cache
