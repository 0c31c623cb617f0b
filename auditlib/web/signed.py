"""Who signed the verdict of a run, and for what, as one line; verified anew when a file changed that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.release.refusals import RefusedError
from auditlib.release.verdict import verify_verdict
from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown
from auditlib.web.catalogue import DamagedRun
from auditlib.web.desk import Desk
from auditlib.web.disk import Stamp, stamp

_ICONS = {True: ":material/verified:", False: ":material/gpp_bad:", None: ":material/edit_off:"}


def line(desk: Desk, run: Run | DamagedRun) -> str:
    """Markdown that says whether the run is signed, by whom, and for what.

    Held against the trust file, and against the run's report where that can be read. Whether revision and artifact
    still fit is told on the page Verdict: hashing their weights would take longer than a board may.
    """
    files = (desk.verdict_file(run), desk.settings.trust)
    report = run.folder / "report.json" if isinstance(run, Run) else None
    version = tuple(stamp(file) for file in (*files, report) if file)
    holds, words = _said(*files, report, version, lambda: _so_far(desk, run))
    return f"{_ICONS[holds]} {words}"


@st.cache_resource(max_entries=500, show_spinner=False)
def _said(
    verdict: Path,
    trust: Path,
    report: Path | None,
    version: tuple[Stamp, ...],  # noqa: ARG001  a part of the cache's key
    _so_far: Callable[[], str],
) -> tuple[bool | None, str]:
    """Whether the verdict holds (None: there is none yet, or signatures are missing), and words."""
    if not verdict.exists():
        return None, "Unsigned"
    if not trust.exists():
        return False, "A verdict is on file, but no trust file says whose signature counts."
    try:
        found = verify_verdict(verdict, trust, report=report)
    except RefusedError as problem:
        return (None, _so_far()) if problem.reason == "threshold" else (False, _BROKEN)
    except PrefixgateError:
        return False, _BROKEN
    people = ", ".join(in_markdown(signer.person, 80) for signer in found.signers)
    return True, f"Signed by {people}: {'release' if found.says_yes else 'do not release'}"


_BROKEN = "The verdict on file does not hold; the page Verdict says why."


def _so_far(desk: Desk, run: Run | DamagedRun) -> str:
    """Who has signed a verdict that lacks signatures."""
    signed = dict.fromkeys(place.person for place in desk.roster(run, datetime.now(UTC)) if place.signed)
    people = ", ".join(in_markdown(person, 80) for person in signed)
    return f"Signed by {people}, not yet by as many as the trust file asks for" if people else _BROKEN
