"""Parts of the policies page."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd
import streamlit as st

from auditlib.events.event_map import EventMap
from auditlib.runs.folder import Run
from auditlib.views.event_names import named
from auditlib.views.text import in_markdown, safe
from auditlib.web import address, exports, kept, revision_facts, state, tables
from auditlib.web.exports import downloads

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
_COLUMNS = ("session_id", "after", "decoded", "hypothesis", "stop", "forced", "score", "first_wrong", "rules")
_NAMED = 3  # events of a prefix, the last ones: there is little room
_SHOWN = {"all": "all", "wrong": "with a wrong event", "capped": "capped or out of context"}


def counted_elsewhere(run: Run, audit: str) -> None:
    """Where an audit failed only by checks that count as another's failure: what that blocks, and what it does not."""
    checks = run.report["audits"].get(audit, {}).get("checks", ())
    failed = [check for check in checks if check["status"] == "failed" and not check.get("comparison")]
    other = {check.get("failure", audit) for check in failed}
    allowed = [
        name for name in run.report["decision"]["proposed"] if run.report["decision"]["decoding"][name] == "allowed"
    ]
    if other == {"cache parity"} and allowed:
        names = in_markdown(", ".join(allowed))
        st.caption(
            f"This counts as cache parity: it blocks the cache and no setting. Allowed, by the full path: {names}."
        )


def rates_table(run: Run, rates: pd.DataFrame) -> None:
    """All rates with the counts they rest on."""
    if rates.empty:
        st.text("No decoding setting was measured.")
        return
    kept.drawn(kept.of_run(run), "rates", lambda: _draw_rates(rates))
    downloads(rates, exports.named(run, "rates"), "rates")


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
    about = f"{kept.of_run(here.run) if here.run else ''} {here.entry.digest if here.entry else ''} {setting} {which}"
    said = kept.made(about, "sequences in words", lambda: _in_words(chosen, revision_facts.event_map(here.entry)))
    tables.prefixes(here, said, "sequences", _COLUMNS, "sequence")


def _in_words(chosen: pd.DataFrame, mapping: EventMap | None) -> pd.DataFrame:
    """The sequences with what each was decoded after, what was decoded, and marks that are no boxes to tick."""
    prefixes = [str(prefix) for prefix in chosen["prefix"]]
    decoded = [str(row)[len(prefix) + 1 :] for row, prefix in zip(chosen["events"], prefixes, strict=True)]
    return chosen.assign(
        after=[named(mapping, prefix, _NAMED) for prefix in prefixes],
        decoded=[named(mapping, row) for row in decoded],
        forced=["✓" if forced else "" for forced in chosen["forced"]],
        # A column of numbers with gaps would show every gap as a word.
        first_wrong=["" if pd.isna(place) else f"event {int(place)}" for place in chosen["first_wrong"]],
    )
