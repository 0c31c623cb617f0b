"""Sliding layers whose cache rolls: what they keep, what that costs, and that rolling wrongly is seen by the audit."""

from __future__ import annotations

import pytest
import torch

from auditlib.audits.cache_parity import CACHE_PARITY
from auditlib.audits.faults.windows import WINDOWS, window_of
from auditlib.audits.self_check import plant_all, small_world
from auditlib.decoders.capabilities import BlockEnds, CacheShaped, Inspectable
from auditlib.decoders.transformers_rolling import Rolling, RollingDecoder, RollingStore
from auditlib.errors import RevisionError
from tests.small_adapters import WINDOW, need, write_library_folder
from tests.small_gpt import CONTEXT, everywhere, some_events
from tests.subjects import MAP, missing, over_limit, subject_of

need("transformers")
ONE_COLUMN = 2 * 2 * 4 * 8  # keys and values, heads, channels, bytes of float64
KINDS = ("dynamic", "static")


def rolling(folder, cache="dynamic", family="gemma3_text", kind=RollingDecoder, **changes):
    """A decoder that rolls, with the event map of the small subjects; `kind` may be one that rolls wrongly."""
    settings = {"cache": cache, "sliding_layers": "rolling"}
    revision = write_library_folder(folder, family, settings, vocab_size=MAP.size, **changes)

    def load(dtype):
        decoder = revision.decoder(dtype=dtype)
        return kind(decoder.module, decoder.config)

    return load


