"""How long a person waits for a page of the dashboard, on a store of a million events, in a real browser.

`python benchmarks/pages.py --folder var/pages` makes the store once (seeded log, real importer, real audit) and keeps
it there; then it prints the time to the first page of a fresh server and the 95th percentile of clicks that need no
audit, once on a quiet server and once while an audit runs. `--json FILE` writes the same as JSON.

A click is timed inside the browser: from the press of the button or key until the whole page is drawn, what lies below
the window included. Drawn means: the server has answered and its run is over, nothing is marked as out of date or still
loading, every chart has its picture and every table its canvas, nothing changes for three frames, and the first of them
has been painted.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import timeit
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, expect  # noqa: E402

from auditlib.demo.log import demo_log  # noqa: E402
from auditlib.demo.places import FAULTY, SHIPPED, SOUND  # noqa: E402
from auditlib.sessions.importers import import_log  # noqa: E402
from auditlib.sessions.split import split  # noqa: E402
from auditlib.sessions.store import SessionStore  # noqa: E402
from tests.browser.driving import browser, server, settled  # noqa: E402

SESSIONS = 120_000
HELD_OUT = 0.05
FIRST_PAGE, CLICK = 2.0, 0.5
"""Goals in seconds: the first page of a fresh server, and the 95th percentile of clicks that need no audit."""
PAGES = (
    "Sessions",
    "Causality",
    "Cache parity",
    "Policies",
    "Self-check",
    "Compare",
    "Prefix inspector",
    "Rollout",
    "Verdict",
    "Release board",
)
_CLOCK = """(() => {
  const app = () => document.querySelector('[data-testid=stApp]');
  const over = () => app()?.getAttribute('data-test-script-state') === 'notRunning';
  const all = (where, has) => [...document.querySelectorAll(where)].every(one => one.querySelector(has));
  const titled = title => document.querySelector('[data-testid=stMain] h1')?.textContent.startsWith(title);
  const drawn = title => over() && titled(title)
    && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]')
    && all('[data-testid=stPlotlyChart]', '.main-svg') && all('[data-testid=stDataFrame]', 'canvas');
  const clock = window.waited = { begun: null, heard: false, moved: 0, took: null };
  const Native = window.WebSocket;
  window.WebSocket = class extends Native {
    constructor(...rest) {
      super(...rest);
      this.addEventListener('message', () => { clock.heard ||= clock.begun !== null; });
    }
  };
  for (const kind of ['pointerdown', 'keydown'])
    document.addEventListener(kind, event => { clock.begun ??= event.timeStamp; }, true);
  const until = (title, heard) => {
    const watch = new MutationObserver(() => { clock.moved = performance.now(); });
    watch.observe(document.body, { attributes: true, characterData: true, childList: true, subtree: true });
    let frames = 0, looked = performance.now(), painted = 0;
    const look = () => {
      frames = heard() && drawn(title) && clock.moved < looked ? frames + 1 : 0;
      looked = performance.now();
      if (frames === 2) painted = looked;
      if (frames < 3) return requestAnimationFrame(look);
      watch.disconnect();
      clock.took = (painted - clock.begun) / 1000;
    };
    requestAnimationFrame(look);
  };
  clock.arm = title => {
    Object.assign(clock, { begun: null, heard: false, took: null });
    until(title, () => clock.heard);
  };
  clock.first = title => {
    clock.begun = 0;
    until(title, () => true);
  };
})()"""
"""Runs in the page. `arm(title)` before a click leaves in `took` how many seconds the click took until the page of that
title was drawn; `first(title)` the same since the browser began to load the address."""

Clicks = list[tuple[str, float]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when every goal is met, else 1."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--folder", type=Path, required=True, help="where the store is kept, or will be made")
    options.add_argument("--sessions", type=int, default=SESSIONS, help="about 8.5 events each")
    options.add_argument("--rounds", type=int, default=4, help="walks through all pages, quiet and again with an audit")
    options.add_argument("--json", type=Path, metavar="FILE")
    chosen = options.parse_args(arguments)
    events = prepare(chosen.folder, chosen.sessions)
    found = measure(chosen.folder, chosen.rounds) | {"events": events, "machine": machine()}
    print(markdown(found))
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(row["met"] for row in found["rows"]) else 1


def prepare(folder: Path, sessions: int) -> int:
    """Make the store and one run of each shipped revision, unless they are there; gives the number of events."""
    store = folder / "sessions.duckdb"
    folder.mkdir(parents=True, exist_ok=True)
    if not store.exists():
        log = folder / "log.csv.gz"
        log.write_bytes(gzip.compress(demo_log(sessions), 1))
        columns = {"session": "session_id", "event": "event", "time": "timestamp"}
        import_log(
            log, store, mapping={**columns, "customer": "customer", "asset": "asset", "attributes": ("contract",)}
        )
        with SessionStore.open(store, read_only=False) as opened:
            split(opened, held_out=HELD_OUT)
    _audit_all(store, folder / "runs")
    with SessionStore.open(store) as opened:
        return opened.summary().events


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    """Figures of a fresh server: first page, clicks on a quiet server, clicks while an audit runs."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home, _served(folder, Path(home)) as url, browser() as (context, _):
        page = context.new_page()
        page.add_init_script(_CLOCK)
        page.goto(url)
        page.evaluate("waited.first('Release board')")
        first = _took(page)
        warm = walk(page)  # every page once: what is cached from then on is what a second person finds
        quiet = [click for _ in range(rounds) for click in walk(page)]
        _start_audit(page)
        busy = [click for _ in range(rounds) for click in walk(page)]
        running = page.get_by_role("button", name="Cancel").count() > 0
        if running:
            page.get_by_role("button", name="Cancel").first.click()
    rows = [
        _row("first page of a fresh server", [first], FIRST_PAGE),
        _row("click, first visit to each page", [seconds for _, seconds in warm], None),
        _row("click, quiet server", [seconds for _, seconds in quiet], CLICK),
        _row("click, while an audit runs", [seconds for _, seconds in busy], CLICK),
    ]
    slowest = {"first": _slowest(warm), "quiet": _slowest(quiet), "busy": _slowest(busy)}
    load = {"before": before, "after": os.getloadavg()[0]}
    return {"rows": rows, "by_click": _by_click(quiet), "slowest": slowest, "load": load, "audit_ran_on": running}


