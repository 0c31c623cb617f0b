"""The native decoder: both paths agree to rounding, in every shape in which a cache can be asked."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.decoders.capabilities import Alterable, BlockEnds, Described, Differentiable, Fingerprinted, Inspectable
from auditlib.decoders.event_gpt import EventGpt
from auditlib.decoders.protocol import Decoder
from auditlib.errors import CacheRejectedError, ContextExceededError, DecoderError
from tests.small_gpt import CONTEXT, everywhere, small_gpt, some_events

LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 0.08}
KINDS = [
    (dtype, positions, kind) for dtype in LIMITS for positions in ("rotary", "learned") for kind in ("layer", "rms")
]


def alone(decoder: EventGpt, row: torch.Tensor) -> torch.Tensor:
    """Logits [T, V] of one row by itself and unpadded: what every other way must reproduce."""
    return decoder.full(row[None], everywhere(row[None]))[0]


def by_steps(decoder: EventGpt, events: torch.Tensor, valid: torch.Tensor, cuts: list[int]) -> torch.Tensor:
    """Logits [B, T, V] by prefill of the first cut and an extend for each later one; NaN before the prefill's last."""
    found = torch.full((*events.shape, decoder.vocabulary_size), float("nan"), dtype=decoder.full(events, valid).dtype)
    logits, cache = decoder.prefill(events[:, : cuts[0]], valid[:, : cuts[0]])
    for row in range(len(events)):
        found[row, int(valid[row, : cuts[0]].nonzero().max())] = logits[row]
    for start, stop in zip(cuts, [*cuts[1:], events.shape[1]], strict=True):
        found[:, start:stop], cache = decoder.extend(events[:, start:stop], valid[:, start:stop], cache)
    return found


def largest_gap(decoder: EventGpt, events: torch.Tensor, valid: torch.Tensor, cuts: list[int]) -> float:
    """Largest difference between cached logits and those of each row alone, over all that the cached path gave."""
    found = by_steps(decoder, events, valid, cuts)
    gaps = []
    for row, keep in enumerate(valid):
        known = ~found[row, keep].isnan().any(-1)
        gaps.append((found[row, keep] - alone(decoder, events[row, keep]))[known].abs().max())
    return float(torch.stack(gaps).max())


def padding(kind: str, rows: int, size: int) -> torch.Tensor:
    """Rows of different lengths, padded as named."""
    lengths = torch.arange(rows) * 3 % (size - 4) + 3
    places = torch.arange(size).expand(rows, size)
    before = {"left": size - lengths, "right": torch.zeros_like(lengths), "both": (size - lengths) // 2}[kind]
    return (places >= before[:, None]) & (places < (before + lengths)[:, None])


@pytest.mark.parametrize(("dtype", "positions", "normalisation"), KINDS)
def test_single_events_and_chunks_agree_with_the_full_path(dtype, positions, normalisation):
    decoder = small_gpt(dtype, positions=positions, normalisation=normalisation)
    events = some_events(4, CONTEXT)
    for cuts in ([1, *range(2, CONTEXT)], [1, 3, 6, 11, 16], [7], [CONTEXT - 1]):
        assert largest_gap(decoder, events, everywhere(events), cuts) <= LIMITS[dtype]


@pytest.mark.parametrize(("dtype", "positions", "normalisation"), KINDS)
@pytest.mark.parametrize("kind", ["left", "right", "both"])
def test_padded_rows_agree_with_the_same_rows_alone(kind, dtype, positions, normalisation):
    decoder = small_gpt(dtype, positions=positions, normalisation=normalisation)
    events, valid = some_events(5, 14), padding(kind, 5, 14)
    full = decoder.full(events, valid)
    for row, keep in enumerate(valid):
        assert (full[row, keep] - alone(decoder, events[row, keep])).abs().max() <= LIMITS[dtype]
    # The prefill holds all of the left padding; afterwards rows advance by 0, 1 or 2 events.
    assert largest_gap(decoder, events, valid, [12, 13]) <= LIMITS[dtype]


@pytest.mark.parametrize("kind", ["left", "right", "both"])
def test_one_padded_row_agrees_with_the_row_alone(kind):
    decoder = small_gpt(torch.float64)
    events, valid = some_events(1, 14), padding(kind, 1, 14)
    full = decoder.full(events, valid)[0, valid[0]]
    logits, cache = decoder.prefill(events, valid)
    more = torch.tensor([[4, 5]])
    continued, _ = decoder.extend(more, everywhere(more), cache)
    reference = alone(decoder, torch.cat([events[0, valid[0]], more[0]]))
    assert torch.allclose(full, reference[:-2], atol=1e-12)
    assert torch.allclose(torch.cat([logits, continued[0]]), reference[-3:], atol=1e-12)


def test_a_narrow_window_shows_as_a_gap_only_once_it_is_full():
    decoder = small_gpt(torch.float64, cached_attention_window=4)
    events = some_events(2, 10)
    found = by_steps(decoder, events, everywhere(events), [1, *range(2, 10)])
    gaps = (found - decoder.full(events, everywhere(events))).abs().amax((0, 2))
    assert gaps[:4].max() < 1e-12 < 1e-6 < gaps[4:].min()
    chunked = by_steps(decoder, events, everywhere(events), [1, 4, 7])
    assert torch.allclose(found, chunked, atol=1e-12)  # the window means the same in one-event steps and in chunks


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_padding_cut_anywhere_gives_each_rows_own_logits(data):
    decoder = small_gpt(torch.float64)
    rows, size = data.draw(st.integers(1, 5)), data.draw(st.integers(2, CONTEXT))
    valid = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=size, max_size=size), min_size=rows, max_size=rows))
    )
    first = data.draw(st.integers(1, size - 1))
    valid[:, data.draw(st.integers(0, first - 1))] = True  # a prefill needs one event a row
    cuts = sorted({first, *data.draw(st.lists(st.integers(first, size - 1), max_size=4))})
    assert largest_gap(decoder, some_events(rows, size), valid, cuts) < 1e-12


