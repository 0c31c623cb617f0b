"""Bringing in a log and splitting it: upload, look at the first rows, say which column is what, and go."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from auditlib.errors import PrefixgateError
from auditlib.sessions.importers import LogPreview, preview
from auditlib.sessions.manifest import ColumnMapping
from auditlib.views.text import in_markdown, safe
from auditlib.web import parts_jobs, sessions_facts, state, tables, work
from auditlib.web.uploads import keep

_KINDS = ["csv", "tsv", "txt", "xes", "xml", "parquet", "gz", "zip"]
_NONE = "(none)"
_UNDO = "import to take out"
_KEYS = ["session", "customer", "asset"]


def wizard(here: state.Selection) -> None:
    """Upload a log and import it; in the demo, say how to begin with a store of one's own."""
    if state.settings().demo:
        st.info("This is the demo's store. For a log of your own: `streamlit run app.py -- --store sessions.duckdb`")
        return
    uploaded = st.file_uploader(
        "Event log", type=_KINDS, key="log-upload", help="CSV, XES or Parquet, plain or packed."
    )
    if uploaded is None:
        return
    # Under a name of our own: nothing that the browser says becomes a path.
    file = keep(state.settings().home / "uploads", uploaded.name, uploaded.getvalue())
    try:
        _ask_and_import(here, file, preview(file))
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 2000), icon=":material/error:")


def undo_newest(here: state.Selection) -> None:
    """A button that takes the newest import out again, behind a second one that says what goes."""
    if state.settings().demo:
        return
    found = sessions_facts.imports(here.places.store)
    if found.empty:
        return
    newest = found.loc[found["number"].idxmax()]
    number, name = int(newest["number"]), in_markdown(newest["log"], 80)
    pressed_for = st.session_state.pop(_UNDO, None)
    with st.popover("Undo the newest import", icon=":material/undo:"):
        st.markdown(
            f"Takes import {number}, {name}, out again: {newest['sessions']:,} sessions, {newest['events']:,} events. "
            "Snapshots keep what they froze."
        )
        # By its key a press is about the import that was shown, whichever is the newest by now.
        key, of = f"undo-import-{number}", (number,)
        if st.button("Take it out", key=key, on_click=_remember, args=of, icon=":material/delete:"):
            store = here.places.store
            parts_jobs.start(f"undo|{store}|{number}", f"Undo of import {number}", work.undo_import(store, number))
    if pressed_for not in (None, number):
        st.warning(
            f"Nothing was taken out: import {pressed_for} is not the newest any more, import {number} is.",
            icon=":material/warning:",
        )


def _remember(number: int) -> None:
    """Note which import a press was about, for words only: it is the button that takes one out."""
    st.session_state[_UNDO] = number


def split_form(here: state.Selection) -> None:
    """How to split what is in the store now; the split becomes a new snapshot beside the old ones."""
    st.subheader("Make a new split", anchor=False)
    with st.form("split"):
        meaning = "Sessions that share one of these stay together. A missing value joins nobody."
        by = _several("What must not stand on both sides", _KEYS, "split-by", _split_by(here), meaning)
        row = st.container(horizontal=True)
        share = row.slider("Held-out share", 0.05, 0.5, 0.2, 0.05, key="split-share")
        seed = row.number_input("Seed", 0, 2**31, 0, key="split-seed")
        latest = st.checkbox("Hold out the latest sessions instead of random ones", key="split-latest")
        leave_out = st.checkbox("Leave out sessions that would join the two sides", key="split-quarantine")
        pressed = st.form_submit_button("Split")
    if pressed:
        # in one order, whichever was pressed first: it is the same split
        terms = work.SplitTerms(tuple(key for key in _KEYS if key in by), float(share), int(seed), latest, leave_out)
        parts_jobs.start(f"split|{terms}", "Split of the store", work.split(here.places.store, terms))


def _split_by(here: state.Selection) -> list[str]:
    """What the shown snapshot was split by: who splits anew mostly changes something else."""
    if here.snapshot is None:
        return _KEYS[:1]
    by = sessions_facts.leakage(here.places.store, here.snapshot).by
    return [key for key in _KEYS if key in by]


def _ask_and_import(here: state.Selection, file: Path, seen: LogPreview) -> None:
    """First rows, a box for each role with the guess in it, and the button."""
    rows = pd.DataFrame(seen.head.rows, columns=[safe(name, 60) for name in seen.head.columns])
    st.dataframe(tables.shown(rows), key="log-preview", hide_index=True, alt="First rows of the log")
    st.caption(f"{seen.format}, {in_markdown(seen.head.encoding)}. Guessed: {', '.join(seen.guessed) or 'nothing'}.")
    if seen.problem:
        st.warning(in_markdown(seen.problem, 1000))
    with st.form("import"):
        mapping = _mapping(seen.head.columns, seen.mapping)
        row = st.container(horizontal=True)
        form = row.text_input(
            "Time format", key="log-time-format", placeholder="%d/%m/%Y %H:%M", help="Only if it is asked for."
        )
        zone = row.text_input(
            "Time zone", key="log-time-zone", placeholder="Europe/Berlin", help="Of times that state none."
        )
        pressed = st.form_submit_button("Import")
    if pressed and mapping is not None:
        job = work.import_file(here.places.store, file, mapping, form or None, zone or None)
        parts_jobs.start(f"import|{file}|{mapping}|{form}|{zone}", f"Import of {file.name}", job)


def _mapping(columns: tuple[str, ...], guess: ColumnMapping | None) -> ColumnMapping | None:
    """The mapping that the boxes say; None while session, event or time is missing."""
    first = st.container(horizontal=True)
    session = _box(first, "Session", columns, guess.session if guess else None)
    time = _box(first, "Time", columns, guess.time if guess else None)
    event = _several("Event", columns, "log-event", guess.event if guess else (), _SEVERAL)
    second = st.container(horizontal=True)
    customer = _box(second, "Customer", columns, guess.customer if guess else None)
    asset = _box(second, "Asset", columns, guess.asset if guess else None)
    attributes = _several("Attributes to keep", columns, "log-attributes", (), None)
    if session is None or time is None or not event:
        return None
    return ColumnMapping(session, tuple(event), time, customer, asset, tuple(attributes))


_SEVERAL = "Several columns make one event together, such as activity and lifecycle, in the order of your choice."


def _several(label: str, options: Sequence[str], key: str, chosen: Sequence[str], meaning: str | None) -> list[str]:
    """Any number of the options, in the order in which they were chosen."""
    # not st.multiselect: its white words could not be read on the light blue that dark mode needs elsewhere
    return st.pills(
        label, options, selection_mode="multi", default=list(chosen), key=key, format_func=in_markdown, help=meaning
    )


def _box(place: DeltaGenerator, label: str, columns: tuple[str, ...], guess: str | None) -> str | None:
    """One column, or none."""
    options = [_NONE, *columns]
    index = options.index(guess) if guess in columns else 0
    chosen = place.selectbox(label, options, index=index, key=f"log-{label.lower()}", format_func=safe)
    return None if chosen == _NONE else chosen
