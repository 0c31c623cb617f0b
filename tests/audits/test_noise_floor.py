"""The noise floor: what it rests on, what raises it, and what must not."""

from __future__ import annotations

import math

import pytest
import torch

from auditlib.audits.precise import load_precise
from auditlib.audits.tolerance import study
from auditlib.audits.work import Watch
from auditlib.errors import CancelledError, DecoderError
from auditlib.progress import silent
from tests.doubles import ToyDecoder
from tests.plain import Plain
from tests.planted import Coarse, KeysMove, NoRoomCheck, PadsCount, StaleKey
from tests.subjects import MAP, gpt, subject_of


def toy(dtype):
    return ToyDecoder(vocabulary_size=MAP.size, context_length=20, dtype=dtype)


def maker(kind):
    return lambda dtype: kind(dtype=dtype)


def no_float64(dtype):
    raise DecoderError("this adapter has float32 only")


@pytest.mark.parametrize("fault", [StaleKey, KeysMove, PadsCount, Coarse, NoRoomCheck])
def test_no_fault_of_the_cache_moves_the_tolerance(fault):
    faulty, sound = (study(subject_of(maker(kind))) for kind in (fault, Plain))
    assert (faulty.floor, faulty.tolerance) == (sound.floor, sound.tolerance)


def test_the_tolerance_is_four_floors_and_the_floor_the_largest_rounding_of_the_full_path():
    subject = subject_of(gpt)
    found = study(subject)
    exact = gpt(torch.float64)
    largest = 0.0
    for session in subject.held_out:
        row = torch.tensor([subject.row(session)[:-1]])
        valid = torch.ones_like(row, dtype=torch.bool)
        largest = max(largest, float((subject.decoder.full(row, valid) - exact.full(row, valid)).abs().max()))
    assert found.tolerance == 4 * found.floor
    assert largest <= found.floor <= 8 * largest


@pytest.mark.parametrize(("dtype", "least", "most"), [(torch.float32, 1e-8, 1e-5), (torch.bfloat16, 1e-4, 1e-1)])
def test_a_coarser_dtype_has_a_higher_floor(dtype, least, most):
    assert least < study(subject_of(gpt, dtype)).floor < most


def test_a_decoder_that_never_rounds_still_gets_the_floor_of_writing_a_number_down():
    class Pi(ToyDecoder):
        """The same logits for every row, rounded in float64 too: where they were not, float64 would be doubted."""

        def full(self, events, valid):
            rounded = torch.tensor([4.0, math.pi], dtype=torch.float32).to(self.dtype)
            logits = torch.zeros(*events.shape, self.vocabulary_size, dtype=self.dtype)
            logits[..., :2] = rounded
            logits[..., 2] = 1e-12 if self.dtype == torch.float64 else 0.0
            return logits

    found = study(subject_of(lambda dtype: Pi(MAP.size, 20, dtype)))
    assert found.floor == pytest.approx(4 * 2**-24)


def test_float64_itself_has_a_floor_far_below_every_fault():
    found = study(subject_of(gpt, torch.float64))
    assert 0 < found.tolerance < 1e-10
    assert "float64 itself" in found.basis


def test_without_float64_shapes_and_threads_decide_and_threads_are_put_back():
    before = torch.get_num_threads()
    found = study(subject_of(gpt, load=no_float64))
    assert torch.get_num_threads() == before
    assert found.precise.decoder is None
    assert "batch shapes" in found.basis
    assert study(subject_of(gpt)).floor <= found.floor < 1e-4


def test_rows_that_feel_their_company_do_not_widen_a_tolerance_that_rests_on_shapes():
    class Company(Plain):
        def blend(self, hidden, valid, layer):
            return hidden - 0.01 * hidden.mean(0, keepdim=True)

    alone, company = (study(subject_of(maker(kind), load=no_float64)) for kind in (Plain, Company))
    assert company.tolerance < 3 * alone.tolerance


def test_a_full_path_that_gives_nan_leaves_no_finite_tolerance():
    class Nan(Plain):
        def scores(self, hidden):
            return super().scores(hidden) * math.nan

    assert not math.isfinite(study(subject_of(lambda dtype: Nan(dtype=dtype))).tolerance)


class Pretends(Plain):
    """Takes float64 and computes in float32."""

    def __init__(self, dtype):
        super().__init__(dtype=torch.float32)

    def full(self, events, valid):
        return super().full(events, valid).double()


class FailsInDouble(Plain):
    def extend_with(self, events, valid, cache, alter):
        if self.dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return super().extend_with(events, valid, cache, alter)


def raises_odd_error(dtype):
    raise DecoderError("adapter raised KeyError: 'float64'")


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (no_float64, "float32 only"),
        (raises_odd_error, "KeyError"),
        (lambda dtype: Plain(dtype=torch.float32), "answers in torch.float32"),
        (Pretends, "float32 numbers"),
        (lambda dtype: FailsInDouble(dtype=dtype), "not implemented for 'Double'"),
    ],
    ids=["none", "odd", "other dtype", "pretends", "fails"],
)
def test_a_float64_path_is_believed_only_when_it_is_one(load, reason):
    found = load_precise(subject_of(lambda dtype: Plain(dtype=dtype), load=load), Watch(silent))
    assert found.decoder is None
    assert reason in found.reason


def test_whoever_stops_the_work_stops_it_while_float64_is_tried():
    def stop(done, total, note):
        raise CancelledError("stop")

    with pytest.raises(CancelledError):
        load_precise(subject_of(gpt), Watch(stop))
