"""Parts of the policies page."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from auditlib.runs.folder import Run
from auditlib.views.text import safe
from auditlib.web import address, kept, state, tables
from auditlib.web.exports import downloads, named

_PERCENT = (
    "invalid_rate",
    "invalid_upper",
    "event_rate",
    "event_upper",
    "duplicate_share",
    "log_duplicate_share",
    "accuracy",
    "similarity",
)
_IN_FRONT = ("setting", "invalid_rate", "invalid_upper")
_COLUMNS = ("session_id", "hypothesis", "stop", "forced", "score", "first_wrong", "rules")
_SHOWN = {"all": "all", "wrong": "with a wrong event", "capped": "capped or out of context"}


def rates_table(run: Run, rates: pd.DataFrame) -> None:
    """All rates with the counts they rest on."""
    if rates.empty:
        st.text("No decoding setting was measured.")
        return
    kept.drawn(kept.of_run(run), "rates", lambda: _draw_rates(rates))
    downloads(rates, named(run, "rates"), "rates")


def _draw_rates(rates: pd.DataFrame) -> None:
    shares = {
        name.replace("_", " "): st.column_config.NumberColumn(format="percent") for name in _PERCENT if name in rates
    }
    alt = "Rates of every decoding setting"
    shown = tables.shown(rates[_first(rates.columns)])
    st.dataframe(shown, key="rates", hide_index=True, column_config=shares, alt=alt)


def _first(columns: Iterable[str]) -> list[str]:
    """The columns with what is asked first in front: a phone shows three."""
    return sorted(columns, key=lambda name: _IN_FRONT.index(name) if name in _IN_FRONT else len(_IN_FRONT))


def sequences(here: state.Selection, found: pd.DataFrame) -> None:
    """Decoded sequences of one setting; each row leads to the inspector with all its events."""
    if found.empty:
        st.text("No sequence was decoded.")
        return
    row = st.container(horizontal=True)
    names = list(dict.fromkeys(found["setting"]))
    setting = address.choose(row, "setting", "Setting", names, shown=safe)
    which = address.choose(row, "only", "Sequences", list(_SHOWN), shown=lambda name: _SHOWN[name])
    chosen = found[found["setting"] == setting]
    if which == "wrong":
        chosen = chosen[chosen["first_wrong"].fillna(-1) >= 0]
    elif which == "capped":
        chosen = chosen[chosen["stop"].isin(["capped", "context full", "no legal event"])]
    # A column of numbers with gaps would show every gap as a word.
    wrong = ["" if pd.isna(place) else f"event {int(place)}" for place in chosen["first_wrong"]]
    tables.prefixes(here, chosen.assign(first_wrong=wrong), "sequences", _COLUMNS, "sequence")
