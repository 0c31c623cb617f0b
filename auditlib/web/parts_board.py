"""Parts of the release board: a card a revision, what is allowed, and every check with its trend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.runs.folder import Run, checks_of_all_runs
from auditlib.views import trend
from auditlib.views.summary import headline
from auditlib.views.text import in_markdown, plural, safe
from auditlib.views.worst import Worst, worst
from auditlib.web import address, clock, disk, kept, parts, parts_cases, parts_jobs, signed, state, tables
from auditlib.web.catalogue import Entry, complete
from auditlib.web.desk import Desk
from auditlib.web.exports import downloads, named
from auditlib.web.text import BADGES, check_facts, check_row, short

_STATUS = {"all": None, "failed": ("failed",), "not measured": ("not measured",), "passed": ("passed",)}
_UNTIL = "up to this run"
"""Column of bars: earlier runs, and the run itself at the right end."""
_DECISION = {"allowed": ("green", ":material/check:"), "blocked": ("red", ":material/block:")}


def card(here: state.Selection, entry: Entry) -> None:
    """One revision: its standing, the one sentence that says why, what is out of date, and where to look."""
    words, colour, icon = BADGES[entry.standing]
    with st.container(border=True):
        head = st.container(horizontal=True, vertical_alignment="center")
        head.subheader(in_markdown(entry.name, 80), anchor=False, width="content")
        head.badge(words, color=colour, icon=icon)  # type: ignore[arg-type]
        head.caption(short(entry.digest), width="content", help="First digits of the revision's digest.")
        if entry == here.entry and len(here.entries) > 1:
            head.badge("checks below", color="blue", icon=":material/south:")
        st.text(_sentence(entry))
        # Of the newest run: an older verdict does not stand in for that of a run that cannot be read.
        if newest := entry.lost or entry.run:
            st.caption(signed.line(Desk(state.settings()), newest))
        if entry.run is not None:
            _stale_marks(entry, entry.run, here.latest)
        _card_links(here, entry)


def decision(run: Run) -> None:
    """What may be switched on in production by this run, as words with a mark."""
    said = run.report["decision"]
    row = st.container(horizontal=True)
    for name, answer in (("cache acceleration", said["cache_acceleration"]), *_proposed(said)):
        colour, icon = _DECISION.get(answer, _DECISION["blocked"])
        row.badge(f"{in_markdown(name, 60)}: {answer}", color=colour, icon=icon)  # type: ignore[arg-type]
    st.caption(f"What is blocked falls back to: {in_markdown(said['fallback'], 80)}")


def chosen_title(here: state.Selection) -> str:
    """Heading over the checks of the chosen revision."""
    return f"Checks of {in_markdown(here.entry.name, 80)}" if here.entry else "Checks"


def facts(run: Run) -> None:
    """Whose run is shown, when it was made, and on what: a phone shows no sidebar, and one signs for a revision."""
    revision = f"{in_markdown(run.report['revision_name'], 80)} ({short(run.revision)})"
    made = clock.when(run.manifest["created"])
    snapshot, device = short(run.manifest["snapshot"]["digest"]), str(run.manifest["device"]["device"])
    on = in_markdown(f"snapshot {snapshot}, {run.manifest['dtype']}, {device}")
    st.caption(f"Revision {revision}, run {in_markdown(run.id)} of {made}, on {on}.")
    if not complete(run):
        left = ", ".join(name for name in run.report["audits"] if name not in run.manifest["audits"])
        st.caption(f"A partial run: {in_markdown(left)} not asked for, so the release is not approved by it.")


def all_checks(here: state.Selection, run: Run) -> None:
    """Every check of the run with the values that it had in runs of any revision, up to this one."""
    chosen = st.segmented_control("Show", list(_STATUS), default="all", required=True, key="show")
    statuses = _STATUS[chosen or "all"]
    about = f"{_names(here.entries)} {kept.of_run(run)} {chosen}"
    known = _measured(here)
    frame = kept.made(about, "checks", lambda: _check_table(known, run, statuses))
    if frame.empty:
        st.text(f"No check is {chosen}.")
        return
    kept.drawn(about, "checks", lambda: _draw_checks(frame))
    whole = pd.DataFrame([check_facts(*one) for one in _with_status(run, statuses)])
    downloads(whole, named(run, "checks"), "checks")


def _check_table(known: pd.DataFrame, run: Run, statuses: tuple[str, ...] | None) -> pd.DataFrame:
    """Checks with one of the statuses as rows of words, each with its values in earlier runs and, last, in this one."""
    trends = trend.small_lines(trend.until(known, run.id), str(run.manifest["snapshot"]["digest"]))
    rows = [
        check_row(audit, check) | {_UNTIL: trend.heights(trends.get((audit, check["name"]), []))}
        for audit, check in _with_status(run, statuses)
    ]
    return pd.DataFrame(rows)


def _with_status(run: Run, statuses: tuple[str, ...] | None) -> list[tuple[str, Mapping[str, Any]]]:
    """Audits with their checks of these statuses, failed ones first."""
    found = [(audit, check) for audit, result in run.report["audits"].items() for check in result["checks"]]
    return tables.failed_first([one for one in found if statuses is None or one[1]["status"] in statuses])


def _draw_checks(frame: pd.DataFrame) -> None:
    column = st.column_config.BarChartColumn(
        help="This check in the runs on the same snapshot, oldest first; the last bar is this run, where it measured "
        "the check. Values that span more than two decades stand on a log scale. Trend has numbers and later runs.",
        y_min=0,
    )
    columns = tables.number_columns("value", "limit") | {_UNTIL: column}
    st.dataframe(frame, key="checks", hide_index=True, column_config=columns, alt="Every check of the run")


def trend_of_a_check(here: state.Selection, run: Run) -> None:
    """One check over all runs of all revisions, with its limit; which check stands in the address."""
    options = {f"{audit}: {check['name']}": (audit, check["name"]) for audit, check in _by_urgency(run)}
    chosen = address.choose(st.container(), "check", "Check", list(options), shown=lambda name: safe(name, 120))
    if chosen is None:
        st.text("The run made no check.")
        return
    earlier, snapshot = _measured(here), str(run.manifest["snapshot"]["digest"])
    found = trend.of_check(earlier, *options[chosen])
    about = f"{_names(here.entries)} {snapshot} {chosen}"
    kept.chart(about, "trend", lambda: trend.over_runs(found, snapshot, chosen))
    others = trend.elsewhere(found, snapshot)
    if others:
        st.caption(f"{plural(others, 'run')} on another snapshot: hollow marks, measured on other sessions.")


def _sentence(entry: Entry) -> str:
    """Why the revision stands where it stands, in one sentence."""
    run, lost = entry.run, entry.lost
    if run is None and lost is None:
        return "Nothing has been measured yet, and what was not measured is a no."
    words = "" if run is None else safe(headline(run.report), 600)
    if lost is None:
        return words[:1].upper() + words[1:]
    head = f"The newest run, of {clock.when(lost.created)}, cannot be read"
    if run is None:
        return f"{head}, and what cannot be read is a no. Restore its folder, or audit again."
    # The older approval is no answer to what the newest run may have found.
    return f"{head}; an older one approved it." if run.approved else f"{head}. Before it: {words}"


def _stale_marks(entry: Entry, run: Run, latest: str | None) -> None:
    """What has changed since the run, so that nobody relies on it unawares."""
    for words in disk.changes(entry, run, latest, state.settings().policy):
        st.badge(f"stale: {words}", color="orange", icon=":material/history:")


def _card_links(here: state.Selection, entry: Entry) -> None:
    """Links from a card to its checks, its worst session and its verdict."""
    there = replace(here, entry=entry, run=entry.run)
    row = st.container(horizontal=True, vertical_alignment="center")
    row.button(
        "Show checks",
        key=f"choose-{entry.digest}",
        type="tertiary",
        icon=":material/fact_check:",
        on_click=_show_checks,
        args=(there,),
    )
    if entry.run is None:
        if entry != here.entry and entry.folder is not None and here.snapshot is not None:
            parts_jobs.run_all_button(there, row, f"run-{entry.digest}")
        return
    found = None
    with parts.told():
        found = _worst(entry.run)
    if found is not None:
        row.page_link(
            "pages/inspector.py",
            label=f"Worst {'held-out ' if found.session_id else ''}prefix: {in_markdown(found.words, 80)}",
            icon=":material/search:",
            query_params=state.link(there, events=found.events, session=found.session_id),
        )
    parts_cases.link_to_first(row, there, entry.run)
    row.page_link("pages/verdict.py", label="Verdict", icon=":material/verified:", query_params=state.link(there))


def _show_checks(there: state.Selection) -> None:
    """Choose the card's revision, and say where its checks are: below many cards nothing else on the screen changes."""
    address.visit(**{name: text for name, text in state.link(there).items() if name != "snapshot"})
    if there.entry is not None:
        st.toast(f"The checks of {in_markdown(there.entry.name, 80)} are shown below.", icon=":material/south:")


