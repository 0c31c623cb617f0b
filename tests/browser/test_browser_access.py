"""Accessibility: axe-core finds nothing serious in either theme, and no page is wider than a phone."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from auditlib.release.signing import new_key
from auditlib.runs.folder import write_run
from tests.browser.accessibility import findings
from tests.browser.driving import ROOT, browser, sections, server, settled
from tests.web.rollouts import make_rollout
from tests.web.test_cases import CASE, FILE
from tests.web.world import a_run, make_world, tables

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PAGES = tuple(sorted(path.stem for path in (ROOT / "pages").glob("*.py")))
SECTIONS = {
    ("cache_parity", "Counterexamples"), ("compare", "Paired differences"), ("compare", "Sessions that flip"),
    ("inspector", "Attention"), ("policies", "Sequences"), ("sessions", "Transitions"), ("board", "Trend"),
}  # fmt: skip
"""Some that stand there only with something to show: a walk that does not meet them has looked at empty pages."""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Address of a server whose pages have something in each section: two runs to compare, a rollout, a key."""
    world = make_world(tmp_path_factory.mktemp("full"))
    sound = a_run(world.runs, world.sound, world.snapshot, run_id="20261130T090000Z-aaaaaaaa")
    written(world, sound, gap=1e-6, run_id="20261130T110000Z-bbbbbbbb")
    written(
        world, world.refused, gap=0.31, run_id="20261130T120000Z-cccccccc", extras={FILE: json.dumps(CASE).encode()}
    )
    home = world.home / "served"
    make_rollout(home)
    new_key(home / "keys" / "bea.pem", "Bea", b"correct horse", home / "trust.json")
    with server(home, "--store", str(world.store), "--runs", str(world.runs)) as url:
        yield url


def written(world, run, gap, run_id, extras=None):
    """The run written anew under another name, with one session's gap in its tables."""
    manifest, report = ({**json.loads(json.dumps(one)), "run": run_id} for one in (run.manifest, run.report))
    manifest.pop("files")
    manifest["created"] = report["created"] = f"2026-11-30T{run_id[9:11]}:00:00.000+00:00"
    frame = pd.DataFrame({"session_id": ["S002"], "events": ["1-6-3-4"], "ratio": [1.0], "gap": [gap], "weight": [3]})
    found = {**tables(), ("numerics", "sessions"): frame}
    extras = extras or {}
    write_run(world.runs, run_id, manifest=manifest, report=report, tables=found, policy=b"{}", extras=extras)


def test_no_section_of_a_page_has_a_serious_finding_or_scrolls_sideways(full, axe):
    """One walk for all: opening every section takes longer than looking at it in three widths and two themes."""
    found = {}
    with browser(color_scheme="light") as (context, _):
        page = context.new_page()
        for name in PAGES:
            page.goto(f"{full}/{name}?events=1-6-3-4")
            settled(page)
            for section in sections(page):
                found[name, section] = [*findings(page, axe), *too_wide(page)]
    assert {place: lines for place, lines in found.items() if lines} == {}
    assert set(found) >= SECTIONS


def too_wide(page):
    """Widths at which the open page can be scrolled sideways; afterwards it is as wide as before."""
    for width in (1024, 420, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_timeout(150)
        if page.evaluate("() => document.documentElement.scrollWidth - innerWidth") > 1:
            yield f"wider than {width}"