def walk(page: Page) -> Clicks:
    """Every page by its link in the sidebar, with a few clicks on the way; what each took in seconds."""
    found: Clicks = []
    for name in PAGES:
        found.append((f"open {name}", _open(page, name)))
        found += [(words, _timed(page, name, act)) for words, act in ACTIONS.get(name, {}).items()]
    return found


def _open(page: Page, name: str) -> float:
    """Seconds from the click on a page's link in the sidebar until the page is drawn."""
    link = page.get_by_test_id("stSidebarNav").get_by_role("link", name=name, exact=True)
    return _timed(page, name, lambda _: link.click())


def _show(status: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("radio", name=status, exact=True).click()


def _tab(section: str) -> Callable[[Page], None]:
    return lambda page: page.get_by_role("tab", name=section, exact=True).click()


def _step(key: str) -> Callable[[Page], None]:
    def act(page: Page) -> None:
        page.get_by_role("slider").first.focus()
        page.keyboard.press(key)

    return act


ACTIONS = {
    "Release board": {"show failed checks": _show("failed"), "show all checks": _show("all")},
    "Prefix inspector": {
        "open What comes next": _tab("What comes next"),
        "step back": _step("ArrowLeft"),
        "step on": _step("ArrowRight"),
    },
}


def _start_audit(page: Page) -> None:
    """All audits of the first revision on the board, in the background."""
    _open(page, "Release board")
    page.get_by_role("button", name="Run all audits").first.click()
    expect(page.get_by_role("button", name="Cancel").first).to_be_visible(timeout=60_000)
    settled(page)


def _audit_all(store: Path, runs: Path) -> None:
    """One run of each shipped revision that has none."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415 - loads torch, which reuse of a store needs not
    from auditlib.decoders.revision import open_revision  # noqa: PLC0415
    from auditlib.runs.execute import run_audits  # noqa: PLC0415
    from auditlib.runs.folder import list_runs  # noqa: PLC0415
    from auditlib.runs.request import AuditRequest  # noqa: PLC0415

    settle_threads()
    done = {run.revision for run in list_runs(runs)}
    for name in (SOUND, FAULTY):
        folder = SHIPPED / "revisions" / name
        revision = open_revision(folder)
        with SessionStore.open(store, read_only=False) as opened:
            if revision.digest not in {one.digest for one in opened.revisions()}:
                opened.add_revision(name, folder, revision.digest)
        if revision.digest not in done:
            print(f"auditing {name} once", file=sys.stderr)
            run_audits(AuditRequest(store, folder, runs))


@contextlib.contextmanager
def _served(folder: Path, home: Path) -> Iterator[str]:
    """A fresh server on the store and on links to its runs, so that an audit here leaves nothing in the folder."""
    runs = home / "runs"
    runs.mkdir()
    for run in (folder / "runs").iterdir():
        if run.is_dir() and not run.name.startswith("."):
            (runs / run.name).symlink_to(run.resolve())
    with server(home, "--store", str((folder / "sessions.duckdb").resolve()), "--runs", str(runs)) as url:
        yield url


def _timed(page: Page, title: str, act: Callable[[Page], None]) -> float:
    """Seconds from the press in `act` until the page of that title is drawn."""
    page.evaluate("title => waited.arm(title)", title)
    act(page)
    return _took(page)


def _took(page: Page) -> float:
    return float(page.wait_for_function("() => waited.took", polling=50, timeout=60_000).json_value())


def _row(name: str, seconds: Sequence[float], goal: float | None) -> dict[str, Any]:
    ordered = sorted(seconds)
    p95 = ordered[max(0, math.ceil(0.95 * len(ordered)) - 1)]
    figures = {"median": statistics.median(ordered), "p95": p95, "worst": ordered[-1], "count": len(ordered)}
    return {"what": name, **figures, "goal": goal, "met": goal is None or p95 <= goal}


def _slowest(clicks: Clicks) -> Clicks:
    return sorted(clicks, key=lambda click: -click[1])[:4]


def _by_click(clicks: Clicks) -> dict[str, float]:
    names = dict.fromkeys(name for name, _ in clicks)
    return {name: statistics.median(seconds for other, seconds in clicks if other == name) for name in names}


def machine() -> dict[str, Any]:
    """What the figures were measured on; `loop_s`: seconds of a fixed loop, the median of five, on one core."""
    loops = [timeit.timeit("for _ in range(1_000_000): pass", number=10) for _ in range(5)]
    known = {"cpus": os.cpu_count(), "machine": platform.machine(), "python": platform.python_version()}
    return known | {"loop_s": statistics.median(loops)}


def markdown(found: dict[str, Any]) -> str:
    """The figures as a table, with the load of the machine beside them."""
    load, ran = found["load"], "ran all the while" if found["audit_ran_on"] else "ended early"
    cpus, loop = found["machine"]["cpus"], found["machine"]["loop_s"]
    measured = f"load average {load['before']:.1f} before, {load['after']:.1f} after, {cpus} CPUs, loop {loop:.2f} s"
    lines = [f"{found['events']:,} events; {measured}; the audit {ran}", ""]
    lines += ["| what | median s | p95 s | worst s | n | goal s | |", "|---|---:|---:|---:|---:|---:|---|"]
    for row in found["rows"]:
        goal = "" if row["goal"] is None else f"{row['goal']:.1f}"
        said = "" if row["goal"] is None else ("met" if row["met"] else "missed")
        figures = " | ".join(f"{row[name]:.2f}" for name in ("median", "p95", "worst"))
        lines.append(f"| {row['what']} | {figures} | {row['count']} | {goal} | {said} |")
    lines += ["", "| click, quiet server | median s |", "|---|---:|"]
    lines += [f"| {name} | {seconds:.2f} |" for name, seconds in found["by_click"].items()]
    for when, clicks in found["slowest"].items():
        lines += ["", f"slowest, {when}: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in clicks)]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