@pytest.mark.parametrize("dtype", list(LIMITS))
def test_reordered_duplicated_and_dropped_rows_continue_their_parents(dtype):
    decoder = small_gpt(dtype)
    events, valid = some_events(4, 12), padding("left", 4, 12)
    _, cache = decoder.prefill(events, valid)
    parents = [2, 0, 2, 3]
    history = [events[parent, valid[parent]] for parent in parents]
    for step, chosen in enumerate([list(range(4)), [3, 3, 0], [1, 0]]):
        cache = decoder.reorder(cache, torch.tensor(parents if step == 0 else chosen))
        history = [history[row] for row in chosen]
        new = torch.full((len(chosen), 2), 3 + step)
        new[:, 1] = torch.arange(len(chosen)) % 4 + 3
        logits, cache = decoder.extend(new, everywhere(new), cache)
        history = [torch.cat([row, more]) for row, more in zip(history, new, strict=True)]
        for row, ids in enumerate(history):
            assert (logits[row] - alone(decoder, ids)[-2:]).abs().max() <= LIMITS[dtype]


def test_reorder_copies_and_leaves_the_old_cache_usable():
    decoder = small_gpt()
    events = some_events(3, 6)
    _, cache = decoder.prefill(events, everywhere(events))
    moved = decoder.reorder(cache, torch.tensor([1, 1]))
    one = torch.tensor([[5], [6]])
    decoder.extend(one, everywhere(one), moved)
    assert moved.store.untyped_storage().data_ptr() != cache.store.untyped_storage().data_ptr()
    more = torch.tensor([[3], [3], [3]])
    logits, _ = decoder.extend(more, everywhere(more), cache)
    reference = decoder.full(torch.cat([events, more], 1), everywhere(torch.cat([events, more], 1)))[:, -1]
    assert torch.allclose(logits[:, 0], reference, atol=2e-5)


def test_every_row_can_be_dropped():
    decoder = small_gpt()
    events, valid = some_events(3, 6), padding("right", 3, 6)
    _, cache = decoder.prefill(events, valid)
    nobody = decoder.reorder(cache, torch.empty(0, dtype=torch.int64))
    nothing = torch.empty(0, 1, dtype=torch.int64)
    logits, _ = decoder.extend(nothing, nothing.bool(), nobody)
    assert logits.shape == (0, 1, decoder.vocabulary_size)


