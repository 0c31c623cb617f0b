"""What a page is about: the places that the server was started with, and what the person chose in the sidebar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from auditlib.demo.places import demo_under
from auditlib.runs.folder import Run
from auditlib.web import disk
from auditlib.web.catalogue import Entry
from auditlib.web.jobs import JobRegistry
from auditlib.web.settings import Settings, settings_now


@dataclass(frozen=True, slots=True)
class Places:
    """Where the sessions and the runs are."""

    store: Path
    runs: Path


@dataclass(frozen=True, slots=True)
class Selection:
    """What the person chose in the sidebar: what every page shows.

    `snapshot` is the digest that new audits measure on, `latest` the newest one; both are None before any split.
    """

    places: Places
    entries: tuple[Entry, ...]
    entry: Entry | None
    run: Run | None
    snapshot: str | None
    latest: str | None


@st.cache_resource(show_spinner=False)
def settings() -> Settings:
    """What the dashboard was started with."""
    return settings_now()


@st.cache_resource(show_spinner=False, on_release=lambda registry: registry.close())
def registry() -> JobRegistry:
    """The one queue of background jobs, shared by everybody who uses this server."""
    return JobRegistry(settings().home / "jobs")


def places() -> Places | None:
    """Where to read from; None while the demo still has to be made."""
    chosen = settings()
    if chosen.store is not None and chosen.runs is not None:
        return Places(chosen.store, chosen.runs)
    demo = demo_under(chosen.home)
    # The store alone is not the demo: the first refusal belongs to it.
    ready = demo.store.is_file() and bool(disk.runs_in(demo.runs).runs)
    return Places(demo.store, demo.runs) if ready else None


def link(here: Selection, **more: str) -> dict[str, str]:
    """Address of what is shown now, with `more` beside it; empty values are left out."""
    now = {
        "revision": here.entry.digest if here.entry else "",
        "run": here.run.id if here.run else "",
        "snapshot": here.snapshot or "",
        **more,
    }
    return {name: text for name, text in now.items() if text}
