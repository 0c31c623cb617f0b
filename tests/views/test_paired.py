"""Two runs, paired: what flipped is named, what is not comparable is refused, intervals are those of their sources."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.errors import RunError
from auditlib.views import charts_compare
from auditlib.views.paired import pair, sessions_of, terms, tolerance_of
from auditlib.views.paired_tests import difference_of_means, difference_of_shares, mcnemar
from tests.web.world import TOLERANCE, a_run, make_world

TRUTH = {"S1": (1, 3, 4, 2), "S2": (1, 3, 4, 5, 2)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A sound run, and one on the same snapshot whose second session has a gap."""
    world = make_world(tmp_path_factory.mktemp("world"))
    sound = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-aaaaaaaa")
    return with_tables(sound), with_tables(world.refused, gap=0.31, first=4, wrong=2)


def with_tables(run, gap=1e-6, first=3, wrong=None):
    """The run, with tables of two sessions in place of its own."""
    sessions = pd.DataFrame(
        {"session_id": ["S1", "S2"], "events": ["1-3-4", "1-3-4-5"], "gap": [1e-6, gap], "weight": [4, 2]}
    )
    sequences = pd.DataFrame(
        {
            "setting": "greedy",
            "session_id": ["S1", "S2", "S2", ""],
            "prefix": ["1", "1-3-4", "1-3-4", "1-3-3"],
            "hypothesis": [0, 0, 1, 0],
            "events": [f"1-{first}-4-2", "1-3-4-5-2", "1-3-4-3-2", "1-3-3-2"],
            "first_wrong": pd.array([None, None, wrong, 1], dtype="Int64"),
        }
    )
    known = {("numerics", "sessions"): sessions, ("decoding policy", "sequences"): sequences}
    return Tables(run.folder, run.manifest, run.report, known)


class Tables:
    """A run that has only the tables it is given."""

    def __init__(self, folder, manifest, report, known):
        self.folder, self.manifest, self.report, self.known = folder, manifest, report, known
        self.id = folder.name

    def table(self, audit, name):
        return self.known.get((audit, name), pd.DataFrame())


def test_every_kind_of_flip_is_found_those_for_the_worse_first(runs):
    before, after = runs
    found = pair(before, after, TRUTH, {3: "opened", 4: "closed"}.get).flips
    assert found.to_dict("split")["data"] == [
        ["worse", "within tolerance", "S2", "1-3-4-5", "gap 1.00e-6 logit", "gap 0.31 logit"],
        ["worse", "greedy: next event", "S1", "1", "right: opened", "wrong: closed"],
        ["worse", "greedy: order", "S2", "1-3-4-3-2", "valid", "breaks a rule"],
    ]
    assert set(pair(after, before, TRUTH).flips["change"]) == {"better"}


def test_gaps_that_are_no_numbers_are_not_within_tolerance_and_stay_among_the_differences(runs):
    before, after = runs
    sessions = after.known[("numerics", "sessions")].assign(gap=[np.inf, np.nan])
    broken = Tables(after.folder, after.manifest, after.report, {("numerics", "sessions"): sessions})
    rows = pair(before, broken, TRUTH).differences.set_index("what")
    assert rows.index.tolist() == ["sessions within tolerance"]
    assert rows.loc["sessions within tolerance", ["before", "after", "worse", "sessions"]].tolist() == [1.0, 0.0, 2, 2]


def test_a_session_is_paired_with_itself_whatever_the_order_of_the_rows(runs):
    before, after = runs
    turned = Tables(
        after.folder, after.manifest, after.report, {key: table.iloc[::-1] for key, table in after.known.items()}
    )
    pd.testing.assert_frame_equal(
        pair(before, after, TRUTH).differences, pair(before, turned, TRUTH).differences, check_exact=True
    )


def test_differences_state_what_was_what_is_and_how_many_flipped(runs):
    rows = pair(*runs, TRUTH).differences.set_index("what")
    within = rows.loc["sessions within tolerance"]
    assert (within["before"], within["after"], within["worse"], within["better"]) == (1.0, 0.5, 1, 0)
    assert within["low"] < within["difference"] == -0.5 < within["high"]
    assert rows.loc["greedy: next event right", "difference"] == -0.5
    assert rows.loc["greedy: sessions with valid orders only", "after"] == 0.5
    assert rows.loc["largest gap of a session, mean (logit)", "worse"] == 1


@pytest.mark.parametrize("gap", [float("nan"), float("inf")])
def test_a_gap_that_is_not_a_number_is_a_flip_for_the_worse_and_has_no_mean(runs, gap):
    found = pair(runs[0], with_tables(runs[1], gap=gap), TRUTH)
    assert found.flips.iloc[0]["session_id"] == "S2"
    assert found.differences.set_index("what").loc["largest gap of a session, mean (logit)", "sessions"] == 1