def test_the_boundary_is_exact_and_a_refusal_changes_nothing():
    decoder = small_gpt(torch.float64)
    events = some_events(2, CONTEXT + 1)
    assert decoder.full(events[:, :CONTEXT], everywhere(events[:, :CONTEXT])).isfinite().all()
    with pytest.raises(ContextExceededError, match=f"{CONTEXT + 1} events .* context length of {CONTEXT}"):
        decoder.full(events, everywhere(events))
    with pytest.raises(ContextExceededError):
        decoder.prefill(events, everywhere(events))
    _, cache = decoder.prefill(events[:, : CONTEXT - 1], everywhere(events[:, : CONTEXT - 1]))
    two = events[:, :2]
    with pytest.raises(ContextExceededError, match="row 0 would hold 21 events, 1 more"):
        decoder.extend(two, everywhere(two), cache)
    one = events[:, CONTEXT - 1 : CONTEXT]
    logits, cache = decoder.extend(one, everywhere(one), cache)
    assert torch.allclose(logits[:, 0], decoder.full(events[:, :CONTEXT], everywhere(events[:, :CONTEXT]))[:, -1])
    with pytest.raises(ContextExceededError):
        decoder.extend(one, everywhere(one), cache)


def test_padding_takes_no_room_in_the_context():
    decoder = small_gpt(torch.float64)
    events, valid = some_events(1, 2 * CONTEXT), torch.zeros(1, 2 * CONTEXT, dtype=torch.bool)
    valid[:, ::2] = True
    logits, _ = decoder.prefill(events, valid)
    assert torch.allclose(decoder.full(events, valid)[0, valid[0]], alone(decoder, events[0, valid[0]]), atol=1e-12)
    assert torch.allclose(logits[0], alone(decoder, events[0, valid[0]])[-1], atol=1e-12)


@pytest.mark.parametrize("rubbish", [-7, 99_999, 2])
def test_what_stands_at_invalid_positions_is_never_read(rubbish):
    decoder = small_gpt()
    events, valid = some_events(4, 10), padding("both", 4, 10)
    spoiled = events.masked_fill(~valid, rubbish)
    assert torch.equal(decoder.full(events, valid)[valid], decoder.full(spoiled, valid)[valid])
    assert torch.equal(decoder.prefill(events, valid)[0], decoder.prefill(spoiled, valid)[0])


def test_extend_writes_in_place_and_spends_the_old_cache():
    decoder = small_gpt()
    events = some_events(2, 5)
    _, cache = decoder.prefill(events, everywhere(events))
    one = torch.tensor([[3], [4]])
    _, continued = decoder.extend(one, everywhere(one), cache)
    assert continued.store.data_ptr() == cache.store.data_ptr()
    assert cache.spent
    assert not continued.spent
    for use in (lambda: decoder.extend(one, everywhere(one), cache), lambda: decoder.reorder(cache, torch.tensor([0]))):
        with pytest.raises(CacheRejectedError) as caught:
            use()
        assert caught.value.field == "spent"


