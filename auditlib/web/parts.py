"""Parts that several pages share: what is missing, an audit's status, its numbers and its notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.numbers import number
from auditlib.runs.folder import Run
from auditlib.views.event_names import with_names
from auditlib.views.summary import untested_by_faults
from auditlib.views.text import in_markdown, safe
from auditlib.web import clock, parts_jobs, problems, revision_facts, state

_BADGES = {
    "passed": ("green", ":material/check:"),
    "failed": ("red", ":material/close:"),
    "not measured": ("orange", ":material/question_mark:"),
}
_WORDED = 1
_LEFT_OUT: Mapping[str, Any] = {"status": "not measured", "checks": [], "problem": "left out"}


@contextmanager
def told() -> Iterator[None]:
    """Show what breaks inside as an error in this place of the page, and go on after it.

    Only errors of ours: a store or a run may break while somebody looks at it, and they say what to do then.
    """
    try:
        yield
    except PrefixgateError as problem:
        st.error(problems.in_words(problem), icon=":material/error:")


def need_run(here: state.Selection, audit: str | None = None) -> Run:
    """The chosen run; without one, words and a button that makes one, and the page ends here."""
    if here.run is None:
        _say_what_is_missing(here)
        parts_jobs.audit_buttons(here, audit)
        st.stop()
    return here.run


def shown_run(here: state.Selection, run: Run) -> None:
    """Whose run this page shows, and whether a newer one speaks for the revision: a phone shows no sidebar."""
    made, untested = clock.when(run.manifest["created"]), untested_by_faults(run.report)
    says = f"approved{f', but {untested}' if untested else ''}" if run.approved else "refused"
    words = f"{in_markdown(run.report['revision_name'], 80)}, run of {made}: {says}."
    newest = here.entry.run if here.entry else None
    if newest is not None and newest.id != run.id:
        words += f" Another run speaks for the revision, that of {clock.when(newest.manifest['created'])}."
    lost = here.entry.lost if here.entry else None
    if lost is not None:
        words += f" The newest run, of {clock.when(lost.created)}, cannot be read."
    st.caption(words)


def audit_head(run: Run, audit: str, section: str = "Checks") -> None:
    """Status of one audit with its reason, and in words what could not be measured.

    `section` is the part of the page that has the table of its checks.
    """
    result = run.report["audits"].get(audit, _LEFT_OUT)
    colour, icon = _BADGES[result["status"]]
    st.badge(f"{audit}: {result['status']}", color=colour, icon=icon)  # type: ignore[arg-type]
    if result.get("problem"):
        st.warning(f"Not measured: {in_markdown(result['problem'], 2000)}", icon=":material/warning:")
    failed = [check for check in result["checks"] if check["status"] == "failed" and not check.get("comparison")]
    if failed:
        # A cache that is wrong fails a dozen probes at once: the first says what it is about.
        words = [_failed_words(audit, check) for check in failed[:_WORDED]]
        more = [f"and {len(failed) - _WORDED} more, in {section}"] if len(failed) > _WORDED else []
        st.error("; ".join([*words, *more]), icon=":material/close:")


def notes(here: state.Selection, run: Run, audit: str) -> None:
    """What an audit says about itself, and which probes this decoder could not serve."""
    result, mapping = run.report["audits"].get(audit, _LEFT_OUT), revision_facts.event_map(here.entry)
    found = [safe(with_names(mapping, note), 1000) for note in result.get("notes", ())]
    found += [
        f"Not applicable: {safe(probe)}: {safe(reason, 500)}"
        for probe, reason in result.get("not_applicable", {}).items()
    ]
    lines(found)


def lines(found: Sequence[str]) -> None:
    """Safe lines of text as one element, because every element costs the browser time; nothing for none."""
    if found:
        st.text("\n".join(found))


def information(run: Run, audit: str, name: str) -> float | None:
    """A number that an audit measured beside its checks (tolerance, noise floor, …); None when it did not."""
    result = run.report["audits"].get(audit, _LEFT_OUT)
    for found in result.get("information", ()):
        if found["name"] == name:
            value: float | None = found["value"]
            return value
    return None


def figures(run: Run, audit: str, names: Mapping[str, str]) -> None:
    """Informative numbers of an audit in a row; `names` maps each to its help text."""
    row = st.container(horizontal=True)
    for name, meaning in names.items():
        row.metric(name, number(information(run, audit, name)), help=meaning, width=190)


def checks_of(run: Run, audit: str) -> pd.DataFrame:
    """Checks of one audit that count: name, value, limit, unit, count, status."""
    checks = run.checks
    return checks[checks["audit"] == audit]


def _say_what_is_missing(here: state.Selection) -> None:
    """The next step towards a run, in words; nothing where there is no store, of which the door has spoken."""
    if here.entry is None and not here.places.store.exists():
        return
    if here.entry is None:
        st.info("The store knows no revision yet. Register one: `python -m auditlib register --store S FOLDER`")
    elif here.snapshot is None:
        st.info("There is no held-out snapshot yet. Make one: `python -m auditlib split --store S`")
    elif here.entry.lost is not None:
        made = clock.when(here.entry.lost.created)
        st.warning(f"The run of this revision, of {made}, cannot be read. Restore its folder, or audit again.")
    else:
        st.info("This revision has not been audited yet.")


def _failed_words(audit: str, check: Mapping[str, Any]) -> str:
    """A failed check as one Markdown sentence, with the failure that it counts as where that is another's."""
    if check["value"] is None:
        return in_markdown(f"{check['name']}: {check.get('reason') or 'no finite value'}")
    allowed = "" if check["limit"] is None else f" where {number(check['limit'])} is allowed"
    failure = check.get("failure", audit)
    counted = "" if failure == audit else f", counted as {failure}"
    measured = f"{check['name']}: {number(check['value'])} {check['unit']}{allowed}, n = {check['count']:,}"
    return in_markdown(f"{measured}{counted}")
