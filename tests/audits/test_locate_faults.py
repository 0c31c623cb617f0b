"""The first layer and component that differs is named, or it is said that nobody can look inside."""

from __future__ import annotations

import pytest
import torch

from auditlib.audits.counterexamples import counterexamples_for
from auditlib.audits.locate import COLUMNS, located
from auditlib.decoders.tracing import Traced
from tests.plain import Open, Plain
from tests.subjects import gpt, subject_of

torch.set_num_threads(1)


def report(check: str, audit: str = "cache parity", limit: float = 2e-5, unit: str = "logit") -> dict:
    return {"audits": {audit: {"checks": [{"name": check, "status": "failed", "limit": limit, "unit": unit}]}}}


def place_of(make, check: str, **more):
    subject = subject_of(make)
    cases = counterexamples_for(subject, report(check, **more), seconds=120)
    ((_, name), table), *others = located(subject, cases).items()
    assert name == "located"
    assert not others
    assert list(table.columns) == [*COLUMNS, "sentence"]
    return table.iloc[0]


def test_a_narrow_window_of_the_cache_is_placed_at_the_first_attention():
    place = place_of(lambda dtype: gpt(dtype, cached_attention_window=3), "single events")
    assert (place["layer"], place["component"]) == (0, "attention output")
    assert place["gap"] > 1e-3
    assert "layer 0, attention output" in place["sentence"]


@pytest.mark.parametrize(("layer", "part"), [(0, 0), (1, 0), (1, 1)])
def test_a_part_of_the_cache_that_stays_behind_is_named_with_its_layer(layer, part):
    def make(dtype):
        decoder = gpt(dtype)
        sound = decoder.reorder

        def reorder(cache, parents):
            moved = sound(cache, parents)
            rows = torch.arange(len(parents)) % cache.rows
            slots = moved.store.shape[4]
            moved.store[layer, part] = cache.store[layer, part, :, :, :slots].index_select(0, rows)
            return moved

        decoder.reorder = reorder
        return decoder

    place = place_of(make, "reordered rows")
    assert (place["layer"], place["component"]) == (layer, "attention output")
    assert place["field"].startswith(f"stored {('keys', 'values')[part]} of layer {layer}, event")


def test_a_decoder_that_lets_keys_be_altered_is_looked_into_by_them():
    class Misplaced(Open):
        def new_positions(self, valid, cache):
            right = super().new_positions(valid, cache)
            return torch.zeros_like(right) if valid.shape[1] == 1 and cache.kept.shape[1] else right

    place = place_of(lambda dtype: Misplaced(dtype=dtype), "single events")
    assert (place["layer"], place["component"]) == (0, "keys")


def test_a_leak_into_one_layer_is_placed_behind_it():
    class Leaks(Open):
        def sees_full(self, valid, layer):
            leaks = layer == 0
            return valid[:, None].expand(-1, valid.shape[1], -1) if leaks else super().sees_full(valid, layer)

    place = place_of(
        lambda dtype: Leaks(dtype=dtype), "exhaustive next event", audit="causality", limit=0.0, unit="changed logits"
    )
    assert (place["layer"], place["component"]) == (1, "keys")  # the first that a leak of layer 0 reaches


def test_where_nobody_can_look_inside_it_is_said():
    class Stale(Plain):
        def extend(self, events, valid, cache):
            logits, grown = super().extend(events, valid, cache)
            return logits + 1, grown

    place = place_of(lambda dtype: Stale(dtype=dtype), "single events")
    assert place["component"] == "not offered"
    assert "not known" in place["sentence"]


def test_a_traced_decoder_gives_the_same_logits_and_tells_every_component():
    decoder, told = gpt(), []
    assert isinstance(decoder, Traced)
    events = torch.tensor([[1, 3, 4, 5]])
    valid = torch.ones_like(events, dtype=torch.bool)
    traced = decoder.traced(lambda layer, name, output: told.append((layer, name, output.shape[:2])))
    logits = traced.full(events, valid)
    assert torch.equal(logits, decoder.full(events, valid))
    names = ["keys", "values", "attention output", "feed-forward"]
    inside = [(layer, name) for layer in range(2) for name in names]
    assert [(layer, name) for layer, name, _ in told] == [(-1, "embedding"), *inside, (2, "logits")]
    assert {shape for *_, shape in told} == {(1, 4)}
