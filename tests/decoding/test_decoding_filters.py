from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from auditlib.decoding import choices, filters
from auditlib.decoding.policies import Setting


def survivors(scores: Tensor) -> list[int]:
    return (scores[0] > -torch.inf).nonzero()[:, 0].tolist()


def row(*probabilities: float) -> Tensor:
    return torch.tensor([probabilities], dtype=torch.float64).log()


@pytest.mark.parametrize(
    ("probabilities", "share", "kept"),
    [
        ((0.5, 0.41, 0.09), 0.9, [0, 1]),  # the second event crosses .9 and stays
        ((0.5, 0.41, 0.09), 0.5, [0]),
        ((0.5, 0.41, 0.09), 0.50001, [0, 1]),
        ((0.09, 0.5, 0.41), 0.9, [1, 2]),
        ((0.5, 0.41, 0.09), 1e-12, [0]),
        ((1.0, 0.0, 0.0), 0.99, [0]),
    ],
)
def test_top_p_keeps_the_event_that_crosses(probabilities, share, kept):
    assert survivors(filters.keep_top_p(row(*probabilities), share)) == kept


@pytest.mark.parametrize(("count", "kept"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (9, [0, 1, 2, 3])])
def test_top_k_keeps_exactly_its_number_and_the_lower_id_of_equals(count, kept):
    assert survivors(filters.keep_top_k(torch.tensor([[0.0, 2.0, 2.0, 1.0]]), count)) == kept


def test_filters_apply_in_the_declared_order():
    # Top-p of the top-k: of {.4, .3, .2} renormalised, .44 + .33 misses .9, so the third stays. Top-p first would
    # keep four, and top-p on unfiltered mass would also end elsewhere.
    scores = row(0.4, 0.3, 0.2, 0.1)
    setting = Setting("s", "sampled", top_k=3, top_p=0.75)
    assert survivors(filters.filtered(scores, setting)) == [0, 1]
    assert survivors(filters.keep_top_k(filters.keep_top_p(scores, 0.75), 3)) == [0, 1, 2]


def test_temperature_comes_before_top_p():
    hot = Setting("s", "sampled", temperature=100.0, top_p=0.9)
    assert len(survivors(filters.filtered(row(0.97, 0.01, 0.01, 0.01), hot))) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@given(st.lists(st.floats(-8, 8), min_size=1, max_size=40), st.integers(0, 5), st.floats(1e-6, 1.0))
def test_at_least_one_event_survives_in_every_dtype(dtype, logits, top_k, top_p):
    setting = Setting("s", "sampled", top_k=top_k, top_p=top_p)
    kept = filters.filtered(torch.tensor([logits], dtype=dtype), setting)
    assert survivors(kept)
    assert int(torch.tensor(logits, dtype=dtype).argmax()) in survivors(kept)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=12, unique=True), st.floats(0.01, 0.99))
def test_top_p_keeps_the_fewest_events_that_reach_the_share(tenths, share):
    logits = [tenth / 10 for tenth in tenths]
    probabilities = [math.exp(x) / sum(map(math.exp, logits)) for x in logits]
    ranked = sorted(range(len(logits)), key=lambda i: -probabilities[i])
    mass, wanted = 0.0, []
    for event in ranked:
        if mass >= share - 1e-12:
            break
        wanted.append(event)
        mass += probabilities[event]
    if not any(abs(sum(probabilities[i] for i in ranked[:n]) - share) < 1e-9 for n in range(len(ranked) + 1)):
        assert survivors(filters.keep_top_p(torch.tensor([logits], dtype=torch.float64), share)) == sorted(wanted)


def test_a_draw_never_lands_on_a_masked_event():
    # Masked ids on both sides and in the middle, and the largest number below one.
    scores = torch.tensor([[-torch.inf, 0.0, -torch.inf, -30.0, -torch.inf]], dtype=torch.float64)
    draws = torch.cat([torch.linspace(0, 1, 5001, dtype=torch.float64)[:-1], torch.tensor([1 - 2**-53, 0.0])])
    _, events = choices.pick_sampled(scores.expand(len(draws), -1), Setting("s", "sampled"), draws)
    assert set(events) <= {1, 3}


def test_draws_follow_the_probabilities():
    setting = Setting("s", "sampled")
    draws = torch.from_numpy(choices.draws_of(setting, (1, 2, 3), 0, 40_000))
    _, events = choices.pick_sampled(row(0.7, 0.2, 0.1).expand(len(draws), -1), setting, draws)
    shares = torch.from_numpy(events).bincount(minlength=3) / len(draws)
    assert torch.allclose(shares, torch.tensor([0.7, 0.2, 0.1]), atol=0.01)


def test_draws_differ_by_seed_prefix_and_sample_and_by_nothing_else():
    first = choices.draws_of(Setting("a", "sampled", seed=1), (1, 23), 0, 4)
    same = choices.draws_of(Setting("b", "sampled", seed=1, top_k=3), (1, 23), 0, 4)
    assert (first == same).all()
    others = [
        choices.draws_of(Setting("a", "sampled", seed=2), (1, 23), 0, 4),
        choices.draws_of(Setting("a", "sampled", seed=1), (12, 3), 0, 4),
        choices.draws_of(Setting("a", "sampled", seed=1), (1, 23), 1, 4),
    ]
    assert all((first != other).all() for other in others)
    assert (choices.draws_of(Setting("a", "sampled", seed=1), (1, 23), 0, 9)[:4] == first).all()
