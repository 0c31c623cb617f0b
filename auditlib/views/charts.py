"""Figures of the audits of causality, cache parity and numerics, from a run's tables."""

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
    whole_numbers,
    with_labels,
)
from auditlib.views.text import in_figure

MOST_POINTS = 2_000
_SERIES = (("worst", RED, "solid", "circle"), ("p95", ORANGE, "dash", "diamond"), ("median", BLUE, "dot", "square"))


def gap_by_step(steps: pd.DataFrame, tolerance: float | None, floor: float | None) -> go.Figure:
    """Logit gap after each appended event (worst, 95th percentile, median) on a log axis, with tolerance and floor."""
    if steps.empty:
        return nothing("No append step was measured.")
    # The longest prefixes are kept: that is where a cache has had most time to go wrong.
    shown = steps.sort_values("step").tail(MOST_POINTS // len(_SERIES))
    low = bottom(*(shown[name] for name, *_ in _SERIES), [tolerance or np.nan, floor or np.nan])
    drawn = figure("Gap between full and cached logits", "events in the prefix, start included", "logit gap")
    for name, colour, dash, symbol in _SERIES:
        drawn.add_trace(_steps_trace(shown, name, low, colour, dash, symbol))
    limit_line(drawn, tolerance, "tolerance")
    limit_line(drawn, floor, "noise floor", dash="dot", colour=GREY)
    high = _largest(shown["worst"], tolerance)
    log_axis(drawn, "y", low, high)
    odd = shown[~np.isfinite(shown["worst"].astype(float))]
    words = [f"worst after {step} events" for step in odd["step"]]
    no_numbers(drawn, odd["step"], [under_edge(low, high)] * len(odd), words)
    whole_numbers(drawn, "x", float(shown["step"].max()))
    return drawn


def checks_on_log(checks: pd.DataFrame, title: str) -> go.Figure:
    """Each check's value beside its limit on a log axis; passed and failed differ in mark and colour.

    Columns: name, value, limit, unit, count, status. Checks with limit 0 have no place on a log axis.
    """
    # A limit of zero has no logarithm.
    shown = checks[checks["limit"].fillna(0) > 0]
    shown = shown[shown["value"].notna()]
    if shown.empty:
        return nothing("No check with a positive limit was measured.")
    shown = with_labels(shown, "name")
    low = bottom(shown["value"], shown["limit"])
    drawn = figure(title, "value, log scale", "", height=140 + 26 * len(shown))
    limits = go.Scatter(x=shown["limit"], y=shown["label"], mode="markers", name="limit")
    limits.marker = {"symbol": "line-ns", "size": 16, "line": {"width": 3, "color": GREY}}
    limits.customdata, limits.hovertext = exact(shown["limit"]), shown["whole"]
    limits.hovertemplate = "%{hovertext}: limit %{customdata}<extra></extra>"
    drawn.add_trace(limits)
    for status, colour, symbol in (("passed", GREEN, "circle"), ("failed", RED, "x")):
        drawn.add_trace(_checks_trace(shown[shown["status"] == status], status, low, colour, symbol))
    log_axis(drawn, "x", low, _largest(shown["value"], float(shown["limit"].max())))
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def changes_by_position(probes: pd.DataFrame) -> go.Figure:
    """How far logits moved at each position although only later events differed, one mark a probe and path."""
    if probes.empty:
        return nothing("No probe changed any earlier logit.")
    found = probes.groupby(["probe", "path", "position"], as_index=False)["value"].agg(
        lambda moved: moved.max(skipna=False)
    )
    # The largest are kept, and what is no number is larger than any; in the order of probes and positions all the same.
    largest = found["value"].fillna(np.inf).nlargest(MOST_POINTS).index
    worst = found.loc[largest.sort_values()]
    low = bottom(worst["value"])
    drawn = figure("Change of earlier logits by later events", "position in the prefix", "largest change, log scale")
    marks = zip(worst.groupby(["probe", "path"]), _endless_marks(), strict=False)
    for ((probe, path), rows), (colour, symbol) in marks:
        trace = go.Scatter(
            x=rows["position"], y=on_log(rows["value"], low), mode="markers", customdata=exact(rows["value"])
        )
        trace.name = in_figure(f"{probe}, {path}")
        trace.marker = {"color": colour, "symbol": symbol, "size": 9}
        trace.hovertemplate = "position %{x}: %{customdata}<extra></extra>"
        drawn.add_trace(trace)
    high = _largest(worst["value"], None)
    log_axis(drawn, "y", low, high)
    odd = worst[~np.isfinite(worst["value"].astype(float))]
    words = [in_figure(f"{probe}, {path}") for probe, path in zip(odd["probe"], odd["path"], strict=True)]
    no_numbers(drawn, odd["position"], [under_edge(low, high)] * len(odd), words)
    whole_numbers(drawn, "x", float(worst["position"].max()))
    return drawn


def ratio_by_session(sessions: pd.DataFrame, limit: float) -> go.Figure:
    """How many sessions have which ratio of cached to full error against float64, with the limit drawn.

    Sessions that went the same way stand in one row of the table, whose `weight` says how many they are.
    """
    known = sessions[np.isfinite(sessions["ratio"].astype(float))] if "ratio" in sessions else sessions
    odd = _sessions_in(sessions.drop(known.index))
    if known.empty:
        no_ratio = f"No session has a finite ratio; {odd:,} have one that is no number."
        return nothing(no_ratio if odd else "No session has a ratio: this decoder has no float64 path.")
    # Ratios of a broken cache reach millions: bins are equal on the log scale.
    exponents = np.log10(np.maximum(known["ratio"].to_numpy(dtype=float), 1e-12))
    weights = known.get("weight")
    counts, edges = np.histogram(exponents, bins=_edges(exponents, math.log10(limit)), weights=weights)
    drawn = figure("Cached error over full error, per session", "ratio of rms errors, log scale", "sessions", 320)
    bars = go.Bar(x=10 ** edges[:-1], y=counts, width=np.diff(10**edges), offset=0, marker={"color": BLUE})
    bars.name = "sessions"
    bars.customdata = np.column_stack([exact((10 ** edges[:-1]).tolist()), exact((10 ** edges[1:]).tolist())])
    bars.hovertemplate = "ratio from %{customdata[0]} to %{customdata[1]}: %{y} sessions<extra></extra>"
    drawn.add_trace(bars)
    drawn.add_vline(x=limit, line={"color": RED, "dash": "dash", "width": 2})
    drawn.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line={"color": RED, "dash": "dash"}))
    drawn.data[-1].name = f"limit {limit:g}"
    if odd:  # they have no place on the axis, and their number must not be missed
        drawn.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker={"color": RED, "symbol": "x"}))
        drawn.data[-1].name = f"ratio not finite, not drawn: {odd:,}"
    drawn.update_xaxes(type="log", exponentformat="e")
    whole_numbers(drawn, "y", float(counts.max()))
    return drawn


