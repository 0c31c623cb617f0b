"""Figures of a prefix under the hand: what an edit moves, and what the model attends to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import BLUE, ORANGE, RED, bar_above, figure, nothing
from auditlib.views.text import in_figure, in_hover

MOST_ATTENDED = 64
MOST_STEPS = 200


def downstream(steps: pd.DataFrame) -> go.Figure:
    """Probability that each event behind an edit was given, before and after it, and how far what follows moved."""
    if steps.empty:
        return nothing("Nothing stands behind the edit: see what comes next, below.")
    shown = steps.head(MOST_STEPS)
    drawn = figure("Behind the edit", "", "probability", height=400)
    for column, colour, dash, symbol in (("before", BLUE, "solid", "circle"), ("after", ORANGE, "dash", "diamond")):
        line = go.Scatter(x=shown["number"], y=shown[column], mode="lines+markers", name=f"event, {column} the edit")
        line.line, line.marker = {"color": colour, "dash": dash}, {"symbol": symbol, "size": 8, "color": colour}
        line.customdata = [[in_hover(name)] for name in shown["event"]]
        line.hovertemplate = f"%{{customdata[0]}}: %{{y:.4f}} {column} the edit<extra></extra>"
        drawn.add_trace(line)
    moved = go.Bar(x=shown["number"], y=shown["moved"], name="moved: what may follow it", opacity=0.7)
    moved.marker = {"color": RED, "pattern": {"shape": "/"}}
    moved.hovertemplate = "after it, %{y:.1%} of the probability stands elsewhere<extra></extra>"
    drawn.add_trace(moved)
    drawn.update_yaxes(range=[0, 1.02])
    drawn.update_xaxes(tickvals=shown["number"].tolist(), ticktext=_ticks(shown["event"]), tickangle=-30)
    return drawn


def attention(weights: np.ndarray, names: Sequence[str], title: str) -> go.Figure:
    """Heat map of attention [T, T]: a row an event, its columns the events it looked back at; the newest 64."""
    first = max(0, len(names) - MOST_ATTENDED)
    shown = np.asarray(weights, dtype=float)[first:, first:]
    # What lies ahead is no zero: the model cannot look there.
    shown = np.where(np.tri(len(shown), dtype=bool), shown, np.nan)
    labels = [f"{first + place}. {in_figure(name, 16)}" for place, name in enumerate(names[first:])]
    cells = [[None if np.isnan(cell) else float(cell) for cell in row] for row in shown]
    # Nothing beside the axes: plotly writes such words over slanted labels; the page says which axis is which.
    drawn = figure(in_figure(title, 80), "", "", height=220 + 24 * max(len(labels), 8))
    # No scale of its own: Streamlit's begins at the background of either theme, and ends far from it.
    heat = go.Heatmap(z=cells, x=labels, y=labels, zmin=0, zmax=1, hoverongaps=False)
    heat.colorbar = {**bar_above("share"), "tickformat": ".0%"}
    whole = [f"{first + place}. {in_hover(name)}" for place, name in enumerate(names[first:])]
    heat.customdata = [
        [[row, column] if back <= place else None for back, column in enumerate(whole)]
        for place, row in enumerate(whole)
    ]
    heat.hovertemplate = "%{customdata[0]} gives %{z:.1%} to %{customdata[1]}<extra></extra>"
    drawn.add_trace(heat)
    drawn.update_layout(margin={"t": 110})
    drawn.update_yaxes(type="category", autorange="reversed")
    drawn.update_xaxes(type="category", tickangle=-90)
    return drawn


def _ticks(names: pd.Series) -> list[str]:
    every = max(1, -(-len(names) // 40))
    return [in_figure(name, 16) if place % every == 0 else "" for place, name in enumerate(names)]
