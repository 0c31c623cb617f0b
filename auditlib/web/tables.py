"""Tables of a run: checks, observations, and prefixes whose rows lead to the inspector.

`number_columns` keeps the exponents of written numbers whole, in tables that are drawn elsewhere too.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st
from pandas.api.types import is_numeric_dtype
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.column_types import ColumnConfig

from auditlib.numbers import number
from auditlib.runs.folder import Run
from auditlib.views import event_names
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, kept, revision_facts, state
from auditlib.web.exports import downloads, named
from auditlib.web.text import check_facts, check_row

_LINKED, _ENDING = 3, 3
"""How many prefixes are linked, and how many of their last events are named."""
_MOST = 500
_TITLES = {"step": "events, start included"}
_NUMBER_WIDTH = 95
"""Pixels that the longest number of `numbers.number` takes in a cell, with the space on its two sides."""
_WRITTEN = ("value", "limit")
_WORDS = "detail"
"""Column in which an audit says in words what it observed."""


def checks(run: Run, audits: Sequence[str], key: str) -> None:
    """Checks of some audits with value, limit, count and status, failed ones first; comparisons are marked as such."""
    found = [(audit, check) for audit in audits for check in run.report["audits"].get(audit, {}).get("checks", ())]
    rows = failed_first(found)
    frame, whole = (pd.DataFrame([one(*row) for row in rows]) for one in (check_row, check_facts))
    # The audit last, or not at all where there is one: names of checks are long, and what is read is the value.
    frame = frame[
        [*(name for name in frame if name != "audit"), *(["audit"] if len(audits) > 1 and len(frame) else [])]
    ]
    alt, about = f"Checks of {', '.join(audits)}", kept.of_run(run)
    show(frame, named(run, "checks"), key, alt, "No check was made.", about=about, whole=whole)


def failed_first(found: Sequence[tuple[str, Mapping[str, Any]]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Audits with their checks in order, those that count and failed or were not measured before the rest."""
    return sorted(found, key=lambda one: bool(one[1].get("comparison")) or one[1]["status"] == "passed")


def observations(here: state.Selection, run: Run, audit: str, name: str, key: str) -> None:
    """One of the tables that an audit left; events in its words stand there by their names, in its downloads by ids."""
    whole, alt, mapping = of_run(run, audit, name), f"{audit}, {name}", revision_facts.event_map(here.entry)
    about, frame = f"{kept.of_run(run)} {'ids' if mapping is None else 'names'}", whole
    if _WORDS in whole:
        frame = whole.assign(**{_WORDS: [event_names.with_names(mapping, str(words)) for words in whole[_WORDS]]})
    show(frame, named(run, name), key, alt, f"The run has no table of {name}.", about=about, whole=whole)


def of_run(run: Run, audit: str, name: str) -> pd.DataFrame:
    """One of the tables that an audit left, read once; nobody may change it."""
    return kept.made(kept.of_run(run), f"{audit}/{name}", lambda: run.table(audit, name))


def show(
    frame: pd.DataFrame,
    file_name: str,
    key: str,
    alt: str,
    empty: str,
    about: str | None = None,
    whole: pd.DataFrame | None = None,
) -> None:
    """A table with its downloads, which hold `whole` where it is given; `empty` instead when it has no row.

    A table that never changes is drawn once for each `about`, which says of what it is.
    """
    if frame.empty:
        st.text(empty)
        return

    def draw() -> None:
        table = shown(frame)
        st.dataframe(table, key=key, hide_index=True, column_config=_formats(table), alt=alt)

    if about is None:
        draw()
    else:
        kept.drawn(about, key, draw)
    downloads(frame if whole is None else whole, file_name, key)


def number_columns(*names: str) -> dict[str, ColumnConfig]:
    """How columns of numbers written by `numbers.number` are drawn: never so narrow that an exponent loses its end.

    The browser shares out the width of a table by guess, and cuts 8.08e-28 to 8.08e-2 without a mark.
    """
    return {name: st.column_config.Column(width=_NUMBER_WIDTH) for name in names}