@pytest.mark.parametrize("cache", KINDS)
def test_only_the_layers_that_see_all_keep_all_and_what_has_rolled_out_takes_no_memory(cache, tmp_path):
    decoder = rolling(tmp_path / "it", cache)(torch.float64)
    events = some_events(3, CONTEXT)
    most = WINDOW if cache == "static" else WINDOW - 1
    for read in (2, WINDOW, CONTEXT - 2):
        _, held = decoder.prefill(events[:, :read], everywhere(events[:, :read]))
        for _ in range(2):
            columns = (CONTEXT, most) if cache == "static" else (held.store.columns, min(held.store.columns, most))
            assert decoder.cache_bytes(held) == 3 * sum(columns) * ONE_COLUMN
            storages = [layer.keys.untyped_storage().nbytes() for layer in held.store.cache.layers]
            assert sorted(storages) == sorted(3 * columns * ONE_COLUMN // 2 for columns in columns)
            step = events[:, held.store.columns :][:, :1]
            _, held = decoder.extend(step, everywhere(step), held)


@pytest.mark.parametrize("cache", KINDS)
def test_even_rows_are_left_to_the_librarys_own_rolling_and_uneven_ones_are_put_right(cache, tmp_path, monkeypatch):
    decoder = rolling(tmp_path / "it", cache)(torch.float64)
    orders = []
    settle = Rolling.settle
    monkeypatch.setattr(Rolling, "settle", lambda self, order: (orders.append(order), settle(self, order))[1])
    events, idle = some_events(2, CONTEXT), torch.tensor([[True], [False]])
    _, held = decoder.prefill(events[:, :3], everywhere(events[:, :3]))
    for place in range(3, 9):
        _, held = decoder.extend(events[:, place : place + 1], everywhere(events[:, :1]), held)
    assert all(order is None for order in orders)
    _, held = decoder.extend(events[:, 9:10], idle, held)
    assert orders[-1] is not None
    assert bool((held.store.near[:, 1:] >= held.store.near[:, :-1]).all())
    assert held.store.near[1].sum() >= WINDOW - 1


def test_the_librarys_own_sliding_cache_gives_the_same_logits_for_rows_without_padding(tmp_path):
    from transformers.cache_utils import DynamicCache  # noqa: PLC0415

    decoder = rolling(tmp_path / "it")(torch.float64)
    events = some_events(2, CONTEXT)
    _, held = decoder.prefill(events[:, :4], everywhere(events[:, :4]))
    cache = DynamicCache(config=decoder.module.config)
    with torch.no_grad():
        decoder.module(input_ids=events[:, :4], cache=cache, use_cache=True)
        for place in range(4, CONTEXT):
            step = events[:, place : place + 1]
            found, held = decoder.extend(step, everywhere(step), held)
            wanted = decoder.module(input_ids=step, cache=cache, use_cache=True).logits
            assert (found - wanted).abs().max() <= 1e-12


def test_a_rolling_cache_shows_no_slots_and_tells_no_shape_but_names_where_its_blocks_end(tmp_path):
    decoder = rolling(tmp_path / "it")(torch.float32)
    assert not isinstance(decoder, Inspectable)
    assert not isinstance(decoder, CacheShaped)
    assert isinstance(decoder, BlockEnds)
    assert decoder.block_ends == (WINDOW,)
    kept = write_library_folder(tmp_path / "kept", "gemma3_text", {"sliding_layers": "kept"}).decoder()
    assert isinstance(kept, Inspectable)
    assert isinstance(kept, CacheShaped)
    assert kept.block_ends == (WINDOW,)
    assert kept.revision != write_library_folder(tmp_path / "rolls", "gemma3_text").decoder().revision


def test_a_family_without_windows_keeps_all_and_a_window_of_one_is_refused(tmp_path):
    assert not write_library_folder(tmp_path / "llama", "llama").decoder().block_ends
    wide = write_library_folder(tmp_path / "wide", "gemma3_text", layer_types=["full_attention"] * 2).decoder()
    assert not isinstance(wide, RollingDecoder)
    with pytest.raises(RevisionError, match="at least 2"):
        write_library_folder(tmp_path / "one", "gemma3_text", sliding_window=1).decoder()
    with pytest.raises(RevisionError, match="see later ones"):
        write_library_folder(tmp_path / "both ways", "gemma3_text", use_bidirectional_attention=True).decoder()


class RollsEarly(RollingDecoder):
    """The oldest event that the next one may still see is gone when a row is as long as the window, or one longer."""

    def _append(self, events, sight, store):
        if int(sight.lengths.max()) in (WINDOW, WINDOW + 1) and store.near.shape[1]:
            near = store.near.clone()
            near[:, -(WINDOW - 1) :][:, :1] = False
            store = RollingStore(store.cache, store.columns, store.room, near, store.most)
        return super()._append(events, sight, store)


class ReadsOutOfOrder(RollingDecoder):
    """Once the ring has wrapped, it is read from the wrong start: keys stand under other events' places."""

    def _append(self, events, sight, store):
        if int(sight.lengths.max()) > WINDOW and store.near.shape[1]:
            for layer in store.cache.layers:
                if isinstance(layer, Rolling):
                    layer.layer.keys = layer.keys.roll(1, 2)
                    layer.layer.values = layer.values.roll(1, 2)
        return super()._append(events, sight, store)


@pytest.mark.slow
@pytest.mark.parametrize("cache", KINDS)
@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "mistral"])
def test_a_sound_rolling_decoder_stays_within_every_limit(family, cache, tmp_path):
    findings = CACHE_PARITY.measure(subject_of(rolling(tmp_path / "it", cache, family)))
    assert over_limit(CACHE_PARITY, findings) == set()
    assert missing(CACHE_PARITY, findings) == set()
    assert "stored keys and values" in findings.not_applicable


@pytest.mark.parametrize("cache", KINDS)
@pytest.mark.parametrize("fault", [RollsEarly, ReadsOutOfOrder])
def test_a_cache_that_rolls_wrongly_is_caught_event_by_event_and_in_uneven_rows(fault, cache, tmp_path):
    findings = CACHE_PARITY.measure(subject_of(rolling(tmp_path / "it", cache, kind=fault)))
    assert {"single events", "single events in float64", "uneven rows"} <= over_limit(CACHE_PARITY, findings)


@pytest.mark.parametrize("window", [WINDOW, 13, 40])
def test_faults_of_windows_are_planted_at_the_decoders_own_window_where_rows_can_pass_it(window, tmp_path):
    subject = subject_of(rolling(tmp_path / "it", sliding_window=window))
    assert window_of(subject.decoder) == (window if window < CONTEXT else 8)
    for planting in plant_all(subject, WINDOWS):
        assert (planting.reason, planting.problem) == ("", "")
        assert planting.value > 100 * planting.clean
        assert planting.count > 10


def test_the_small_world_of_the_self_check_reaches_the_window_too(tmp_path):
    load = rolling(tmp_path / "it", sliding_window=13)
    lengths = {len(row) for row in small_world(subject_of(load)).rows.made_up}
    assert {12, 13, 14} <= lengths
