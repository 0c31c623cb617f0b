"""What the pages read, kept between reruns. Every key is a digest or an id of something that never changes.

What may change (a store, a folder of runs) is looked at anew each time, through a stamp of its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from auditlib.decoding.policies import read_policy
from auditlib.demo.places import demo_under
from auditlib.errors import PrefixgateError
from auditlib.runs.folder import Run, open_run
from auditlib.sessions.store import SessionStore
from auditlib.web.catalogue import Entry, entries, stale
from auditlib.web.jobs import JobRegistry
from auditlib.web.settings import Settings, settings_now

Stamp = tuple[int, ...]


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
    ready = demo.store.is_file() and bool(runs_in(demo.runs)[0])
    return Places(demo.store, demo.runs) if ready else None


def catalogue(where: Places) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """All revisions with their runs, and in words what could not be read."""
    runs, problems = runs_in(where.runs)
    registered: tuple[Any, ...] = ()
    try:
        registered = tuple(_registered(where.store, stamp(where.store)))
    except PrefixgateError as problem:
        problems = (*problems, str(problem))
    return entries(registered, runs), problems


def runs_in(root: Path) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """Finished runs, newest first, and why others could not be read: one damaged run must not hide the rest."""
    runs: list[Run] = []
    problems: list[str] = []
    folders = sorted(root.iterdir(), reverse=True) if root.is_dir() else []
    for folder in folders:
        if folder.name.startswith(".") or not (folder / "manifest.json").is_file():
            continue
        try:
            runs.append(_run(folder, stamp(folder / "manifest.json") + stamp(folder / "report.json")))
        except PrefixgateError as problem:
            problems.append(str(problem))
    return tuple(sorted(runs, key=lambda run: run.manifest["created"], reverse=True)), tuple(problems)


def snapshots(where: Places) -> tuple[Any, ...]:
    """Frozen snapshots of the store, newest first; none of a store that cannot be read, as `catalogue` says why."""
    try:
        return tuple(_snapshots(where.store, stamp(where.store)))
    except PrefixgateError:
        return ()


def changes(entry: Entry, run: Run, latest_snapshot: str | None) -> tuple[str, ...]:
    """What has changed since the run, in words."""
    return stale(entry, run, latest_snapshot, _policy_document(settings().policy))


def stamp(path: Path) -> Stamp:
    """What changes whenever the file is written or replaced."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


@st.cache_resource(max_entries=500, show_spinner=False)
def _run(folder: Path, version: Stamp) -> Run:  # noqa: ARG001  a part of the cache's key
    return open_run(folder)


@st.cache_resource(max_entries=8, show_spinner=False)
def _registered(store: Path, version: Stamp) -> Any:  # noqa: ARG001  a part of the cache's key
    with SessionStore.open(store) as opened:
        return opened.revisions()


@st.cache_resource(max_entries=8, show_spinner=False)
def _snapshots(store: Path, version: Stamp) -> Any:  # noqa: ARG001  a part of the cache's key
    with SessionStore.open(store) as opened:
        return sorted(opened.snapshots(), key=lambda snapshot: snapshot.created, reverse=True)


def _policy_document(path: Path | None) -> Mapping[str, Any] | None:
    try:
        return read_policy(path).document
    except PrefixgateError:  # the audit itself will say what is wrong with the file
        return None


def link(here: Selection, **more: str) -> dict[str, str]:
    """Address of what is shown now, with `more` beside it; empty values are left out."""
    now = {
        "revision": here.entry.digest if here.entry else "",
        "run": here.run.id if here.run else "",
        "snapshot": here.snapshot or "",
        **more,
    }
    return {name: text for name, text in now.items() if text}
