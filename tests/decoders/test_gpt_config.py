"""Configs arrive from strangers: what cannot be meant is refused by name."""

from __future__ import annotations

import pytest

from auditlib.decoders.gpt_config import EventGptConfig
from auditlib.decoders.gpt_weights import expected_shapes
from auditlib.errors import RevisionError

GOOD = {"vocabulary_size": 7, "context_length": 20, "width": 16, "layers": 2, "heads": 2}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocabulary_size": 0}, "vocabulary_size"),
        ({"vocabulary_size": "7"}, "vocabulary_size"),
        ({"vocabulary_size": True}, "vocabulary_size"),
        ({"vocabulary_size": 7.0}, "vocabulary_size"),
        ({"context_length": 10**9}, "context_length"),
        ({"context_length": None}, "context_length"),
        ({"width": 10**6}, "width"),
        ({"width": 15}, "width"),
        ({"width": 6}, "width"),  # two heads of three channels cannot be turned in pairs
        ({"layers": -1}, "layers"),
        ({"heads": [2]}, "heads"),
        ({"positions": "alibi"}, "positions"),
        ({"positions": ["rotary"]}, "positions"),
        ({"normalisation": None}, "normalisation"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": float("nan")}, "dropout"),
        ({"dropout": "0"}, "dropout"),
        ({"cached_attention_window": 0}, "cached_attention_window"),
        ({"colour": 1}, "colour"),
    ],
)
def test_senseless_entries_are_refused_by_name(change, named):
    EventGptConfig.from_mapping(GOOD)
    with pytest.raises(RevisionError, match=named):
        EventGptConfig.from_mapping({**GOOD, **change})


@pytest.mark.parametrize("missing", ["vocabulary_size", "context_length"])
def test_what_has_no_default_must_be_given(missing):
    with pytest.raises(RevisionError, match=missing):
        EventGptConfig.from_mapping({key: value for key, value in GOOD.items() if key != missing})


def test_a_config_survives_the_round_trip():
    config = EventGptConfig.from_mapping({**GOOD, "positions": "learned", "cached_attention_window": 5})
    assert EventGptConfig.from_mapping(config.to_mapping()) == config


def test_odd_heads_are_fine_where_nothing_is_turned():
    assert EventGptConfig.from_mapping({**GOOD, "width": 6, "positions": "learned"}).head_size == 3


def test_shapes_of_a_giant_are_known_without_allocating_it():
    giant = EventGptConfig(1 << 20, 1 << 16, 1 << 14, 256, 128)  # about 3 TB of weights
    assert expected_shapes(giant)["embed"] == (1 << 20, 1 << 14)
