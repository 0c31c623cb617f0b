"""Saved logits: made in float64 over telling prefixes, and reproduced by nothing but the same weights and code."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from auditlib.decoders.reference import check_reference, make_reference, reference_prefixes
from auditlib.decoders.tensor_file import read_tensors, write_tensors
from auditlib.errors import DecoderError, IntegrityError, RevisionError
from tests.small_gpt import CONTEXT, small_gpt, some_rows


@pytest.fixture(scope="module")
def saved():
    return make_reference(small_gpt(torch.float64), some_rows())


def test_prefixes_cover_one_event_many_lengths_and_the_boundary():
    prefixes = reference_prefixes(some_rows(40), CONTEXT, 24)
    lengths = {len(prefix) for prefix in prefixes}
    assert {1, CONTEXT - 1, CONTEXT} <= lengths
    assert len(lengths) > 8
    assert len(set(prefixes)) == len(prefixes)
    assert all(prefix[0] == 1 for prefix in prefixes)


@pytest.mark.parametrize("rows", [[(1, 2)], [(1, 3, 2)], [(1, *[3] * 40, 2)]])
def test_even_one_odd_session_gives_prefixes_that_fit(rows):
    assert {len(prefix) for prefix in reference_prefixes(rows, CONTEXT, 24)} >= {1, CONTEXT - 1, CONTEXT}


def test_the_same_rows_give_the_same_bytes_in_any_order(saved):
    assert make_reference(small_gpt(torch.float64), list(reversed(some_rows()))) == saved


def test_the_same_weights_reproduce_it(saved):
    check_reference(saved, small_gpt(torch.float64), "x")


class Shifted:
    """The sound decoder with a fault in its full path."""

    def __init__(self, gap: float) -> None:
        self.inner, self.gap = small_gpt(torch.float64), gap
        self.vocabulary_size, self.context_length = self.inner.vocabulary_size, self.inner.context_length
        self.dtype, self.device = self.inner.dtype, self.inner.device

    def full(self, events, valid):
        logits = self.inner.full(events, valid)
        logits[0, -1, -1] += self.gap
        return logits


@pytest.mark.parametrize(("gap", "refused"), [(0.0, False), (1e-11, False), (1e-7, True), (float("nan"), True)])
def test_one_logit_that_is_off_is_enough_to_refuse(saved, gap, refused):
    expected = pytest.raises(IntegrityError, match="differ from the saved ones") if refused else nullcontext()
    with expected:
        check_reference(saved, Shifted(gap), "x")


@pytest.mark.parametrize("change", [{"seed": 1}, {"normalisation": "rms"}, {"heads": 4}])
def test_other_weights_or_another_shape_are_refused(saved, change):
    with pytest.raises(IntegrityError):
        check_reference(saved, small_gpt(torch.float64, **change), "x")


def test_without_a_float64_path_rounding_passes_and_other_weights_do_not(saved):
    for dtype in (torch.float32, torch.bfloat16):
        check_reference(saved, small_gpt(dtype), "x")
        with pytest.raises(IntegrityError):
            check_reference(saved, small_gpt(dtype, seed=1), "x")


def test_a_reference_is_made_in_float64_only_and_of_something():
    with pytest.raises(DecoderError, match="float64"):
        make_reference(small_gpt(), some_rows())
    with pytest.raises(DecoderError, match="at least one"):
        make_reference(small_gpt(torch.float64), [])


@pytest.mark.parametrize(
    "spoil",
    ["logits missing", "rows cut", "no valid event", "other vocabulary", "events as numbers", "an unknown event"],
)
def test_a_file_that_does_not_fit_itself_is_refused(saved, spoil):
    tensors = read_tensors(saved, "x")
    if spoil == "logits missing":
        del tensors["logits"]
    elif spoil == "rows cut":
        tensors["logits"] = tensors["logits"][:-1].contiguous()
    elif spoil == "no valid event":
        tensors["valid"][0] = False
    elif spoil == "other vocabulary":
        tensors["logits"] = tensors["logits"][:, :-1].contiguous()
    elif spoil == "an unknown event":
        tensors["events"][0, 0] = 7
    else:
        tensors["events"] = tensors["events"].double()
    with pytest.raises(RevisionError):
        check_reference(write_tensors(tensors), small_gpt(torch.float64), "x")
