"""A reviewer looks at an artifact before it is released: its limits, its latency, and whether it fits the machine."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from auditlib.runs.evidence import bench_artifact, bench_plan, write_evidence
from tests.browser.driving import server, settled
from tests.packed import small_artifact
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]
TRACES = """() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => plot.data.map(trace => trace.name))"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    root = tmp_path_factory.mktemp("serving")
    world = make_world(root / "world")
    artifact = small_artifact(root / "made")
    shutil.copytree(artifact.folder, root / "artifacts" / "first")
    plan = bench_plan(artifact.policy, requests=60, levels=(2,))
    write_evidence(root / "artifacts" / "bench.json", bench_artifact(artifact, plan))
    options = ("--store", str(world.store), "--runs", str(world.runs), "--artifacts", str(root / "artifacts"))
    with server(root / "home", *options) as url:
        yield url


def test_a_reviewer_reads_the_bench_and_plans_the_memory(window, address, accessible):
    page = window.new_page()
    page.goto(f"{address}/serving")
    settled(page)
    expect(page.get_by_text("Nothing is blocked")).to_be_visible()
    expect(page.get_by_text("bench: not measured")).to_be_visible()  # 60 requests bound no share of 0.001
    expect(page.get_by_text("Not measured yet")).to_have_count(2)  # replay and rehearsal
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length >= 4")
    drawn = page.evaluate(TRACES)
    assert "cached, p95" in drawn[0]
    assert "full prefix, p95" in drawn[0]
    assert any(name.startswith("this machine") for name in drawn[-1])
    accessible(page)

    peak = page.get_by_test_id("stMetric").filter(has_text="at the peak").get_by_test_id("stMetricValue")
    before = peak.inner_text()
    handle = page.get_by_role("slider", name="Requests at once")
    handle.focus()
    for _ in range(5):
        handle.press("ArrowRight")
    expect(peak).not_to_have_text(before, timeout=30_000)


def test_a_reviewer_rehearses_the_fallback_by_a_button(window, address):
    page = window.new_page()
    page.goto(f"{address}/serving")
    settled(page)
    page.get_by_role("button", name="Rehearse the fallback").click()
    expect(page.get_by_text("rehearsal: passed")).to_be_visible(timeout=240_000)
    expect(page.get_by_text("rehearsal of artifact first: finished")).to_be_visible()


def test_the_page_fits_every_screen(window, address):
    page = window.new_page()
    page.goto(f"{address}/serving")
    settled(page)
    page.wait_for_function("() => document.querySelectorAll('.js-plotly-plot').length >= 4")
    for width in (1440, 1024, 420):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
