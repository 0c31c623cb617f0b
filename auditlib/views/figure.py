"""What all figures share: colours told apart by colour-blind eyes, a log axis that hides no zero, lines for limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.numbers import amount, number
from auditlib.views.text import figure_labels, in_hover

BLUE, ORANGE, RED, GREEN, PURPLE, GREY = "#0072b2", "#e69f00", "#d55e00", "#009e73", "#cc79a7", "#7f7f7f"
"""Colours of Okabe and Ito's palette; each figure also tells its series apart by mark, dash or pattern."""

INK = "#000037"
"""Colour of words on axes: nearly black in a report; on a page Streamlit puts its theme's own dark or light text there.

The greys that it gives to axes by itself are too faint to read on white.
"""
SHADES = tuple((place / 7, f"#0000{13 + place}") for place in range(8))
"""Colour scale of heat maps on pages that stands out from either theme's background, filled in by Streamlit too."""


def figure(title: str, x: str, y: str, height: int = 380) -> go.Figure:
    """An empty figure with its axes named."""
    empty = go.Figure()
    empty.update_layout(
        title={"text": title, "font": {"size": 15}},
        height=height,
        margin={"l": 10, "r": 10, "t": 50, "b": 10},
        # under the plot, where it may take as many lines as a narrow screen needs
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    for update, words in ((empty.update_xaxes, x), (empty.update_yaxes, y)):
        update(title={"text": words, "font": {"color": INK}}, tickfont={"color": INK}, automargin=True)
    return empty


def nothing(words: str, height: int = 160) -> go.Figure:
    """A figure that says in words why it is empty."""
    empty = go.Figure(layout={"height": height, "margin": {"l": 10, "r": 10, "t": 10, "b": 10}})
    empty.add_annotation(
        text=words, showarrow=False, font={"size": 14, "color": INK}, x=0.5, y=0.5, xref="paper", yref="paper"
    )
    empty.update_xaxes(visible=False)
    empty.update_yaxes(visible=False)
    return empty


def with_labels(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The frame with `label`, the names of a column for an axis, and `whole`, the same for the pointer.

    Names may be cut off on an axis, but other names keep other labels: two with one label would share its place.
    """
    names = [str(name) for name in frame[column]]
    return frame.assign(label=figure_labels(names), whole=[in_hover(name) for name in names])


def bottom(*series: Iterable[float]) -> float:
    """Where a log axis begins: a decade under the smallest positive number of `series`; zeros are drawn there."""
    positive = [
        v for values in series for v in np.asarray(list(values), dtype=float).ravel() if np.isfinite(v) and v > 0
    ]
    return 10.0 ** (math.floor(math.log10(min(positive))) - 1) if positive else 1e-12


def on_log(values: Sequence[float], floor: float) -> list[float | None]:
    """Heights for a log axis: zeros at `floor`, and None for what is not a number, since JSON has none."""
    return [max(float(v), floor) if np.isfinite(v) else None for v in np.asarray(values, dtype=float)]


def exact(values: Sequence[float]) -> list[str]:
    """The numbers themselves, for the hover text."""
    return [amount(v) for v in np.asarray(values, dtype=float)]


def log_axis(drawn: go.Figure, axis: str, low: float, high: float) -> None:
    """Make an axis (x or y) logarithmic from `low` to above `high`, decades written with exponents."""
    lowest, highest = math.log10(low) - 0.3, math.ceil(math.log10(max(high, low * 10)) + 0.2)
    step = max(1, round((highest - lowest) / 8))
    drawn.update_layout(
        {f"{axis}axis": {"type": "log", "range": [lowest, highest], "exponentformat": "e", "dtick": step}}
    )


def under_edge(low: float, high: float) -> float:
    """Where what is no number stands on `log_axis(low, high)`: above all numbers, and just under the axis' end."""
    return float(10.0 ** (math.ceil(math.log10(max(high, low * 10)) + 0.2) - 0.1))


def no_numbers(drawn: go.Figure, x: Sequence[float], y: Sequence[float], words: Sequence[str]) -> None:
    """Marks of what is no finite number, their count in the legend; nothing where there is none."""
    if not len(words):
        return
    marks = go.Scatter(x=list(x), y=list(y), mode="markers", name=f"not finite: {len(words):,}")
    marks.marker = {"color": RED, "symbol": "triangle-up-open", "size": 12, "line": {"width": 2}}
    marks.customdata, marks.hovertemplate = list(words), "%{customdata}: not finite<extra></extra>"
    drawn.add_trace(marks)


def bar_above(title: str) -> dict[str, object]:
    """A colour bar between title and plot, where it takes no width from a narrow screen."""
    place = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "thickness": 10, "len": 1}
    return {**place, "title": {"text": title, "font": {"color": INK}, "side": "top"}, "tickfont": {"color": INK}}


def whole_numbers(drawn: go.Figure, axis: str, largest: float) -> None:
    """Let an axis (x or y) that counts things show whole numbers only, and as few as can be read."""
    rough = max(1.0, largest / (12 if axis == "x" else 5))
    decade = 10.0 ** math.floor(math.log10(rough))
    step = next(decade * times for times in (1, 2, 5, 10) if decade * times >= rough)
    drawn.update_layout({f"{axis}axis": {"tickformat": ",d", "dtick": step}})


def limit_line(drawn: go.Figure, value: float | None, words: str, *, dash: str = "dash", colour: str = RED) -> None:
    """A named horizontal line across the figure, with its exact value in the legend; nothing for None."""
    if value is None or not np.isfinite(value):
        return
    # The line itself has no legend entry, so an empty trace of the same look names it.
    drawn.add_hline(y=value, line={"color": colour, "dash": dash, "width": 2})
    name = f"{words} {number(value)}"
    drawn.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line={"color": colour, "dash": dash}, name=name))
