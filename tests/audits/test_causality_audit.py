"""Causality on sound decoders, with and without what a decoder may offer beyond contract 1."""

from __future__ import annotations

import pytest
import torch

from auditlib.audits.causal_probes import cuts
from auditlib.audits.causality import CAUSALITY
from auditlib.errors import DecoderError
from tests.doubles import ToyDecoder
from tests.plain import Open, Plain
from tests.planted import KnowsOneEvent, LengthScaled, NoMask, RowMean
from tests.subjects import MAP, gpt, missing, over_limit, subject_of, values


def toy(dtype):
    return ToyDecoder(vocabulary_size=MAP.size, context_length=20, dtype=dtype)


def no_float64(dtype):
    raise DecoderError(f"no {dtype} path")


@pytest.mark.parametrize(
    "make",
    [toy, lambda dtype: Open(dtype=dtype), gpt, lambda dtype: gpt(dtype, positions="learned", normalisation="rms")],
    ids=["toy", "open", "rotary", "learned"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_sound_decoder_moves_no_earlier_logit(make, dtype):
    findings = CAUSALITY.measure(subject_of(make, dtype))
    assert over_limit(CAUSALITY, findings) == set()
    assert missing(CAUSALITY, findings) == set()
    assert findings.tables["probes"].empty


def test_what_a_decoder_cannot_serve_is_neither_passed_nor_failed():
    findings = CAUSALITY.measure(subject_of(toy))
    assert {"jacobian", "finite poison"} == set(findings.not_applicable)
    assert {"jacobian", "finite poison"}.isdisjoint(values(findings))
    assert {"jacobian", "finite poison"} <= set(values(CAUSALITY.measure(subject_of(gpt))))


def test_without_float64_truncation_is_held_against_the_tolerance_of_the_own_dtype():
    sound = CAUSALITY.measure(subject_of(lambda dtype: Plain(dtype=dtype), load=no_float64))
    assert "truncation in float64" in sound.not_applicable
    assert 0 <= values(sound)["truncation"] <= values(sound)["tolerance"]
    assert over_limit(CAUSALITY, sound) == set()
    assert missing(CAUSALITY, sound) == set()
    leaky = CAUSALITY.measure(subject_of(lambda dtype: LengthScaled(dtype=dtype), load=no_float64))
    assert "truncation" in over_limit(CAUSALITY, leaky)


@pytest.mark.parametrize("fault", [NoMask, RowMean, KnowsOneEvent])
def test_the_table_names_path_position_and_events_of_what_moved(fault):
    findings = CAUSALITY.measure(subject_of(lambda dtype: fault(dtype=dtype)))
    probes = findings.tables["probes"]
    assert set(probes["path"]) <= {"full", "extend"}
    assert (probes["value"] > 0).all()
    assert (probes["position"] < probes["events"].str.count("-") + 1).all()
    assert (probes["position"] >= 0).all()
    if fault is KnowsOneEvent:
        found = probes[probes["probe"] == "exhaustive next event"]
        beside = [events.split("-") for events in found["events"]]
        assert any(ids[place + 1] == "5" for ids, place in zip(beside, found["position"], strict=True))


class ReadsAhead(type(gpt())):
    """Slots that a shorter row has not filled yet take part with a weight too small for honest numbers to show."""

    def extend(self, events, valid, cache):
        keys, _, lengths = self.stored(cache)
        unread = torch.arange(keys.shape[3]) >= lengths[:, None]
        felt = (keys[-1].sum((1, 3)).double() * unread).sum(1) * 1e-20
        logits, grown = super().extend(events, valid, cache)
        return logits + felt[:, None, None].to(logits.dtype), grown


def test_slots_that_were_never_written_have_no_weight_at_all():
    found = CAUSALITY.measure(subject_of(lambda dtype: ReadsAhead(gpt(dtype).module)))
    assert over_limit(CAUSALITY, found) == {"finite poison"}


def test_gradients_are_taken_one_logit_at_a_time_so_that_they_cannot_cancel():
    class Cancels(Open):
        """A later event raises one logit by what it lowers another, less than arithmetic in float32 keeps."""

        def full_with(self, embedded, valid, alter):
            logits = super().full_with(embedded, valid, alter)
            later = embedded.sum((1, 2)) - embedded[:, :1].sum((1, 2))
            pull = torch.zeros(self.vocabulary_size, dtype=logits.dtype)
            pull[3], pull[4] = 1e-13, -1e-13
            return logits + later[:, None, None] * pull

    found = CAUSALITY.measure(subject_of(lambda dtype: Cancels(dtype=dtype)))
    assert "jacobian" in over_limit(CAUSALITY, found)


@pytest.mark.parametrize("length", [1, 2, 5, 48, 49, 64, 100, 129, 300, 2000])
def test_cuts_lie_inside_the_row_and_reach_its_last_event_and_its_block_ends(length):
    places = cuts(length)
    assert places == sorted(set(places))
    assert all(0 < place < length for place in places)
    if 2 < length <= 512:
        assert length - 2 in places
        assert {2**size for size in range(2, 9) if 2**size < length} <= set(places)
    assert len(places) <= 60
