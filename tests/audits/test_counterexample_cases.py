"""Counterexamples as data: exact as JSON, refused when they make no sense, and played as they are written."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from auditlib.audits.counterexample import Case, Side, Step, alone, history
from auditlib.audits.counterexample_replay import read_case, replay
from auditlib.errors import InputError
from tests.doubles import ToyDecoder

torch.set_num_threads(1)
ASKED = Side(
    (
        Step("prefill", ((0, 1, 3), (1, 4, 5)), ((False, True, True), (True, True, True))),
        Step("reorder", parents=(1, 0, 0)),
        Step("extend", ((3,), (4,), (0,)), ((True,), (True,), (False,))),
    ),
    1,
    0,
)
CASE = Case("cache parity", "reordered rows", "toy", "float32", "same", ASKED, alone(ASKED), 0.1 + 0.2, 1e-5)


def test_the_history_of_a_row_follows_its_parents_and_leaves_padding_out():
    assert history(ASKED.steps) == [(1, 4, 5, 3), (1, 3, 4), (1, 3)]
    assert ASKED.prefix() == (1, 3, 4)


@given(gap=st.floats(min_value=0, allow_nan=False), limit=st.floats(min_value=0, allow_nan=False, allow_infinity=False))
@settings(max_examples=50, deadline=None)
def test_a_case_comes_back_from_json_exactly_as_it_was(gap, limit):
    case = Case("causality", "x", "r", "bfloat16", "same", ASKED, alone(ASKED), gap, limit)
    assert Case.from_json(case.to_json()) == case
    assert "Infinity" not in case.to_json()


def test_a_sound_decoder_shows_no_gap_and_a_broken_one_the_same_each_time():
    assert replay(CASE, ToyDecoder()) == 0.0

    class Unmoved(ToyDecoder):
        def reorder(self, cache, parents):
            return super().reorder(cache, torch.arange(len(parents)) % len(cache.rows))

    assert replay(CASE, Unmoved()) == replay(CASE, Unmoved()) > 0.1


def test_a_logit_that_is_no_number_is_an_infinite_gap():
    broken = ToyDecoder(logits=lambda row: [math.nan if len(row) > 2 else 0.0] * 8)
    assert replay(CASE, broken) == math.inf
    finite = Case("causality", "not finite logits", "toy", "float32", "finite", ASKED, None, 0.0, 0.0)
    assert (replay(finite, broken), replay(finite, ToyDecoder())) == (math.inf, 0.0)


def test_only_a_request_beyond_the_context_has_to_be_refused():
    row = (1, *(3,) * 16)
    over = Side((Step("full", (row,), ((True,) * 17,)),), 0, 16)
    case = Case("cache parity", "accepted beyond the context", "toy", "float32", "refused", over, None, math.inf, 0.0)
    assert replay(case, ToyDecoder(context_length=16)) == 0.0
    assert replay(case, ToyDecoder(context_length=17)) == 0.0

    class Careless(ToyDecoder):
        def _check_length(self, row):
            return

    assert replay(case, Careless(context_length=16)) == math.inf


def _changed(path: list, value: object) -> str:
    document = copy.deepcopy(json.loads(CASE.to_json()))
    *before, last = path
    place = document
    for key in before:
        place = place[key]
    place[last] = value
    return json.dumps(document)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        _changed(["format"], 2),
        _changed(["kind"], "report"),
        _changed(["dtype"], "float8"),
        _changed(["expect"], "better"),
        _changed(["expect"], "finite"),
        _changed(["against"], None),
        _changed(["gap"], -1.0),
        _changed(["limit"], "0"),
        _changed(["asked", "row"], 3),
        _changed(["asked", "row"], True),
        _changed(["asked", "column"], 1),
        _changed(["asked", "steps"], []),
        _changed(["asked", "steps", 0, "verb"], "eval"),
        _changed(["asked", "steps", 0, "verb"], "extend"),
        _changed(["asked", "steps", 2, "verb"], "prefill"),
        _changed(["asked", "steps", 0, "events", 0], [1, 3]),
        _changed(["asked", "steps", 0, "events", 0, 0], -1),
        _changed(["asked", "steps", 0, "events", 0, 1], 7),
        _changed(["asked", "steps", 0, "valid", 0, 0], 1),
        _changed(["asked", "steps", 1, "parents"], [0, 2, 0]),
        _changed(["asked", "steps", 1, "parents"], []),
        _changed(["asked", "steps", 1, "parents"], [0, 1]),
        _changed(["asked", "steps", 2, "events"], [[3], [4]]),
    ],
)
def test_what_is_no_counterexample_is_refused_with_the_file_named(text, tmp_path):
    file = tmp_path / "case.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"case\.json"):
        read_case(file)


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path):
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.json", "binary.json"):
        with pytest.raises(InputError, match=name):
            read_case(tmp_path / name)