def _by_urgency(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Checks of the run, what failed or is missing first: that is whose past one wants to see."""
    found = [(audit, check) for audit, result in run.report["audits"].items() for check in result["checks"]]
    return sorted(found, key=lambda pair: pair[1]["status"] == "passed" or bool(pair[1].get("comparison")))


def read_ahead(where: state.Places) -> None:
    """Read what the board shows of the runs that are there now, before anybody asks for it."""
    found, _ = disk.catalogue(where.store, where.runs)
    disk.snapshots(where.store)
    for entry in found:
        if entry.run is not None:
            _worst(entry.run)
        if newest := entry.lost or entry.run:
            signed.line(Desk(state.settings()), newest)
    _checks_of(found, where.runs)


def _worst(run: Run) -> Worst | None:
    return kept.made(kept.of_run(run), "worst", lambda: worst(run))


def _measured(here: state.Selection) -> pd.DataFrame:
    """Every check of every run that the board knows; none, and the reason on the page, where one cannot be read."""
    with parts.told():
        return _checks_of(here.entries, here.places.runs)
    return pd.DataFrame()


def _checks_of(found: Sequence[Entry], runs: Path) -> pd.DataFrame:
    return kept.made(_names(found), "checks of all runs", lambda: checks_of_all_runs(runs))


def _names(found: Sequence[Entry]) -> str:
    """What names all runs that the board knows. Runs never change: their names say which are in a table of all."""
    return kept.of_run(*sorted((run for entry in found for run in entry.runs), key=lambda run: run.id))


def _proposed(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Decoding settings that were proposed for release, with the answer for each."""
    return [(f"decoding, {name}", said["decoding"][name]) for name in said.get("proposed", said["decoding"])]
