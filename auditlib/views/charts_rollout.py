"""The figure of a rollout: how the evidence against the new arm came about."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    exact,
    figure,
    limit_line,
    log_axis,
    nothing,
    whole_numbers,
)
from auditlib.views.text import in_figure

_LINES = ((BLUE, "solid"), (ORANGE, "dash"), (GREEN, "dot"), (PURPLE, "dashdot"), (GREY, "longdash"), (BLUE, "dot"))
_LOWEST, _HIGHEST = 1e-4, 1e8
"""E-values beyond these are drawn there: no reader needs to tell them from one another."""


def evidence(history: pd.DataFrame, log_limit: float) -> go.Figure:
    """E-value of each test over the rows seen, on a log axis, with the value at which a test speaks.

    Columns: rows, test, log_e (natural logarithm).
    """
    if history.empty:
        return nothing("No row has been logged yet.")
    drawn = figure("Evidence against the new arm", "rows of the log", "e-value, log scale", 420)
    for (name, rows), (colour, dash) in zip(history.groupby("test", sort=False), _LINES, strict=False):
        logs = rows["log_e"].to_numpy(dtype=float)
        heights = np.exp(np.clip(logs, math.log(_LOWEST), math.log(_HIGHEST)))
        trace = go.Scatter(x=rows["rows"], y=heights, mode="lines", name=in_figure(name), line={"color": colour})
        trace.line.dash = dash
        trace.customdata = exact(logs / math.log(10))
        trace.hovertemplate = "%{x} rows: e-value 10^%{customdata}<extra></extra>"
        drawn.add_trace(trace)
    limit_line(drawn, math.exp(log_limit), "speaks from")
    _decades(drawn, float(history["log_e"].min()), float(history["log_e"].max()))
    whole_numbers(drawn, "x", float(history["rows"].max()))
    return drawn


def _decades(drawn: go.Figure, least: float, most: float) -> None:
    """A log axis that holds all of the evidence, or says at its edges that what lies there is beyond them."""
    log_axis(drawn, "y", _LOWEST, max(1e3, math.exp(min(most, math.log(_HIGHEST)))))
    places = range(round(math.log10(_LOWEST)), round(math.log10(_HIGHEST)) + 1, 2)
    words = [f"1e{place:+d}" if place else "1" for place in places]
    if least < math.log(_LOWEST):
        words[0] = f"≤ {words[0]}"
    if most > math.log(_HIGHEST):
        words[-1] = f"≥ {words[-1]}"
    # Ends just over the last mark: a line along it is not taken for one that stays at its height.
    drawn.update_layout(yaxis={"tickmode": "array", "tickvals": [10.0**place for place in places], "ticktext": words})
    if most > math.log(_HIGHEST):
        drawn.update_layout(yaxis={"range": [drawn.layout.yaxis.range[0], math.log10(_HIGHEST) + 0.1]})
