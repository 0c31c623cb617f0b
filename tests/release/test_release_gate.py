"""The public gate, to the letter of contract 3."""

from __future__ import annotations

import ast
import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.release import gate
from auditlib.release.gate import DecodeAudit, release_failures

SOUND = DecodeAudit(True, 0.0, 0, 0, 0)
EVERY_NAME = ["cache parity", "padding emission", "event grammar", "end-token coverage"]


def test_the_contracts_own_example_fails_for_its_event_orders_only():
    assert release_failures(DecodeAudit(True, 0.00003, 0, 1, 2), 0.0001, 3) == ["event grammar"]


@pytest.mark.parametrize(
    ("change", "failures"),
    [
        ({}, []),
        ({"matching_prefix": False}, ["cache parity"]),
        ({"maximum_logit_gap": 0.0001}, []),
        ({"maximum_logit_gap": 0.00010001}, ["cache parity"]),
        ({"maximum_logit_gap": math.nan}, ["cache parity"]),
        ({"maximum_logit_gap": math.inf}, ["cache parity"]),
        ({"emitted_padding": 1}, ["padding emission"]),
        ({"emitted_padding": -1}, ["padding emission"]),
        ({"invalid_event_orders": 1}, ["event grammar"]),
        ({"capped_sequences": 3}, []),
        ({"capped_sequences": 4}, ["end-token coverage"]),
        (
            {"matching_prefix": False, "emitted_padding": 2, "invalid_event_orders": 9, "capped_sequences": 40},
            EVERY_NAME,
        ),
    ],
)
def test_each_fact_fails_under_its_own_name_and_in_order(change, failures):
    assert release_failures(dataclasses.replace(SOUND, **change), 0.0001, 3) == failures


@pytest.mark.parametrize("nothing", [math.nan, None])
@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("matching_prefix", "cache parity"),
        ("maximum_logit_gap", "cache parity"),
        ("emitted_padding", "padding emission"),
        ("invalid_event_orders", "event grammar"),
        ("capped_sequences", "end-token coverage"),
    ],
)
def test_a_field_that_holds_no_number_fails(field, name, nothing):
    assert release_failures(dataclasses.replace(SOUND, **{field: nothing}), 0.0001, 3) == [name]


@pytest.mark.parametrize(
    ("gap", "capped", "name"), [(math.nan, 3, "cache parity"), (0.1, math.nan, "end-token coverage")]
)
def test_a_limit_that_is_no_number_permits_nothing(gap, capped, name):
    assert release_failures(SOUND, gap, capped) == [name]


@given(
    st.booleans(),
    st.floats(min_value=0),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 9),
    st.floats(min_value=0, allow_nan=False),
    st.integers(0, 9),
)
def test_finite_facts_fail_exactly_as_the_contract_words_it(
    matching, gap, padding, orders, capped, allowed, allowed_capped
):
    found = release_failures(DecodeAudit(matching, gap, padding, orders, capped), allowed, allowed_capped)
    assert ("cache parity" in found) == (not matching or math.isnan(gap) or gap > allowed)
    assert ("padding emission" in found) == (padding > 0)
    assert ("event grammar" in found) == (orders > 0)
    assert ("end-token coverage" in found) == (capped > allowed_capped)
    assert found == [name for name in EVERY_NAME if name in found]


def test_the_gate_offers_two_names_and_needs_nothing_but_python():
    assert gate.__all__ == ["DecodeAudit", "release_failures"]
    assert [field.name for field in dataclasses.fields(DecodeAudit)] == [
        "matching_prefix", "maximum_logit_gap", "emitted_padding", "invalid_event_orders", "capped_sequences",
    ]  # fmt: skip
    with pytest.raises(dataclasses.FrozenInstanceError):
        SOUND.emitted_padding = 1
    tree = ast.parse(Path(gate.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"__future__", "dataclasses"}
