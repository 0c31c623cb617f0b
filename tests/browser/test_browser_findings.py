"""What a reviewer does with findings: open a section, choose rows, follow one into the inspector, pass the link on."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from playwright.sync_api import expect

from auditlib.audits.faults.catalogue import FAULTS
from auditlib.audits.self_check import Planting
from auditlib.runs.folder import write_run
from auditlib.runs.self_check import Judged, SelfCheck
from tests.browser.driving import choose, server, settled
from tests.web.rollouts import make_rollout
from tests.web.world import TOLERANCE, a_run, make_world, tables

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SLOW = 60_000
LEAK = "1-6-3-4"  # <start> → opened → assigned → closed
SEEN, ALSO_SEEN, MISSED = FAULTS[:3]


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """(address, world, a run of the sound revision: it leaks and missed a fault), with a rollout beside them."""
    root = tmp_path_factory.mktemp("findings")
    world = make_world(root / "world")
    leaky = leaky_run(world)
    make_rollout(root / "home")
    with server(root / "home", "--store", str(world.store), "--runs", str(world.runs)) as url:
        yield url, world, leaky


def leaky_run(world):
    bad = {"causality: exhaustive next event": 7.0}
    plain = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090030Z-aaaaaaaa", bad=bad)
    # of the same minute as the older run: the one that a reviewer follows must not become the other
    own = {"run": "20261130T090050Z-bbbbbbbb", "created": "2026-11-30T09:00:50.000+00:00"}
    manifest = {**json.loads(json.dumps(plain.manifest)), **own}
    manifest.pop("files")
    check = self_check()
    report = {**json.loads(json.dumps(plain.report)), **own, "self_check": check.to_report()}
    probes = {
        "probe": ["jacobian", "exhaustive next event"], "path": ["full", "full"], "events": ["1-6", LEAK],
        "position": [1, 2], "value": [0.0, 7.0],
    }  # fmt: skip
    more = {("causality", "probes"): pd.DataFrame(probes), ("self check", "faults"): check.table()}
    return write_run(
        world.runs, manifest["run"], manifest=manifest, report=report, tables={**tables(), **more}, policy=b"{}"
    )


def self_check():
    """Two planted faults that were caught, and one that its check did not see."""
    fates = ((SEEN, 40.0, "caught"), (ALSO_SEEN, 3.0, "caught"), (MISSED, 0.25, "missed"))
    plantings = [
        (Planting(fault, fault.checks[0], TOLERANCE * times, 12, 0.0, 12), outcome) for fault, times, outcome in fates
    ]
    return SelfCheck(tuple(Judged(planting, TOLERANCE, outcome) for planting, outcome in plantings))


def opened(window, address, heading):
    page = window.new_page()
    page.goto(address)
    expect(page.get_by_role("heading", name=heading, exact=True, level=1)).to_be_visible(timeout=SLOW)
    return settled(page)


def open_section(page, name):
    """The page with one of its tabs open, as a click leaves it."""
    page.get_by_role("tab", name=name, exact=True).click()
    expect(page.get_by_role("tab", name=name, exact=True)).to_have_attribute("aria-selected", "true")
    return page


def cell(page, text):
    """Cells of tables that hold this text: a table is drawn on a canvas, and its cells stand in there for readers."""
    return page.locator("canvas [role=gridcell]").filter(has_text=re.compile(rf"^{re.escape(text)}$"))


def test_cache_parity_is_read_section_by_section_and_a_worst_prefix_is_followed(desk, window):
    url, world, _ = desk
    page = opened(window, f"{url}/cache_parity?revision={world.faulty.digest}", "Cache parity")
    failed = page.get_by_text(re.compile(r"single events: 0\.31 logit where .* is allowed"))
    expect(failed).to_be_visible(timeout=SLOW)
    tabs = page.get_by_role("tablist")
    assert failed.bounding_box()["y"] < tabs.bounding_box()["y"]

    open_section(page, "Probes")
    expect(page.get_by_text("Each probe appends, pads, drops or reorders")).to_be_visible(timeout=SLOW)
    expect(failed).to_be_visible()
    open_section(page, "Cache identity")
    expect(cell(page, "one event")).to_be_attached(timeout=SLOW)
    expect(page.get_by_text("Each probe appends, pads, drops or reorders")).to_have_count(0)
    page.wait_for_url(re.compile(r"section=Cache(\+|%20)identity"), timeout=SLOW)

    other = window.browser.new_context().new_page()
    other.goto(page.url)
    expect(other.get_by_role("tab", name="Cache identity")).to_have_attribute("aria-selected", "true", timeout=SLOW)
    expect(cell(other, "one event")).to_be_attached(timeout=SLOW)

    open_section(page, "Worst prefixes")
    settled(page)
    choose(page, "Probe", "dropped rows")
    page.get_by_role("link", name=re.compile(r"1\. gap 1\.00e-6")).click(timeout=SLOW)
    expect(page.get_by_role("heading", name="Prefix inspector", exact=True)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("<start> → assigned", exact=True)).to_be_visible(timeout=SLOW)
    assert "events=1-3&" in f"{page.url}&"


def test_a_sequence_with_a_wrong_event_leads_to_the_rule_that_it_breaks(desk, window):
    url, world, _ = desk
    page = opened(window, f"{url}/policies?revision={world.faulty.digest}", "Policies")
    open_section(page, "Sequences")
    expect(page.get_by_role("link", name=re.compile(r"1\. "))).to_be_visible(timeout=SLOW)
    settled(page)
    choose(page, "Sequences", "with a wrong event")
    expect(page.get_by_text("There is no sequence.")).to_be_visible(timeout=SLOW)  # the order mask let none through
    settled(page)
    choose(page, "Setting", "greedy without order mask")
    page.get_by_role("link", name=re.compile(r"1\. .*closed → assigned")).click(timeout=SLOW)
    expect(page.get_by_role("heading", name="Prefix inspector", exact=True)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("Event 2, assigned, is illegal there: not succession(closed, assigned)")).to_be_visible(
        timeout=SLOW
    )


def test_a_leak_is_stated_and_its_prefix_opens_in_the_inspector(desk, window, accessible):
    url, world, leaky = desk
    page = opened(window, f"{url}/causality?revision={world.faulty.digest}", "Causality")
    expect(page.get_by_text("causality: passed")).to_be_visible(timeout=SLOW)

    page = opened(window, f"{url}/causality?revision={world.sound.digest}&run={leaky.id}", "Causality")
    expect(page.get_by_text("causality: failed")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("exhaustive next event: 7 changed logits where 0 is allowed, n = 40")).to_be_visible()
    first = page.get_by_role("link", name=re.compile(r"1\. "))
    expect(first).to_contain_text("exhaustive next event: opened → assigned → closed")
    accessible(page)
    first.click()
    expect(page.get_by_role("heading", name="Prefix inspector", exact=True)).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("<start> → opened → assigned → closed")).to_be_visible(timeout=SLOW)
    assert f"run={leaky.id}" in page.url


def test_a_planted_fault_that_was_missed_is_said_in_words(desk, window, accessible):
    url, world, leaky = desk
    page = opened(window, f"{url}/self_check?revision={world.sound.digest}&run={leaky.id}", "Self-check")
    for label, value in (("planted", "3"), ("caught", "2"), ("missed", "1"), ("false alarms", "0")):
        metric = page.get_by_test_id("stMetric").filter(has=page.get_by_text(label, exact=True))
        expect(metric.get_by_test_id("stMetricValue")).to_have_text(value, timeout=SLOW)
    expect(page.get_by_text("Not told apart:")).to_have_count(1)
    expect(page.get_by_text(f"Not told apart: {MISSED.name}")).to_be_visible()
    expect(cell(page, MISSED.name)).to_be_attached(timeout=SLOW)
    accessible(page)

    page.goto(f"{url}/self_check?revision={world.faulty.digest}")
    expect(page.get_by_text("The self-check was left out of this run.")).to_be_visible(timeout=SLOW)


def test_a_rollout_shows_its_stage_its_evidence_and_its_moves_on_every_screen(desk, window):
    url, _, _ = desk
    page = opened(window, f"{url}/rollout", "Rollout")
    expect(page.get_by_text("It is at: canary 50.")).to_be_visible(timeout=SLOW)
    page.wait_for_function("() => document.querySelector('.js-plotly-plot .scatterlayer .trace')", timeout=SLOW)
    drawn = page.evaluate("() => document.querySelector('.js-plotly-plot').data.map(one => one.name)")
    assert len(drawn) > 1
    assert drawn[-1].startswith("speaks from")
    expect(cell(page, "fallback").first).to_be_attached(timeout=SLOW)
    expect(cell(page, "Ada").first).to_be_attached(timeout=SLOW)
    for width in (1440, 1024, 420):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(300)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        assert wide <= 1, f"{wide} pixels too wide at {width}"
