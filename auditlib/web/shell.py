"""The door that every page goes through: login, page list, demo at first start, choice of revision and run."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import streamlit as st
from streamlit.navigation.page import StreamlitPage
from streamlit.runtime.pages_manager import PagesManager

from auditlib.runs.folder import Run
from auditlib.sessions.snapshot import Snapshot
from auditlib.views.text import in_markdown, safe
from auditlib.web import address, clock, disk, identity, lost_store, parts, parts_jobs, problems, state
from auditlib.web.catalogue import Entry, complete
from auditlib.web.text import BADGES, TERMS, short

_SELECTION = "selection"

# A name such as ":material/gavel:" would make the browser fetch the picture from a server of Google's.
_ICON = "data:image/svg+xml;base64," + base64.b64encode(
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#0072b2" d="M2 2h3v12H2zM11 2h3v12h-3z"/>'
    b'<path fill="#d55e00" d="M5 7h6v2H5z"/></svg>'
).decode("ascii")

_PAGES = (
    ("board", "Release board", ":material/dashboard:"),
    ("sessions", "Sessions", ":material/dataset:"),
    ("causality", "Causality", ":material/schedule:"),
    ("cache_parity", "Cache parity", ":material/compare:"),
    ("policies", "Policies", ":material/alt_route:"),
    ("self_check", "Self-check", ":material/fact_check:"),
    ("compare", "Compare", ":material/difference:"),
    ("inspector", "Prefix inspector", ":material/search:"),
    ("verdict", "Verdict", ":material/verified:"),
    ("serving", "Serving", ":material/speed:"),
    ("rollout", "Rollout", ":material/conversion_path:"),
)


def main() -> None:
    """Draw the frame, then the page that was asked for."""
    st.set_page_config(page_title="Prefixgate", page_icon=_ICON, layout="wide")
    first, *others = (_page(name, title, icon) for name, title, icon in _PAGES)
    # The first page's own address is the bare host; /board, which people type and link, must lead there too.
    home = st.Page(Path("pages") / "board.py", title=_PAGES[0][1], icon=_PAGES[0][2], url_path="home", default=True)
    pages = [home, *others, first]
    page = st.navigation(pages, position="sidebar" if identity.is_open() else "hidden")
    identity.door(pages, page)
    where = state.places()
    if where is None:
        if lost_store.demo_is_gone():
            lost_store.offer_demo()
        else:
            parts_jobs.prepare_demo()
        st.stop()
    # Pages are files that Streamlit runs, so this is the only way to hand them something.
    st.session_state[_SELECTION] = _choose(where)
    parts_jobs.job_strip(turns=page.url_path != "verdict")
    with parts.told():
        page.run()


def enter() -> state.Selection:
    """What the person chose; the first call of every page file.

    On a fresh server Streamlit answers a deep link by running the file in pages/ without app.py. Such a bare run is
    turned round here, so that no page shows anything before the shell has run.
    """
    if PagesManager.uses_pages_directory:
        PagesManager.uses_pages_directory = False
        st.rerun()
    identity.require()
    selection: state.Selection = st.session_state[_SELECTION]
    return selection


def _page(name: str, title: str, icon: str) -> StreamlitPage:
    """A page of the list; the board stands there once already, as the default."""
    visibility: Literal["visible", "hidden"] = "hidden" if name == "board" else "visible"
    return st.Page(Path("pages") / f"{name}.py", title=title, icon=icon, url_path=name, visibility=visibility)


def _choose(where: state.Places) -> state.Selection:
    """Draw the sidebar's choices and give back what they stand at."""
    found, broken = disk.catalogue(where.store, where.runs)
    by_digest = {entry.digest: entry for entry in found}
    st.sidebar.caption(f"Store {in_markdown(where.store.name)}{', the demo' if state.settings().demo else ''}")
    chosen = address.choose(
        st.sidebar,
        "revision",
        "Revision",
        list(by_digest),
        shown=lambda digest: _revision_label(by_digest[digest]),
        help="A decoder: weights, config, event map and event order, named by one digest over all files.",
    )
    entry = by_digest.get(chosen or "")
    run = _choose_run(entry)
    snapshots = disk.snapshots(where.store)
    snapshot = _choose_snapshot(snapshots)
    if not where.store.exists():
        lost_store.say(where.store, known=bool(found))
    for problem in broken:
        st.error(problems.in_words(problem), icon=":material/error:")
    return state.Selection(where, found, entry, run, snapshot, snapshots[0].digest if snapshots else None)


def _choose_run(entry: Entry | None) -> Run | None:
    """The run whose results are shown; by default the one that speaks for the revision."""
    runs = {run.id: run for run in entry.runs} if entry else {}
    default = entry.run.id if entry and entry.run else None
    chosen = address.choose(
        st.sidebar,
        "run",
        "Run",
        list(runs),
        shown=lambda run_id: _run_label(runs[run_id]),
        default=default,
        help="One finished audit of the revision. Its files never change.",
    )
    if entry is not None and not runs:
        st.sidebar.caption("Its run cannot be read." if entry.lost else "This revision has not been audited yet.")
    return runs.get(chosen or "")


def _choose_snapshot(snapshots: Sequence[Snapshot]) -> str | None:
    """The snapshot that new audits measure on."""
    found = {snapshot.digest: snapshot for snapshot in snapshots}
    return address.choose(
        st.sidebar,
        "snapshot",
        "Snapshot for new audits",
        list(found),
        shown=lambda digest: f"{short(digest)} · {found[digest].held_out_sessions:,} held out",
        help=TERMS["snapshot"],
    )


def _revision_label(entry: Entry) -> str:
    return f"{safe(entry.name, 60)} · {BADGES[entry.standing][0]}"


def _run_label(run: Run) -> str:
    part = "" if complete(run) else f" · only {safe(', '.join(run.manifest['audits']), 60)}"
    return f"{clock.when(run.manifest['created'])} · {'approved' if run.approved else 'refused'}{part}"
