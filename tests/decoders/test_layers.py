"""Layers against their formulas: turned pairs, relative positions, normalisations, initial weights."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from auditlib.decoders.gpt_weights import expected_shapes, fresh_tensors
from auditlib.decoders.layers import hidden_states, rotary_table, rotate
from tests.small_gpt import small_config, small_gpt, some_events

CPU = torch.device("cpu")


def attend(_, queries, keys, values):
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True)


def hidden_at(places: slice, **changes) -> torch.Tensor:
    decoder = small_gpt(torch.float64, **changes)
    weights = decoder.module.weights()
    return hidden_states(decoder.config, weights, weights.embed[some_events(2, 5)], places, attend)


def test_pairs_are_turned_by_position_times_frequency():
    table = rotary_table(50, 4, CPU, torch.float64)
    vector = torch.tensor([1.0, 0.0, 0.0, 2.0], dtype=torch.float64)
    slow = 10_000 ** (-2 / 4)
    found = rotate(vector, table[7])
    expected = [math.cos(7), math.sin(7), -2 * math.sin(7 * slow), 2 * math.cos(7 * slow)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_turned_products_depend_on_the_distance_alone():
    table = rotary_table(300, 8, CPU, torch.float64)
    query, key = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    products = [(rotate(query, table[far + 5]) * rotate(key, table[far])).sum() for far in (0, 1, 40, 290)]
    assert torch.stack(products).std() < 1e-12
    assert abs(products[0] - (rotate(query, table[6]) * rotate(key, table[0])).sum()) > 1e-3


def test_under_bfloat16_large_positions_are_still_told_apart():
    table = rotary_table(1000, 8, CPU, torch.float32)
    vector = torch.ones(8, dtype=torch.bfloat16)
    found = [rotate(vector, table[position]) for position in (901, 902)]
    assert found[0].dtype == torch.bfloat16
    assert not torch.equal(*found)  # 901 and 902 are one number in bfloat16
    exact = rotate(vector.double(), rotary_table(1000, 8, CPU, torch.float64)[901])
    assert (found[0].double() - exact).abs().max() < 0.01


def test_rotary_positions_are_relative_and_learned_ones_are_not():
    assert torch.allclose(hidden_at(slice(0, 5)), hidden_at(slice(9, 14)), atol=1e-12)
    learned = [hidden_at(places, positions="learned") for places in (slice(0, 5), slice(9, 14))]
    assert not torch.allclose(*learned, atol=1e-3)


@pytest.mark.parametrize("positions", ["rotary", "learned"])
def test_the_order_of_earlier_events_matters(positions):
    decoder = small_gpt(torch.float64, positions=positions)
    one, other = torch.tensor([[1, 3, 4, 5, 6]]), torch.tensor([[1, 5, 4, 3, 6]])
    valid = torch.ones_like(one).bool()
    assert (decoder.full(one, valid)[:, -1] - decoder.full(other, valid)[:, -1]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_the_whole_model_is_its_textbook_form(kind):
    """One layer written out by loops, from the same weights."""
    decoder = small_gpt(torch.float64, normalisation=kind, layers=1, heads=2)
    events = some_events(1, 5)
    weights = decoder.module.weights()
    block = weights.blocks[0]
    table = rotary_table(decoder.context_length, 8, CPU, torch.float64)

    def norm(x, gain):
        centred = x - x.mean() if kind == "layer" else x
        return centred / (centred.square().mean() + 1e-6).sqrt() * gain

    hidden = [weights.embed[event] for event in events[0]]
    parts = [(block.queries_keys_values @ norm(x, block.attention_norm)).view(3, 2, 8) for x in hidden]
    out = []
    for now, x in enumerate(hidden):
        heads = []
        for head in range(2):
            query = rotate(parts[now][0, head], table[now])
            scores = [query @ rotate(parts[then][1, head], table[then]) / math.sqrt(8) for then in range(now + 1)]
            shares = torch.stack(scores).softmax(0)
            heads.append(sum(share * parts[then][2, head] for then, share in enumerate(shares)))
        mixed = x + block.attention_out @ torch.cat(heads)
        inner = F.gelu(block.feed_in @ norm(mixed, block.feed_norm) + block.feed_in_bias, approximate="tanh")
        out.append(mixed + block.feed_out @ inner + block.feed_out_bias)
    logits = torch.stack([weights.head @ norm(x, weights.final_norm) for x in out])
    assert torch.allclose(logits, decoder.full(events, torch.ones_like(events).bool())[0], atol=1e-10)


def test_fresh_weights_are_seeded_complete_and_of_sensible_size():
    config = small_config(positions="learned")
    tensors = fresh_tensors(config, 3)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == expected_shapes(config)
    torch.manual_seed(1)
    again = fresh_tensors(config, 3)
    assert all(torch.equal(tensors[name], again[name]) for name in tensors)
    assert not torch.equal(tensors["head"], fresh_tensors(config, 4)["head"])
    assert tensors["blocks.0.feed_in_bias"].abs().sum() == 0
    assert tensors["blocks.1.feed_norm"].eq(1).all()
    assert 0.5 < tensors["head"].std() * 16**0.5 < 1.5
