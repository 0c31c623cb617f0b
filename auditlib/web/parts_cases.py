"""Counterexamples on a page: the calls in words, the first place that differs, and the files that play them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown, safe
from auditlib.web import cases, kept, revision_facts, state, tables
from auditlib.web.catalogue import Entry

_MOST_ROWS = 4


SECTION = "Counterexamples"
"""Name of the section that shows them."""
_PAGES = {"cache parity": "pages/cache_parity.py", "causality": "pages/causality.py"}


def of_audit(run: Run, audit: str) -> tuple[cases.ShownCase, ...]:
    """The smallest failing comparison of each failed check; none where the audit passed."""
    return kept.made(kept.of_run(run), f"{audit} cases", lambda: cases.cases_of(run, audit))


def link_to_first(place: DeltaGenerator, there: state.Selection, run: Run) -> None:
    """A link to the counterexamples of a run that has some; not read here, so that a damaged one hides nothing else."""
    page = next((page for audit, page in _PAGES.items() if cases.names_of(run, audit)), None)
    if page is not None:
        place.page_link(
            page,
            label="Smallest counterexamples",
            icon=":material/compress:",
            query_params=state.link(there, section=SECTION),
        )


def counterexamples(here: state.Selection, run: Run, audit: str) -> None:
    """The smallest failing comparison of each failed check, and how to play it again."""
    st.caption("Shrunk until nothing can be left out: the fewest calls that still fail.")
    for case in of_audit(run, audit):
        with st.container(border=True):
            st.text(f"{safe(case.check)}: {safe(case.words)}")
            st.code("\n".join(_calls(here.entry, case)), language=None, wrap_lines=True)
            if broken := _against_the_rules(here.entry, case):
                st.caption(broken)
            if case.located:
                st.text(safe(case.located, 400))
            _links(here, run, case)


def _calls(entry: Entry | None, case: cases.ShownCase) -> list[str]:
    """Both sides of the comparison, a call a line."""
    lines = ["asked:", *(f"  {_call(entry, step)}" for step in case.asked)]
    return [*lines, "against:", *(f"  {_call(entry, step)}" for step in case.against)] if case.against else lines


def _against_the_rules(entry: Entry | None, case: cases.ShownCase) -> str:
    """Where the case breaks the event order under every condition of a session; empty where it keeps it under one."""
    compiled, ids = revision_facts.order(entry), [int(event) for event in case.events.split("-") if event]
    if compiled is None:
        return ""
    found = [one.first_wrong(ids[1:], ended=False) for one in compiled.automata().values()]
    if None in found or found[0] is None:
        return ""
    name = in_markdown(compiled.event_map.name(found[0].event), 60)
    return (
        f"No session goes this way: event {found[0].position + 1}, {name}, breaks the event order. "
        "Shrinking keeps the failure, not the rules."
    )


def _call(entry: Entry | None, step: Mapping[str, Any]) -> str:
    """One call of the decoder in words."""
    if step["verb"] == "reorder":
        return f"reorder {step['parents']}"
    rows = [_row(entry, *row) for row in zip(step["events"], step["valid"], strict=True)]
    more = [f"({len(rows) - _MOST_ROWS} more rows)"] if len(rows) > _MOST_ROWS else []
    return f"{step['verb']} " + " | ".join([*rows[:_MOST_ROWS], *more])


def _row(entry: Entry | None, events: Sequence[int], valid: Sequence[bool]) -> str:
    """Names of a row's events; padding as a dot."""
    mapping = revision_facts.event_map(entry)
    named = [str(event) if mapping is None else safe(mapping.name(event), 40) for event in events]
    return " ".join(name if kept else "·" for name, kept in zip(named, valid, strict=True))


def _links(here: state.Selection, run: Run, case: cases.ShownCase) -> None:
    """Into the inspector, and the files that reproduce the case without the dashboard."""
    tables.inspector_link(here, {"events": case.events}, "Open in the inspector")
    row = st.container(horizontal=True)
    for kind, name in (("Case (JSON)", case.file), ("Script", case.file.removesuffix(".json") + ".py")):
        if name in run.manifest["files"]:
            row.download_button(
                kind,
                lambda name=name: cases.content(run, name),  # type: ignore[misc]
                file_name=f"{run.id}-{name.rpartition('/')[2]}",
                key=f"case-{name}",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
            )