def test_of_two_threads_that_continue_one_cache_one_is_refused():
    decoder = small_gpt()
    events = some_events(1, 3)
    one = torch.tensor([[3]])
    for _ in range(20):
        _, cache = decoder.prefill(events, everywhere(events))
        outcomes: list[str] = []
        gate = threading.Barrier(2)

        def go(cache=cache, gate=gate, outcomes=outcomes):
            gate.wait()
            try:
                decoder.extend(one, everywhere(one), cache)
                outcomes.append("went on")
            except CacheRejectedError as problem:
                outcomes.append(problem.field)

        threads = [threading.Thread(target=go) for _ in range(2)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert sorted(outcomes) == ["spent", "went on"]


@pytest.mark.parametrize(
    ("other", "field"),
    [
        (lambda: small_gpt(seed=1), "revision"),
        (lambda: small_gpt(context_length=CONTEXT + 1), "revision"),
        (lambda: small_gpt(torch.float64), "revision"),
    ],
)
def test_another_decoders_cache_is_rejected(other, field):
    events = some_events(2, 5)
    _, cache = small_gpt().prefill(events, everywhere(events))
    with pytest.raises(CacheRejectedError) as caught:
        other().extend(events[:, :1], everywhere(events[:, :1]), cache)
    assert caught.value.field == field


def test_a_cache_of_other_rows_or_of_no_kind_is_rejected():
    decoder, events = small_gpt(), some_events(3, 5)
    _, cache = decoder.prefill(events, everywhere(events))
    for thing, field in ((cache, "rows"), ({"keys": 1}, "kind"), (None, "kind")):
        with pytest.raises(CacheRejectedError) as caught:
            decoder.extend(events[:2, :1], everywhere(events[:2, :1]), thing)
        assert caught.value.field == field


def test_a_cache_whose_tensors_were_swapped_for_another_dtype_is_rejected():
    decoder, events = small_gpt(), some_events(1, 5)
    _, cache = decoder.prefill(events, everywhere(events))
    cache.store = cache.store.bfloat16()
    with pytest.raises(CacheRejectedError) as caught:
        decoder.extend(events[:, :1], everywhere(events[:, :1]), cache)
    assert caught.value.field == "dtype"


def test_the_cache_grows_by_doubling_up_to_the_context():
    decoder = small_gpt(context_length=100)
    config = decoder.config
    events = some_events(3, 5)
    _, cache = decoder.prefill(events, everywhere(events))
    slots = [cache.store.shape[4]]
    for _ in range(95):
        one = torch.full((3, 1), 4)
        _, cache = decoder.extend(one, everywhere(one), cache)
        slots.append(cache.store.shape[4])
        assert decoder.cache_bytes(cache) == 2 * config.layers * 3 * slots[-1] * config.heads * config.head_size * 4
    assert sorted(set(slots)) == [16, 32, 64, 100]


def test_reorder_drops_room_that_no_row_needs():
    decoder = small_gpt(context_length=200)
    events = some_events(2, 150)
    _, cache = decoder.prefill(events, everywhere(events))
    short = some_events(2, 5)
    _, small = decoder.prefill(short, everywhere(short))
    assert decoder.reorder(cache, torch.tensor([0])).store.shape[4] == 200
    assert decoder.reorder(small, torch.tensor([0])).store.shape[4] == 16


@pytest.mark.parametrize(
    ("events", "valid", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool), "int64"),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 3), "bool"),
        (torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.bool), r"\[3\]"),
        (torch.ones(2, 3, dtype=torch.int64), torch.ones(2, 4, dtype=torch.bool), r"\[2, 4\]"),
        (torch.ones(2, 0, dtype=torch.int64), torch.ones(2, 0, dtype=torch.bool), "at least one position"),
        (torch.ones(2, 3, dtype=torch.int64), torch.tensor([[1, 1, 1], [0, 0, 0]]).bool(), "row 1 has no valid event"),
        (torch.full((1, 2), 7), torch.ones(1, 2, dtype=torch.bool), "id 7 is not below the vocabulary size of 7"),
        (torch.full((1, 2), -1), torch.ones(1, 2, dtype=torch.bool), "id -1"),
    ],
)
def test_senseless_events_are_refused_on_both_paths(events, valid, message):
    decoder = small_gpt()
    for path in (decoder.full, decoder.prefill):
        with pytest.raises(DecoderError, match=message):
            path(events, valid)


@pytest.mark.parametrize("parents", [torch.tensor([3]), torch.tensor([-1]), torch.tensor([[0]]), torch.tensor([0.0])])
def test_senseless_parents_are_refused(parents):
    decoder, events = small_gpt(), some_events(3, 4)
    _, cache = decoder.prefill(events, everywhere(events))
    with pytest.raises(DecoderError, match="parents"):
        decoder.reorder(cache, parents)


