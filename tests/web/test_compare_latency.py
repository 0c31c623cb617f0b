"""Latencies of two runs beside each other: only of their own artifacts, and only where they were benched."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest

from auditlib.runs.evidence import bench_artifact, bench_plan, write_evidence
from auditlib.web.comparison import latencies
from tests.packed import small_artifact
from tests.web.opening import opened, words
from tests.web.world import a_run


@pytest.fixture(scope="module")
def benched(tmp_path_factory):
    """(folder with a benched artifact, the run that it was packaged of)."""
    root = tmp_path_factory.mktemp("benched")
    artifact = small_artifact(root / "made")
    shutil.copytree(artifact.folder, root / "artifacts" / "first")
    plan = bench_plan(artifact.policy, requests=120, levels=(2,))
    write_evidence(root / "artifacts" / "first.bench.json", bench_artifact(artifact, plan))
    return root / "artifacts", SimpleNamespace(id=artifact.document["run"])


def test_each_load_has_its_percentiles_on_the_path_that_serves(benched):
    root, run = benched
    found = latencies(root, {"before": SimpleNamespace(id="another"), "after": run})
    assert set(found["run"]) == {"after"}
    assert set(found["path"]) == {"cached"}
    assert set(found["measure"]) == {"first event", "whole request"}
    bounded = found[found["at most"].notna()]
    assert len(bounded)
    assert (bounded["p50"] <= bounded["p95"]).all()
    assert (bounded["p95"] <= bounded["at most"]).all()
    said = json.loads((root / "first.bench.json").read_bytes())["tables"]["latency"]
    one = found[(found["load"] == "8 at once") & (found["measure"] == "whole request")].iloc[0]
    wanted = [r for r in said if (r["load"], r["measure"], r["arm"]) == ("8 at once", "whole request", "cached")]
    assert one["p95"] == next(r["value"] for r in wanted if r["share"] == 0.95)


def test_nothing_benched_is_an_empty_table(tmp_path):
    assert latencies(tmp_path, {"before": SimpleNamespace(id="a"), "after": SimpleNamespace(id="b")}).empty


@pytest.mark.usefixtures("place")
def test_the_page_says_whose_bench_is_missing(world):
    a_run(world.runs, world.sound, world.snapshot, run_id="20261130T110000Z-0a1b2c3d")
    assert "no artifact of the run before and after was benched" in words(opened("compare", section="Latency"))