def _sessions_in(rows: pd.DataFrame) -> int:
    """How many sessions went the ways of these rows."""
    return int(rows["weight"].sum()) if "weight" in rows else len(rows)


def _edges(exponents: np.ndarray, limit: float) -> np.ndarray:
    """Edges of about forty equal bins on the log scale, one of them at the limit: no bar stands on both its sides."""
    low, high = min(exponents.min(), 0) - 0.05, max(exponents.max(), 0.2)
    width = (high - low) / 40
    left, right = math.ceil((limit - low) / width), math.ceil((high - limit) / width)
    edges: np.ndarray = limit + width * np.arange(-left, right + 1)
    return edges


def baselines(table: pd.DataFrame) -> go.Figure:
    """Next-event accuracy of the decoder beside the look-up table and the ceiling."""
    if table.empty:
        return nothing("Accuracy was not measured.")
    drawn = figure("Next-event accuracy on held-out sessions", "accuracy", "", height=130 + 36 * len(table))
    shown = with_labels(table, "name")
    bars = go.Bar(x=shown["accuracy"], y=shown["label"], orientation="h", marker={"color": BLUE})
    bars.text, bars.hovertext = [f"{value:.3f}" for value in shown["accuracy"]], shown["whole"]
    bars.hovertemplate = "%{hovertext}: %{x:.4f}<extra></extra>"
    drawn.add_trace(bars)
    drawn.update_xaxes(range=[0, 1])
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def _steps_trace(steps: pd.DataFrame, name: str, low: float, colour: str, dash: str, symbol: str) -> go.Scatter:
    """One line of the gap plot; its hover names the exact gap and the number of prefixes."""
    trace = go.Scatter(x=steps["step"], y=on_log(steps[name], low), mode="lines+markers", name=name)
    trace.line = {"color": colour, "dash": dash}
    trace.marker = {"symbol": symbol, "size": 7}
    trace.customdata = np.column_stack([exact(steps[name]), steps["prefixes"].astype(str)])
    trace.hovertemplate = f"{name} after %{{x}} events: %{{customdata[0]}} (%{{customdata[1]}} prefixes)<extra></extra>"
    return trace


def _checks_trace(checks: pd.DataFrame, status: str, low: float, colour: str, symbol: str) -> go.Scatter:
    """Checks of one status as marks."""
    trace = go.Scatter(x=on_log(checks["value"], low), y=checks["label"], mode="markers", name=status)
    trace.hovertext = checks["whole"]
    trace.marker = {"color": colour, "symbol": symbol, "size": 11}
    trace.customdata = np.column_stack(
        [exact(checks["value"]), checks["unit"].map(in_figure), checks["count"].astype(str)]
    )
    trace.hovertemplate = "%{hovertext}: %{customdata[0]} %{customdata[1]}, n = %{customdata[2]}<extra></extra>"
    return trace


def _largest(values: pd.Series, also: float | None) -> float:
    """Largest finite of `values` and `also`; 1 when there is none."""
    candidates = np.append(values.to_numpy(dtype=float), np.nan if also is None else also)
    finite = candidates[np.isfinite(candidates)]
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


def _endless_marks() -> list[tuple[str, str]]:
    """Colour and symbol pairs, each used once before any comes again."""
    colours, symbols = (BLUE, RED, GREEN, ORANGE, PURPLE, GREY), ("circle", "x", "diamond", "square", "cross")
    return [(colour, symbol) for symbol in symbols for colour in colours]
