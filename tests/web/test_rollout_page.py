"""The rollout page: where a rollout stands, what comes next, and words where nothing is there or nothing holds."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from auditlib.release.rollout_plan import RELEASED
from auditlib.views import charts_rollout
from auditlib.web import rollout_facts
from tests.web.opening import opened, words
from tests.web.rollouts import make_rollout


def test_without_a_rollout_the_page_says_how_one_begins(place):
    app = opened("rollout")
    said = words(app)
    assert "There is no rollout yet" in said
    assert f"--chain {place}/rollouts/NAME/chain.jsonl" in app.code[0].value


def test_the_page_says_where_a_rollout_stands_and_what_it_needs(place):
    make_rollout(place)
    said = words(opened("rollout"))
    assert "It is at: canary 50" in said
    assert "Next: promote to released." in said
    assert "Nothing is wrong with the log." in said


def test_harm_is_said_before_anything_else(place):
    def broken(row):
        late = row.stage == "canary 50" and row.arm == "new"
        return replace(row, valid=False, rule="<b>init</b>") if late else row

    make_rollout(place, spoil=broken)
    app = opened("rollout")
    (said,) = (one.value.replace("\\", "") for one in app.error if "Next: roll back." in one.value)
    assert re.search(r"evidence \S+ where 80 rolls back", said)


def test_a_released_rollout_is_said_to_be_watched_and_not_held_back(place):
    make_rollout(place, upto=RELEASED)
    said = words(opened("rollout"))
    assert "Released, and watched on." in said
    assert "Nothing speaks against it." in said
    assert "does not allow more" not in said


def test_a_chain_that_was_cut_off_shows_nothing_of_the_rollout(place):
    chain = make_rollout(place) / "chain.jsonl"
    chain.write_bytes(b"".join(line + b"\n" for line in chain.read_bytes().splitlines()[:-1]))
    said = words(opened("rollout"))
    assert "This rollout does not hold: chain.jsonl lacks" in said.replace("\N{WORD JOINER}", "")
    assert "Next:" not in said


def test_links_and_folders_without_a_chain_are_no_rollouts(tmp_path):
    folder = make_rollout(tmp_path, upto="shadow")
    (tmp_path / "rollouts" / "empty").mkdir()
    (tmp_path / "rollouts" / "elsewhere").symlink_to(folder)
    assert list(rollout_facts.rollouts(tmp_path)) == ["greedy"]


@pytest.mark.parametrize("upto", ["shadow", "canary 5", "canary 50", RELEASED])
def test_the_drawn_evidence_ends_where_the_decision_stands(tmp_path, upto):
    folder = make_rollout(tmp_path, upto=upto)
    found = rollout_facts.followed(folder, tmp_path / "trust.json")
    last = rollout_facts.history(found).groupby("test").last()["log_e"]
    assert {test.name: pytest.approx(test.log_e) for test in found.decision.tests} == dict(last)


@pytest.mark.parametrize("log_e", [0.0, -1e6, 1e6])
def test_the_figure_draws_any_evidence_with_its_limit(log_e):
    history = pd.DataFrame({"rows": [1, 2], "test": ["invalid"] * 2, "log_e": [0.0, log_e]})
    drawn = charts_rollout.evidence(history, np.log(80))
    assert [trace.name for trace in drawn.data] == ["invalid", "speaks from 80"]
    assert np.isfinite(drawn.data[0].y).all()
    marks = drawn.layout.yaxis.ticktext
    assert (marks[0], marks[-1]) == ("≤ 1e-4" if log_e < 0 else "1e-4", "≥ 1e+8" if log_e > 0 else "1e+8")
    assert (drawn.layout.yaxis.range[1] <= 8.1) == (log_e > 0) or log_e <= 0


def test_an_empty_history_is_said_in_words():
    assert (
        "No row"
        in charts_rollout.evidence(pd.DataFrame(columns=["rows", "test", "log_e"]), 1.0).layout.annotations[0].text
    )