def test_a_run_without_a_tolerance_has_no_session_within_it(runs):
    silent = Tables(runs[0].folder, runs[0].manifest, {"audits": {}}, runs[0].known)
    assert np.isnan(tolerance_of(silent))
    assert tolerance_of(runs[0]) == TOLERANCE
    assert not pair(silent, runs[1], TRUTH).gaps["within_before"].any()


def test_a_session_whose_next_event_is_not_known_is_neither_right_nor_wrong(runs):
    found = pair(*runs, {})
    assert found.answers["right_before"].isna().all()
    assert "greedy: next event right" not in set(found.differences["what"])


@pytest.mark.parametrize(
    ("part", "said"), [("snapshot", "different held-out snapshots"), ("event_map", "different event maps")]
)
def test_runs_that_have_nothing_in_common_are_refused(runs, part, said):
    other = Tables(runs[1].folder, {**runs[1].manifest, part: {"digest": "sha256:other"}}, runs[1].report, {})
    assert said in terms(runs[0], other).refusal
    with pytest.raises(RunError, match=said):
        pair(runs[0], other, TRUTH)
    assert "itself" in terms(runs[0], runs[0]).refusal


def test_under_other_rules_validity_is_not_compared_and_that_is_said(runs):
    other = Tables(runs[1].folder, {**runs[1].manifest, "event_order": {"digest": "x"}}, runs[1].report, runs[1].known)
    assert "rules differ" in terms(runs[0], other).notes[0]
    found = pair(runs[0], other, TRUTH)
    assert not any("order" in what for what in (*found.flips["what"], *found.differences["what"]))


def test_runs_without_tables_give_empty_ones_and_figures_say_so(runs):
    bare = [replace_tables(run) for run in runs]
    found = pair(*bare, TRUTH)
    assert found.differences.empty
    assert found.flips.empty
    assert sessions_of(*bare) == ()
    assert charts_compare.differences(found.differences).layout.annotations
    assert charts_compare.gap_against_gap(found.gaps, (1.0, 1.0)).layout.annotations


def replace_tables(run):
    return Tables(run.folder, run.manifest, run.report, {})


def test_only_sessions_that_both_runs_continued_are_asked_for(runs):
    assert sessions_of(*runs) == ("S1", "S2")


def test_the_gap_figure_tells_apart_what_flipped_and_keeps_the_largest(runs):
    found = pair(*runs, TRUTH).gaps
    drawn = charts_compare.gap_against_gap(found, (TOLERANCE, TOLERANCE))
    assert {trace.name: len(trace.x) for trace in drawn.data}["over tolerance after only"] == 1
    many = pd.concat([found] * 2_000, ignore_index=True)
    assert sum(len(trace.x) for trace in charts_compare.gap_against_gap(many, (TOLERANCE, TOLERANCE)).data) <= 2_001


def test_the_intervals_are_those_that_the_literature_prints():
    # airway hyper-responsiveness before and after transplantation, 21 children: Fagerland, Lydersen and Laake (2014,
    # Statistics in Medicine 33, 2850) print (-0.507, -0.026) without Newcombe's correction of the correlation,
    # which can only widen it
    before = np.repeat([True, True, False, False], [1, 7, 1, 12])
    after = np.repeat([True, False, True, False], [1, 7, 1, 12])
    difference, low, high = difference_of_shares(before, after)
    assert difference == pytest.approx(-6 / 21)
    assert -0.53 < low <= -0.507 + 1e-3
    assert -0.026 - 1e-3 <= high < 0
    assert mcnemar(7, 1) == pytest.approx(0.0703125)  # the same paper's exact conditional test


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_an_interval_of_shares_holds_the_difference_and_turns_with_the_sides(pairs):
    before, after = (np.array(side) for side in zip(*pairs, strict=True))
    difference, low, high = difference_of_shares(before, after)
    assert -1 - 1e-9 <= low <= difference <= high <= 1 + 1e-9
    assert low < high  # also where nothing flipped: so few units do not prove that nothing ever will
    turned = difference_of_shares(after, before)
    assert turned == pytest.approx((-difference, -high, -low))


def test_the_bootstrap_draws_sessions_whole_and_gives_the_same_every_time():
    rng = np.random.default_rng(0)
    shift = np.repeat(rng.normal(1.0, 1.0, 30), 10)  # ten prefixes a session that all move together
    groups = np.repeat(np.arange(30), 10)
    whole = difference_of_means(np.zeros(300), shift, groups)
    apart = difference_of_means(np.zeros(300), shift, np.arange(300))
    assert whole == difference_of_means(np.zeros(300), shift, groups)
    assert whole[2] - whole[1] > 2 * (apart[2] - apart[1])
    assert whole[1] < 1.0 < whole[2]


def test_nothing_to_compare_gives_no_number():
    assert all(np.isnan(difference_of_shares(np.array([], bool), np.array([], bool))))
    assert all(np.isnan(difference_of_means(np.array([]), np.array([]), np.array([], np.int64))))
    assert mcnemar(0, 0) == 1.0
