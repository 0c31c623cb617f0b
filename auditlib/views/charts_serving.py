"""Figures of a bench and of the memory that serving takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.serving.memory import MemoryPlan
from auditlib.views.figure import (
    BLUE,
    GREEN,
    ORANGE,
    RED,
    bottom,
    exact,
    figure,
    limit_line,
    log_axis,
    nothing,
    with_labels,
)
from auditlib.views.text import figure_labels, in_figure, in_hover

_ARMS = {"cached": (BLUE, "circle"), "preallocated slots": (GREEN, "square"), "full prefix": (ORANGE, "diamond")}
_SHARES = ((0.5, "p50", "dot", -0.22), (0.95, "p95", "solid", 0.0), (0.99, "p99", "dash", 0.22))
_GIGABYTE = 1e9


def latency(table: pd.DataFrame, measure: str, limit: float | None) -> go.Figure:
    """Percentiles of one measure under each load, both paths side by side, with one-sided 95 % bounds; log axis.

    A percentile that fell on a request without an answer has no height, and is told in its hover text only.
    """
    own = table[table["measure"] == measure] if len(table) else table
    if own.empty:
        return nothing(f"No latency of the {measure} was measured.")
    drawn = figure(f"{measure.capitalize()}, from its intended arrival", "load", "milliseconds", height=430)
    loads = list(dict.fromkeys(own["load"]))
    arms = [arm for arm in _ARMS if arm in set(own["arm"])]
    for number, arm in enumerate(arms):
        for share, name, _, aside in _SHARES:
            rows = own[(own["arm"] == arm) & (own["share"] == share)]
            place = [loads.index(load) + aside + 0.09 * (number - (len(arms) - 1) / 2) for load in rows["load"]]
            drawn.add_trace(_percentiles(rows, place, arm, name))
    known = own[["value", "low", "high"]].to_numpy(float)
    top = float(np.nanmax([*known[np.isfinite(known)], limit or 0.0, 1e-3]))
    lowest = min([one for one in known[np.isfinite(known)] if one > 0], default=1e-3)
    log_axis(drawn, "y", min(lowest, limit or lowest), top)
    drawn.update_xaxes(tickmode="array", tickvals=list(range(len(loads))), ticktext=figure_labels(loads))
    limit_line(drawn, limit, "limit of the p95 bound")
    return drawn


def _percentiles(rows: pd.DataFrame, place: Sequence[float], arm: str, name: str) -> go.Scatter:
    colour, symbol = _ARMS[arm]
    value, low, high = (rows[column].to_numpy(float) for column in ("value", "low", "high"))
    texts = [
        f"{in_hover(load)}<br>{arm}, {name}: {told} ms<br>bounds {below} to {above}, n = {count:,}"
        for load, told, below, above, count in zip(
            rows["load"], _told(value), _told(low), _told(high), rows["count"].astype(int), strict=True
        )
    ]
    heights = [float(one) if np.isfinite(one) else None for one in value]
    return go.Scatter(
        x=list(place), y=heights, mode="markers", name=f"{arm}, {name}", hovertext=texts, hoverinfo="text",
        marker={"color": colour, "symbol": symbol if name == "p95" else f"{symbol}-open", "size": 9},
        error_y={"type": "data", "symmetric": False, "array": _apart(value, high), "arrayminus": _apart(low, value)},
    )  # fmt: skip


def _apart(low: np.ndarray, high: np.ndarray) -> list[float]:
    return [float(one) if np.isfinite(one) else 0.0 for one in high - low]


def _told(values: np.ndarray) -> list[str]:
    return ["–" if text == "not finite" else text for text in exact(values.tolist())]


def ratios(table: pd.DataFrame) -> go.Figure:
    """The artifact's own path over full prefixes, median of rounds with the smallest and the largest; 1 is even."""
    if table.empty:
        return nothing("Full prefixes are served themselves, so there is nothing to compare.")
    shown = with_labels(table, "load")
    drawn = figure("Cached over full prefixes, round by round", "load", "ratio", height=340)
    for name, colour, symbol in (
        ("throughput", GREEN, "square"), ("first event", BLUE, "circle"), ("whole request", RED, "diamond"),
    ):  # fmt: skip
        rows = shown[shown["measure"] == name]
        middle, low, high = (rows[column].to_numpy(float) for column in ("ratio", "low", "high"))
        drawn.add_trace(
            go.Scatter(
                x=rows["label"], y=middle, mode="markers", name=name, hovertext=rows["whole"],
                hovertemplate=f"%{{hovertext}}: {name} %{{y:.3f}}<extra></extra>",
                marker={"color": colour, "symbol": symbol, "size": 10},
                error_y={"type": "data", "symmetric": False, "array": _apart(middle, high),
                         "arrayminus": _apart(low, middle)},
            )
        )  # fmt: skip
    drawn.add_hline(y=1, line={"dash": "dot", "width": 1})
    return drawn


def memory(plans: Mapping[str, Sequence[MemoryPlan]], limit: float | None) -> go.Figure:
    """Peak bytes against requests at once, a line for each named list of plans, with the machine's limit drawn in."""
    drawn = figure("Keys and values at their peak", "requests at once", "gigabytes")
    marks = ((BLUE, "solid", "circle"), (ORANGE, "dash", "diamond"), (GREEN, "dot", "square"))
    heights = [plan.peak / _GIGABYTE for own in plans.values() for plan in own]
    for (name, own), (colour, dash, symbol) in zip(plans.items(), marks, strict=False):
        texts = [f"{p.concurrency:,} at once, {p.rows:,} rows of {p.slots:,} events: {p.peak:,} bytes" for p in own]
        drawn.add_trace(
            go.Scatter(
                x=[p.concurrency for p in own], y=[p.peak / _GIGABYTE for p in own], name=in_figure(name),
                mode="lines+markers", line={"color": colour, "dash": dash}, marker={"symbol": symbol},
                hovertext=texts, hoverinfo="text",
            )
        )  # fmt: skip
    places = [p.concurrency for own in plans.values() for p in own]
    log_axis(drawn, "x", min(places), max(places))
    log_axis(drawn, "y", bottom(heights, [limit or np.nan]) * 3, max([*heights, limit or 0.0]))
    drawn.update_layout(
        xaxis={"exponentformat": "none", "range": [np.log10(min(places)) - 0.1, np.log10(max(places)) + 0.1]}
    )
    limit_line(drawn, limit, "this machine,")
    if limit is not None:
        drawn.data[-1].name += " GB"  # the line's name ends with the number, which needs its unit
    return drawn
