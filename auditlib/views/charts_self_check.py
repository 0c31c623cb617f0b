"""Figures of the self-check: how many planted faults of each kind were caught, and with what margin."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import (
    BLUE,
    GREEN,
    GREY,
    RED,
    bottom,
    exact,
    figure,
    log_axis,
    nothing,
    on_log,
    whole_numbers,
    with_labels,
)
from auditlib.views.text import in_hover, plural

_OUTCOMES = (
    ("caught", "caught", GREEN, ""),
    ("missed", "missed", RED, "x"),
    ("false alarm", "false alarm", BLUE, "\\"),
    ("not applicable", "could not be tried", GREY, "/"),
)


def caught_by_kind(faults: pd.DataFrame) -> go.Figure:
    """Planted faults of each kind, stacked by what became of them; equivalent mutants are left out."""
    shown = faults[faults["outcome"] != "equivalent"] if "outcome" in faults else faults
    if shown.empty:
        return nothing("No fault was planted in this run.")
    counts = with_labels(pd.crosstab(shown["kind"], shown["outcome"]).reset_index(), "kind")
    drawn = figure("Planted faults by kind", "faults", "", height=150 + 32 * len(counts))
    for outcome, words, colour, pattern in _OUTCOMES:
        if outcome in counts:
            bars = go.Bar(x=counts[outcome], y=counts["label"], orientation="h", name=words)
            bars.marker, bars.hovertext = {"color": colour, "pattern": {"shape": pattern}}, counts["whole"]
            bars.hovertemplate = f"%{{hovertext}}: %{{x}} {words}<extra></extra>"
            drawn.add_trace(bars)
    drawn.update_layout(barmode="stack")
    drawn.update_yaxes(type="category", autorange="reversed")
    whole_numbers(drawn, "x", float(shown["kind"].value_counts().max()))
    return drawn


def margins(faults: pd.DataFrame) -> go.Figure:
    """Value over limit of each planted fault on a log axis, one line a kind.

    Where the limit is 0 there is nothing to divide by: anything above 0 fails. Such faults are not drawn; `undrawn`
    counts them.
    Columns: kind, fault, check, limit, margin, outcome.
    """
    measured = _measured(faults)
    shown = measured[measured["limit"] > 0] if len(measured) else measured
    if shown.empty:
        return nothing("No planted fault has a margin in this run.")
    shown = with_labels(shown, "kind")
    low = min(bottom(shown["margin"]), 0.5)
    drawn = figure("How far each planted fault is over its limit", "value over limit, log scale", "", height=470)
    for outcome, colour, symbol in (("caught", GREEN, "circle"), ("missed", RED, "x")):
        rows = shown[shown["outcome"] == outcome]
        marks = go.Scatter(x=on_log(rows["margin"], low), y=rows["label"], mode="markers", name=outcome)
        marks.marker = {"color": colour, "symbol": symbol, "size": 9, "opacity": 0.7}
        words = zip(rows["fault"].map(in_hover), rows["check"].map(in_hover), exact(rows["margin"]), strict=True)
        marks.customdata = [list(one) for one in words]
        marks.hovertemplate = "%{customdata[0]}<br>%{customdata[1]}: margin %{customdata[2]}<extra></extra>"
        drawn.add_trace(marks)
    drawn.add_vline(x=1, line={"color": RED, "dash": "dash", "width": 2})
    log_axis(drawn, "x", low, float(shown["margin"].max()))
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def undrawn(faults: pd.DataFrame) -> str:
    """In words, which faults `margins` leaves out; empty when it draws all that were measured."""
    measured = _measured(faults)
    count = int((measured["limit"] <= 0).sum()) if len(measured) else 0
    return (
        f"Not drawn: {plural(count, 'fault')} of checks whose limit is 0, which any value above 0 fails."
        if count
        else ""
    )


def _measured(faults: pd.DataFrame) -> pd.DataFrame:
    """Faults with a margin; one that moved nothing has the margin 0, and was missed."""
    return faults[faults["margin"].notna()] if "margin" in faults else faults
