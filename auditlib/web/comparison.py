"""Two runs paired, read once for each pair: runs never change, and neither do snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.runs.folder import Run
from auditlib.sessions.store import SessionStore
from auditlib.views.paired import Pairing, pair, sessions_of
from auditlib.web import disk, kept, prefix_choice, revision_facts, serving_facts, state
from auditlib.web.catalogue import complete
from auditlib.web.shelf import artifacts

_LATENCY = ("load", "arm", "measure", "share", "value", "low", "high", "count")


def others(here: state.Selection) -> dict[str, Run]:
    """Runs to compare the chosen one with: on its snapshot, complete, of other revisions, and new ones first."""
    found = [run for entry in here.entries for run in entry.runs if here.run is not None and run.id != here.run.id]
    found.sort(key=lambda run: str(run.manifest["created"]), reverse=True)
    return {run.id: run for run in sorted(found, key=lambda run: _distance(run, here.run))}


def about(here: state.Selection, before: Run, after: Run) -> str:
    """What names the pairing of two runs: the runs, and the names and right answers that can be had now."""
    mapping, store = revision_facts.event_map(here.entry), here.places.store
    return f"{kept.of_run(before, after)} {mapping and mapping.digest} {store} {disk.stamp(store)}"


def paired(here: state.Selection, before: Run, after: Run) -> Pairing:
    """The two runs, question by question; without names and right answers where revision or snapshot are gone."""
    mapping = revision_facts.event_map(here.entry)
    return _paired(about(here, before, after), here.places.store, before, after, mapping)


@st.cache_resource(max_entries=8, show_spinner="Pairing the sessions")
def _paired(of: str, store: Path, _before: Run, _after: Run, _mapping: EventMap | None) -> Pairing:  # noqa: ARG001  a part of the cache's key
    truth = _truth(store, str(_after.manifest["snapshot"]["digest"]), sessions_of(_before, _after), _mapping)
    return pair(_before, _after, truth, _mapping.name if _mapping is not None else str)


def _truth(
    store: Path, snapshot: str, sessions: tuple[str, ...], mapping: EventMap | None
) -> dict[str, tuple[int, ...]]:
    """Whole rows of ids of some held-out sessions; none where the snapshot is not in this store."""
    if mapping is None:
        return {}
    try:
        with SessionStore.open(store) as opened:
            frozen = opened.snapshot(snapshot)
            rows = opened.named(frozen, sessions)
        return {row.session_id: (*prefix_choice.of_session(row, mapping), mapping.end) for row in rows}
    except PrefixgateError:
        return {}


def latencies(root: Path, runs: Mapping[str, Run]) -> pd.DataFrame:
    """What the newest benches of each run's artifacts found, ms: one row a load and measure, on the path that serves.

    Columns: load, measure, run (its name in `runs`), artifact, path, p50, p95, at most (the p95's upper bound),
    requests, machine. `root` is the folder of artifacts.
    """
    rows = [row for words, run in runs.items() for row in _benched(root, words, run)]
    columns = ["load", "measure", "run", "artifact", "path", "p50", "p95", "at most", "requests", "machine"]
    found = pd.DataFrame(rows, columns=columns)
    # In the bench's own order: as words, "50 % of capacity" would stand between 2 and 8 at once.
    place = {name: number for number, name in enumerate(dict.fromkeys(found["load"]))}
    order = found.assign(load=found["load"].map(place)).sort_values(["load", "measure"], kind="stable").index
    return found.loc[order].reset_index(drop=True)


def _benched(root: Path, words: str, run: Run) -> Iterator[dict[str, object]]:
    for shelved in artifacts(root):
        bench = serving_facts.evidence(root, shelved.digest)[0].get("bench") if shelved.run == run.id else None
        if bench is None:
            continue
        path = str(bench.document.get("served", {}).get("strategy"))
        found = bench.table("latency", _LATENCY)
        shares = {share: found[(found["arm"] == path) & (found["share"] == share)] for share in (0.5, 0.95)}
        half = shares[0.5].set_index(["load", "measure"])["value"]
        for row in shares[0.95].to_dict("records"):
            yield {
                "load": row["load"], "measure": row["measure"], "run": words, "artifact": shelved.folder.name,
                "path": path, "p50": half.get((row["load"], row["measure"])), "p95": row["value"],
                "at most": row["high"], "requests": row["count"],
                "machine": str(bench.document["device"].get("processor")),
            }  # fmt: skip


def _distance(run: Run, chosen: Run | None) -> tuple[bool, bool, bool]:
    """What makes a run a worse partner: another snapshot, then audits that it left out, then the same revision."""
    if chosen is None:
        return False, False, False
    elsewhere = run.manifest["snapshot"]["digest"] != chosen.manifest["snapshot"]["digest"]
    return elsewhere, not complete(run), run.revision == chosen.revision
