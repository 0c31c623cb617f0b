"""The serving artifact of a run on the verdict page, and the buttons that measure an artifact in the background."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown
from auditlib.web import parts_jobs, state, work
from auditlib.web.desk import Desk
from auditlib.web.shelf import Bound
from auditlib.web.text import short

MEASURES = {
    "replay": ("Replay", "Decode the fixed batch in every company beside its saved answers."),
    "rehearsal": ("Rehearse the fallback", "Make it fail in every way, and look whether its fallback answers."),
    "bench": ("Bench", "Load it as its callers would; takes minutes."),
}
"""Kinds of evidence: the words on the button, and what it does."""

_COLOURS = {"passed": "green", "failed": "red"}


def of_run(desk: Desk, here: state.Selection, run: Run) -> None:
    """Artifacts that were packaged of a run with their evidence, or the button that packages it."""
    offered = desk.offered(run)
    if not offered:
        st.text("Nothing of this run has been packaged yet. An artifact holds what the run allows to be served.")
        _package_button(desk, here, run)
        return
    for bound in offered:
        _shelved(bound)
        measure_buttons(desk, bound.artifact.folder, bound.artifact.digest)


def measure_buttons(desk: Desk, folder: Path, digest: str) -> None:
    """Buttons that measure one artifact; what they leave lies beside its folder."""
    row = st.container(horizontal=True)
    for kind, (label, words) in MEASURES.items():
        if row.button(label, key=f"measure-{kind}-{folder.name}", help=words):
            out = desk.settings.artifacts / f"{folder.name}.{kind}.json"
            job = work.measure(desk.settings, kind, folder, out)
            parts_jobs.start(f"{kind}|{digest}", f"{kind} of artifact {folder.name}", job)


def _package_button(desk: Desk, here: state.Selection, run: Run) -> None:
    revision = here.entry.folder if here.entry else None
    help_text = "Writes one closed folder: revision, rules, decoding, bounds, tolerance, and a batch with its answers."
    if st.button("Package what this run allows", key="package", help=help_text):
        out = desk.settings.artifacts / run.id
        job = work.package(desk.settings, run.folder, revision, out)
        parts_jobs.start(f"package|{run.id}", f"packaging of run {run.id}", job)


def _shelved(bound: Bound) -> None:
    """One artifact and what its evidence amounts to."""
    name = bound.artifact.folder.name
    row = st.container(horizontal=True, vertical_alignment="center")
    row.markdown(f"**{in_markdown(name)}** · {short(bound.artifact.digest)}")
    status = {found.kind: found.status for found in bound.evidence.values()}
    for kind in MEASURES:
        found = status.get(kind, "not measured")
        row.badge(f"{kind}: {found}", color=_COLOURS.get(found, "orange"))  # type: ignore[arg-type]
    row.page_link("pages/serving.py", label="Look at it", query_params={"artifact": name})
