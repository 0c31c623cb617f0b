"""Figures of two runs side by side."""

from __future__ import annotations

import numpy as np
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
    no_numbers,
    nothing,
    on_log,
    under_edge,
)
from auditlib.views.text import figure_labels, in_figure, in_hover

MOST_POINTS = 2_000
_KINDS = (
    ("within tolerance in both", True, True, GREEN, "circle"),
    ("over tolerance after only", True, False, RED, "x"),
    ("over tolerance before only", False, True, BLUE, "diamond"),
    ("over tolerance in both", False, False, GREY, "square"),
)


def gap_against_gap(gaps: pd.DataFrame, tolerances: tuple[float, float]) -> go.Figure:
    """Largest gap of each distinct way before (x) and after (y), both log, with each run's tolerance as a line."""
    shown = _largest(gaps)
    if shown.empty:
        return nothing("Gaps by session were not measured in both runs.")
    low = bottom(shown["before"], shown["after"], tolerances)
    drawn = figure("Largest gap of each session, before and after", "before, logit", "after, logit", height=420)
    for name, before, after, colour, symbol in _KINDS:
        rows = shown[(shown["within_before"] == before) & (shown["within_after"] == after)]
        drawn.add_trace(_marks(rows, name, low, colour, symbol))
    high = max(value for value in (*shown["before"], *shown["after"], *tolerances, low) if np.isfinite(value))
    _odd_marks(drawn, shown, low, under_edge(low, high))
    for axis, tolerance, add in (("x", tolerances[0], drawn.add_vline), ("y", tolerances[1], drawn.add_hline)):
        log_axis(drawn, axis, low, high)
        if np.isfinite(tolerance):
            add(**{axis: tolerance}, line={"color": RED, "dash": "dash", "width": 2})
    line = {"color": RED, "dash": "dash", "width": 2}
    drawn.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, name="tolerance of each run"))
    return drawn


def differences(table: pd.DataFrame) -> go.Figure:
    """Paired differences of shares with their 95 % intervals; right of 0 is better after. Gaps have another unit."""
    shown = table[~table["what"].str.contains("logit")] if len(table) else table
    if shown.empty:
        return nothing("No share was measured in both runs.")
    drawn = figure("What changed, with 95 % intervals", "after less before, share", "", height=150 + 40 * len(shown))
    trace = go.Scatter(x=shown["difference"], y=_broken(shown["what"]), mode="markers")
    trace.hovertext = [in_hover(name) for name in shown["what"]]
    trace.marker = {"color": [_colour(row) for row in shown.to_dict("records")], "size": 10}
    trace.error_x = {"type": "data", "symmetric": False, "width": 8, "color": GREY}
    trace.error_x.array = (shown["high"] - shown["difference"]).tolist()
    trace.error_x.arrayminus = (shown["difference"] - shown["low"]).tolist()
    trace.customdata = shown[["low", "high", "sessions", "worse", "better"]].to_numpy()
    trace.hovertemplate = (
        "%{hovertext}: %{x:+.2%} [%{customdata[0]:+.2%}, %{customdata[1]:+.2%}], %{customdata[2]} distinct sessions, "
        "%{customdata[3]} worse, %{customdata[4]} better<extra></extra>"
    )
    drawn.add_trace(trace)
    drawn.add_vline(x=0, line={"color": GREY, "dash": "dot", "width": 2})
    drawn.update_xaxes(tickformat="+.1%")
    drawn.update_yaxes(type="category", autorange="reversed")
    drawn.update_layout(showlegend=False)
    return drawn


def _largest(gaps: pd.DataFrame) -> pd.DataFrame:
    """The ways to draw: all, or those with the largest gaps; a gap that is not a number is larger than any."""
    size = gaps[["before", "after"]].astype(float).fillna(np.inf).max(axis=1)
    return gaps.loc[size.nlargest(MOST_POINTS).index]


def _odd_marks(drawn: go.Figure, shown: pd.DataFrame, low: float, edge: float) -> None:
    """Ways of which a gap is no finite number, at the ends of the axes."""
    found = shown[~np.isfinite(shown[["before", "after"]].astype(float)).all(axis=1)]
    heights = (on_log(found[side], low) for side in ("before", "after"))
    left, up = ([edge if place is None else place for place in side] for side in heights)
    sides = zip(found["session_id"], exact(found["before"]), exact(found["after"]), strict=True)
    no_numbers(drawn, left, up, [f"{in_figure(one)}, before {before}, after {after}" for one, before, after in sides])


def _marks(rows: pd.DataFrame, name: str, low: float, colour: str, symbol: str) -> go.Scatter:
    marks = go.Scatter(x=on_log(rows["before"], low), y=on_log(rows["after"], low), mode="markers", name=name)
    marks.marker = {"color": colour, "symbol": symbol, "size": 8, "opacity": 0.7}
    sessions = [in_figure(one) for one in rows["session_id"]]
    marks.customdata = list(zip(sessions, exact(rows["before"]), exact(rows["after"]), rows["weight"], strict=True))
    marks.hovertemplate = (
        "%{customdata[0]}: before %{customdata[1]}, after %{customdata[2]}, "
        "%{customdata[3]} session(s) went this way<extra></extra>"
    )
    return marks


def _broken(names: pd.Series) -> list[str]:
    """Setting and check on two lines, because a phone has no room for one; other names have other labels."""
    return [
        label.replace(": ", "<br>", 1) for label in figure_labels([str(name) for name in names], limit=110, line=110)
    ]


def _colour(row: dict[str, float]) -> str:
    """Colour of a difference: grey while its interval holds 0."""
    if row["low"] > 0:
        return GREEN
    return RED if row["high"] < 0 else GREY
