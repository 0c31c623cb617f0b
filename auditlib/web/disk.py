"""What lies on the disk now: runs, revisions and snapshots.

A store and a folder of runs may change at any time, so each look goes by a stamp of the files, and what has been read
is kept under that stamp, never under a path alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import streamlit as st

from auditlib.decoding.policies import read_policy
from auditlib.errors import PrefixgateError
from auditlib.runs.folder import Run, open_run
from auditlib.sessions.store import SessionStore
from auditlib.web.catalogue import DamagedRun, Entry, entries, stale

Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunsFound:
    """What lies in a folder of runs: finished runs and damaged ones, newest first, and why those cannot be read.

    A damaged run is only among the problems where not even its manifest says whose it was.
    """

    runs: tuple[Run, ...]
    damaged: tuple[DamagedRun, ...]
    problems: tuple[str, ...]


def catalogue(store: Path, runs_root: Path) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """All revisions with their runs, and in words what could not be read."""
    found = runs_in(runs_root)
    registered: tuple[Any, ...] | None = None
    problems = found.problems
    try:
        # Of a store that is not there the door says what to do.
        registered = tuple(_registered(store, stamp(store))) if store.exists() else None
    except PrefixgateError as problem:
        problems = (*problems, str(problem))
    return entries(registered, found.runs, found.damaged), problems


def runs_in(root: Path) -> RunsFound:
    """Finished runs, and why others could not be read: one damaged run must not hide the rest."""
    runs: list[Run] = []
    damaged: list[DamagedRun] = []
    problems: list[str] = []
    folders = sorted(root.iterdir(), reverse=True) if root.is_dir() else []
    for folder in folders:
        # A run that is still being written lies under a name with a dot.
        if folder.name.startswith(".") or not (folder / "manifest.json").is_file():
            continue
        try:
            runs.append(_run(folder, stamp(folder / "manifest.json") + stamp(folder / "report.json")))
        except PrefixgateError as problem:
            # A message names the run's folder first; without the folders before it, that is the run's name.
            problems.append(f"Run {problem}" if str(problem).startswith(f"{folder}:") else str(problem))
            damaged += _whose(folder)
    runs.sort(key=lambda run: run.manifest["created"], reverse=True)
    damaged.sort(key=lambda run: run.created, reverse=True)
    return RunsFound(tuple(runs), tuple(damaged), tuple(problems))


def snapshots(store: Path) -> tuple[Any, ...]:
    """Frozen snapshots of the store, newest first; none of a store that cannot be read, as `catalogue` says why."""
    try:
        return tuple(_snapshots(store, stamp(store)))
    except PrefixgateError:
        return ()


def changes(entry: Entry, run: Run, latest_snapshot: str | None, policy: Path | None) -> tuple[str, ...]:
    """What has changed since the run, in words."""
    return stale(entry, run, latest_snapshot, _policy_document(policy))


def stamp(path: Path) -> Stamp:
    """What changes whenever the file is written or replaced."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _whose(folder: Path) -> list[DamagedRun]:
    """The damaged run of a folder, by its manifest; nothing where that cannot be read either."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        revision, created = manifest["revision"], str(manifest["created"])
        datetime.fromisoformat(created)
        return [DamagedRun(folder.name, str(revision["digest"]), str(revision["name"]), created)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # the problem with the run is told already


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
