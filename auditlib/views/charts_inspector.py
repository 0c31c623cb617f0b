"""Figures of one prefix: what comes next by either path, and where the paths part."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    bottom,
    exact,
    figure,
    limit_line,
    log_axis,
    no_numbers,
    nothing,
    on_log,
    under_edge,
)
from auditlib.views.text import figure_labels, in_figure, in_hover

MOST_EVENTS = 10


def next_events(table: pd.DataFrame) -> go.Figure:
    """Probability of each next event by the full and the cached path, most probable first; illegal ones are hatched.

    Columns: event, full, cached, legal.
    """
    if table.empty:
        return nothing("No next event.")
    shown = table.assign(top=table[["full", "cached"]].max(axis=1)).nlargest(MOST_EVENTS, "top")
    labels, whole = _marked(shown), [in_hover(name) for name in shown["event"]]
    drawn = figure("Next event", "probability", "", height=140 + 34 * len(shown))
    for column, colour in (("full", BLUE), ("cached", ORANGE)):
        bars = go.Bar(x=shown[column], y=labels, orientation="h", name=f"{column} path", offsetgroup=column)
        bars.marker = {"color": colour, "pattern": {"shape": ["" if ok else "/" for ok in shown["legal"]]}}
        bars.hovertext = whole
        bars.hovertemplate = f"%{{hovertext}}: {column} %{{x:.6f}}<extra></extra>"
        bars.showlegend = False  # its entry would carry the hatching of the first bar, whatever the others have
        drawn.add_trace(bars)
        drawn.add_trace(_entry(f"{column} path", colour, column))
    if not shown["legal"].all():
        drawn.add_trace(_entry("against the rules", GREY, "full", "/"))
    drawn.update_xaxes(rangemode="tozero")
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def _marked(shown: pd.DataFrame) -> list[str]:
    """Labels of the events, a cross before those that are against the rules; no two alike, whatever their names."""
    legal = shown["legal"].astype(bool)
    allowed = figure_labels(list(shown.loc[legal, "event"]))
    others = figure_labels([f"✗ {name}" for name in shown.loc[~legal, "event"]], taken=allowed)
    either = {True: iter(allowed), False: iter(others)}
    return [next(either[bool(ok)]) for ok in legal]


def _entry(name: str, colour: str, group: str, pattern: str = "") -> go.Bar:
    """A bar without length, which only the legend shows; one of `group`, so that it takes no room beside the others."""
    marker = {"color": colour, "pattern": {"shape": pattern}}
    return go.Bar(x=[None], y=[None], orientation="h", name=name, offsetgroup=group, marker=marker)


def gap_along(steps: pd.DataFrame, tolerance: float | None, floor: float | None = None) -> go.Figure:
    """Logit gap after each event of one prefix on a log axis, with tolerance and noise floor; crosses where it is over.

    Gaps that are no finite number stand at the upper edge.
    Columns: step, event, gap.
    """
    if steps.empty:
        return nothing("No step to compare.")
    low = bottom(steps["gap"], [tolerance or float("nan"), floor or float("nan")])
    # Not "gap > tolerance": a gap that is not a number would pass.
    over = [tolerance is not None and not gap <= tolerance for gap in steps["gap"]]
    drawn = figure("Gap after each event", "", "logit gap", height=420)
    line = go.Scatter(x=steps["step"], y=on_log(steps["gap"], low), mode="lines+markers", name="gap")
    line.line = {"color": BLUE}
    line.marker = {"size": 9, "symbol": ["x" if bad else "circle" for bad in over]}
    line.marker.color = [RED if bad else BLUE for bad in over]
    line.customdata = [[in_hover(name), gap] for name, gap in zip(steps["event"], exact(steps["gap"]), strict=True)]
    line.hovertemplate = "after %{customdata[0]}: %{customdata[1]}<extra></extra>"
    drawn.add_trace(line)
    limit_line(drawn, tolerance, "tolerance")
    limit_line(drawn, floor, "noise floor", dash="dot", colour=GREY)
    finite = np.isfinite(steps["gap"].astype(float))
    high = max([*steps.loc[finite, "gap"], tolerance or low])
    log_axis(drawn, "y", low, high)
    odd = steps[~finite]
    no_numbers(
        drawn, odd["step"], [under_edge(low, high)] * len(odd), [f"after {in_hover(one)}" for one in odd["event"]]
    )
    ticks = [in_figure(name, 16) for name in steps["event"]]
    # Steps stay numbers, because one event may come twice.
    drawn.update_xaxes(tickvals=steps["step"].tolist(), ticktext=ticks, tickangle=-30)
    return drawn