def test_later_events_change_no_earlier_logit_on_either_path():
    decoder, events = small_gpt(), some_events(1, 8)
    batch = events.repeat(4, 1)
    batch[:, 5] = torch.arange(3, 7)
    full = decoder.full(batch, everywhere(batch))
    assert torch.equal(full[:, :5], full[:1, :5].expand(4, -1, -1))
    _, cache = decoder.prefill(batch[:, :3], everywhere(batch[:, :3]))
    extended, _ = decoder.extend(batch[:, 3:], everywhere(batch[:, 3:]), cache)
    assert torch.equal(extended[:, :2], extended[:1, :2].expand(4, -1, -1))
    assert not torch.equal(full[0, 5], full[1, 5])  # the change is seen where it should be


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_later_embeddings_have_exactly_no_influence(positions):
    decoder, events = small_gpt(torch.float64, positions=positions), some_events(1, 6)
    embedded = decoder.embed(events).requires_grad_()
    logits = decoder.full_from_embeddings(embedded, everywhere(events))
    assert torch.equal(logits.detach(), decoder.full(events, everywhere(events)))
    for position in range(6):
        (gradient,) = torch.autograd.grad(logits[0, position].abs().sum(), embedded, retain_graph=True)
        assert gradient[0, position + 1 :].abs().sum() == 0.0
        assert gradient[0, : position + 1].abs().amax(-1).min() > 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_poison_in_later_keys_and_values_has_no_weight(dtype):
    decoder, events = small_gpt(dtype), some_events(1, 8)

    def poison(_, keys, values):
        keys, values = keys.clone(), values.clone()
        keys[:, :, 5:], values[:, :, 5:] = 1e18, -1e18
        return keys, values

    valid = everywhere(events)
    assert torch.equal(decoder.full_altered(events, valid, poison)[:, :5], decoder.full(events, valid)[:, :5])
    assert not torch.equal(decoder.full_altered(events, valid, poison)[:, 5:], decoder.full(events, valid)[:, 5:])
    extended = []
    for alter in (None, poison):
        _, cache = decoder.prefill(events[:, :1], valid[:, :1])
        extended.append(decoder.extend_altered(events[:, :8], valid[:, :8], cache, alter)[0])
    assert torch.equal(extended[0][:, :5], extended[1][:, :5])
    assert not torch.equal(extended[0][:, 5:], extended[1][:, 5:])


def test_poison_in_slots_that_no_row_has_filled_has_no_weight():
    decoder, events, valid = small_gpt(), some_events(3, 6), padding("right", 3, 6)
    one = torch.tensor([[3], [4], [5]])
    found = []
    for amount in (0.0, 1e18):
        _, cache = decoder.prefill(events, valid)
        keys, values, lengths = decoder.stored(cache)
        for row, length in enumerate(lengths.tolist()):
            keys[:, row, :, length:] = amount
            values[:, row, :, length:] = -amount
        found.append(decoder.extend(one, everywhere(one), cache)[0])
    assert torch.equal(*found)


def test_stored_keys_and_values_are_those_of_the_row_alone():
    decoder, events, valid = small_gpt(torch.float64), some_events(4, 9), padding("both", 4, 9)
    _, cache = decoder.prefill(events, valid)
    keys, values, lengths = decoder.stored(cache)
    for row, keep in enumerate(valid):
        own = events[row, keep][None]
        _, single = decoder.prefill(own, everywhere(own))
        size = int(lengths[row])
        assert size == own.shape[1]
        for found, reference in zip((keys, values), decoder.stored(single)[:2], strict=True):
            assert torch.allclose(found[:, row, :, :size], reference[:, 0, :, :size], atol=1e-12)


def test_the_same_input_twice_gives_the_same_bits():
    decoder, events = small_gpt(dropout=0.5), some_events(3, 7)
    assert torch.equal(decoder.full(events, everywhere(events)), decoder.full(events, everywhere(events)))


def test_revision_names_weights_and_config_and_a_flipped_bit_is_found():
    assert small_gpt().revision == small_gpt().revision
    names = [small_gpt(**change).revision for change in ({}, {"seed": 1}, {"dropout": 0.1}, {"dtype": torch.float64})]
    assert len(set(names)) == 4
    decoder = small_gpt()
    weights = decoder.module.blocks[1].feed_in.data.view(torch.int32)
    weights[3, 2] ^= 1
    assert decoder.fingerprint() != decoder.revision == small_gpt().revision
    weights[3, 2] ^= 1
    assert decoder.fingerprint() == decoder.revision


def test_logits_are_never_in_half_precision():
    events = some_events(1, 3)
    dtypes = [small_gpt(dtype).full(events, everywhere(events)).dtype for dtype in LIMITS]
    assert dtypes == [torch.float64, torch.float32, torch.float32]


def test_everything_that_audits_may_ask_for_is_offered():
    decoder = small_gpt()
    for offer in (Decoder, Described, Fingerprinted, Differentiable, Inspectable, Alterable):
        assert isinstance(decoder, offer)


def test_the_window_of_the_cached_path_is_named_for_the_probes():
    assert isinstance(small_gpt(), BlockEnds)
    assert small_gpt().block_ends == ()
    assert small_gpt(cached_attention_window=4).block_ends == (4,)