def shown(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with texts and columns' names made safe to look at, names distinct; exports take the frame itself."""
    columns: dict[str, Any] = {}
    for place, name in enumerate(_distinct([safe(name, 60).replace("_", " ") for name in frame.columns])):
        column = frame.iloc[:, place]  # by place: a log may name two columns alike
        columns[name] = column if is_numeric_dtype(column) else [safe(cell) for cell in column]
    return pd.DataFrame(columns, index=frame.index)


def selected(table: pd.DataFrame, key: str, alt: str, formats: dict[str, ColumnConfig] | None = None) -> int | None:
    """Draw the table; gives the position of the row that is selected in it, None where none is.

    A selection belongs to these very rows: once they are filtered, its number would be that of another row or of none.
    """
    content = pd.util.hash_pandas_object(table.astype(str), index=False).to_numpy().tobytes()
    chosen = st.dataframe(
        table,
        key=f"{key}-{hashlib.sha256(content).hexdigest()[:12]}",
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        column_config=formats,
        alt=alt,
    )
    return next((row for row in chosen.selection.rows if row < len(table)), None)


def _distinct(names: Sequence[str]) -> list[str]:
    """The names in order, a number behind each that stood before: a table cannot have two columns of one name."""
    found: list[str] = []
    for name in names:
        tries = itertools.chain([name], (f"{name} ({count})" for count in itertools.count(2)))
        found.append(next(one for one in tries if one not in found))
    return found


def _formats(frame: pd.DataFrame) -> dict[str, ColumnConfig]:
    """How each column of numbers is written: as in sentences where all of it is small, else with four digits.

    A column has one format. Writing each cell as a text would cost a tenth of a second for every few hundred rows.
    """
    found = number_columns(*(name for name in _WRITTEN if name in frame))
    for name in frame.select_dtypes("float").columns:
        sizes = frame[name].abs()
        small = bool((sizes[sizes > 0] < 1e-3).all()) and bool((sizes > 0).any())
        form, width = ("%.2e", _NUMBER_WIDTH) if small else ("%.4g", None)
        found[str(name)] = st.column_config.NumberColumn(format=form, width=width)
    return found


def largest_first(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows ordered by a column, largest first; what is not a number counts as larger than any."""
    if frame.empty:
        return frame
    # What is not a number is worse than any number.
    order = frame[column].fillna(float("inf")).to_numpy().argsort(kind="stable")[::-1]
    return frame.iloc[order].reset_index(drop=True)


def gaps_by_size(run: Run) -> pd.DataFrame:
    """The run's gaps, largest first, held-out prefixes before those that probes made up; read once a run."""
    return kept.made(
        kept.of_run(run),
        "gaps by size",
        lambda: with_origin(largest_first(run.table("cache parity", "gaps"), "gap")),
    )


def with_origin(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with a column `origin`: whether a prefix comes from a held-out session or was made up by a probe."""
    if frame.empty:
        return frame
    happened = frame["session_id"].fillna("") != ""
    named = frame.assign(origin=happened.map({True: "held-out sessions", False: "made up by probes"}))
    return named.sort_values("origin", kind="stable").drop_duplicates(["origin", "probe", "events"])


def choose_rows(
    place: DeltaGenerator, frame: pd.DataFrame, column: str, label: str, *, all_first: bool = True
) -> pd.DataFrame:
    """Rows with one value of a column, or all of them, as chosen in a box whose value stands in the address."""
    if frame.empty:
        return frame
    values = list(dict.fromkeys(frame[column].astype(str)))
    options = ["all", *values] if all_first else [*values, "all"]
    chosen = address.choose(place, column, label, options, shown=safe)
    return frame if chosen == "all" else frame[frame[column] == chosen]


def prefixes(here: state.Selection, frame: pd.DataFrame, key: str, columns: Sequence[str], noun: str) -> None:
    """A table of prefixes in the order given: the first as links into the inspector, any other by selecting its row.

    `frame` has a column `events` and may have `session_id`; `columns` names those to display. Of the events only the
    last are shown, because a narrow screen cuts off the right side, and that is where a prefix goes wrong.
    """
    if frame.empty:
        st.text(f"There is no {noun}.")
        return
    whole, frame = frame, frame.head(_MOST)
    mapping = revision_facts.event_map(here.entry)
    names = [event_names.named(mapping, str(events), _ENDING) for events in frame["events"]]
    # One prefix may fail several probes; each link leads to another prefix.
    distinct = frame["events"].reset_index(drop=True).drop_duplicates().index[:_LINKED]
    for rank, position in enumerate(distinct, start=1):
        row = frame.iloc[position].to_dict()
        inspector_link(here, row, f"{rank}. {_first_words(row, columns[0])}: {names[position]}")
    of = f"The first {_MOST} of {len(whole):,} rows; the downloads hold all" if len(whole) > _MOST else ""
    st.caption(f"{of or plural(len(whole), 'row')}. Select a row to open it in the inspector.")
    first, *others = [name for name in columns if name in frame]
    table = shown(frame.assign(events=names)[[first, "events", *others]].rename(columns=_TITLES))
    position = selected(table, key, f"{noun}, in order", _formats(table))
    if position is not None:
        inspector_link(here, frame.iloc[position].to_dict(), f"Open in the inspector: {names[position]}")
    downloads(whole, named(here.run, key) if here.run else key, key)


def _first_words(row: Mapping[str, Any], column: str) -> str:
    """A cell with the name of its column."""
    cell = row[column]
    return f"{column.replace('_', ' ')} {number(cell) if isinstance(cell, float) else safe(cell, 40)}"


def inspector_link(here: state.Selection, row: Mapping[str, Any], label: str) -> None:
    """A link that opens a row's prefix in the inspector, with revision and run as they are."""
    st.page_link(
        "pages/inspector.py",
        label=in_markdown(label, 120),
        icon=":material/search:",
        query_params=state.link(here, events=str(row["events"]), session=str(row.get("session_id") or "")),
    )
