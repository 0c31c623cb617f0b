"""Plans: what is left out has a default, what makes no sense is refused with its place."""

from __future__ import annotations

import copy
import json
import math

import pytest

from auditlib.errors import PolicyError
from auditlib.release.rollout_plan import parse_plan, read_plan
from tests.release.rollout_world import PLAN


def changed(path, value):
    document = copy.deepcopy(PLAN)
    place = document
    for step in path[:-1]:
        place = place[step]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (["format"], 2, "format"),
        (["format"], None, "format"),
        (["format"], True, "format"),
        (["format"], 1.0, "format"),
        (["alfa"], 0.05, "nothing else"),
        (["alpha"], 0.0, "alpha"),
        (["alpha"], 0.6, "alpha"),
        (["alpha"], 10**400, "alpha"),
        (["limits"], {"invalid": 10**400}, "limit"),
        (["whole"], {"late_seconds": 10**400}, "late_seconds"),
        (["whole"], {"late_seconds": 1e300}, "late_seconds"),
        (["alpha"], math.nan, "alpha"),
        (["alpha"], "0.05", "alpha"),
        (["alpha"], True, "alpha"),
        (["ratio"], 0.5, "ratio"),
        (["detect_ratio"], 1.0, "detect_ratio"),
        (["detect_rate"], 0.0, "detect_rate"),
        (["assignment"], "customer", "assignment"),
        (["limits"], {"slow": 0.1}, "limits"),
        (["limits"], {"invalid": 0}, "invalid"),
        (["limits"], {"invalid": math.inf}, "invalid"),
        (["limits"], [], "limits"),
        (["whole"], {"unmeasured": 1.5}, "unmeasured"),
        (["whole"], {"late_seconds": -1}, "late_seconds"),
        (["whole"], {"lateness": 1}, "nothing else"),
        (["stages"], None, "stages"),
        (["stages"], [], "stages"),
        (["stages"], PLAN["stages"][:1], "canary"),
        (["stages", 0, "name"], "canary 1", "shadow"),
        (["stages", 0, "share"], 0.5, "stage 1"),
        (["stages", 0, "compared"], 0, "compared"),
        (["stages", 0, "requests"], 0, "requests"),
        (["stages", 0, "requests"], 40.0, "requests"),
        (["stages", 0, "requests"], True, "requests"),
        (["stages", 1, "share"], 0.06, "canary 6"),
        (["stages", 1, "share"], 0, "share"),
        (["stages", 1, "share"], 0.7, "share"),
        (["stages", 1, "share"], None, "stage 2"),
        (["stages", 1], "canary 5", "stage 2"),
        (["stages", 2], PLAN["stages"][1], "growing"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_with_its_place(path, value, said):
    with pytest.raises(ValueError, match=said):
        parse_plan(changed(path, value))


def test_a_plan_written_out_reads_as_the_same_plan():
    plan = parse_plan(PLAN)
    assert parse_plan(json.loads(json.dumps(plan.to_json()))) == plan
    assert parse_plan(plan.to_json()).digest == plan.digest


def test_alpha_is_split_evenly_over_all_tests():
    assert parse_plan(PLAN).threshold == pytest.approx(math.log(4 / 0.05))
    assert parse_plan({**PLAN, "limits": {"invalid": 0.1}}).threshold == pytest.approx(math.log(5 / 0.05))


def test_a_plan_file_that_cannot_be_read_is_one_error_with_its_path(tmp_path):
    path = tmp_path / "plan.json"
    with pytest.raises(PolicyError, match=r"plan\.json"):
        read_plan(path)
    path.write_text('{"format": 1, "format": 1}')
    with pytest.raises(PolicyError, match="twice"):
        read_plan(path)
    path.write_text(json.dumps(PLAN))
    assert read_plan(path) == parse_plan(PLAN)
