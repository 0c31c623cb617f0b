"""Figures of the decoding-policy audit: invalid rates with bounds, how sequences stop, how much they repeat."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, figure, nothing, with_labels

_STOPS = (
    ("ended by choice", BLUE, ""),
    ("forced end", GREEN, "/"),
    ("capped", RED, "x"),
    ("context_full", ORANGE, "."),
    ("no_legal", PURPLE, "-"),
)


def invalid_rates(rates: pd.DataFrame) -> go.Figure:
    """Share of sequences that break the event order, a mark a setting, the line ending at the 95 % upper bound."""
    if rates.empty:
        return nothing("No decoding setting was measured.")
    shown = with_labels(rates, "setting")
    drawn = figure("Sequences that break the event order", "share of sequences", "", height=150 + 34 * len(rates))
    for masked, colour, symbol, words in ((True, GREEN, "circle", "with"), (False, RED, "x", "without")):
        rows = shown[shown["order_mask"].astype(bool) == masked]
        trace = go.Scatter(x=rows["invalid_rate"], y=rows["label"], mode="markers", name=f"{words} order mask")
        trace.marker, trace.hovertext = {"color": colour, "symbol": symbol, "size": 11}, rows["whole"]
        # The bar runs from the rate to its upper bound; there is no lower bound to show.
        trace.error_x = {"type": "data", "symmetric": False, "arrayminus": [0] * len(rows), "width": 8}
        trace.error_x.array = (rows["invalid_upper"] - rows["invalid_rate"]).tolist()
        trace.customdata = rows[["invalid_sequences", "sequences", "invalid_upper"]].to_numpy()
        trace.hovertemplate = (
            "%{hovertext}: %{customdata[0]} of %{customdata[1]} sequences, "
            "at most %{customdata[2]:.3%} with 95 % confidence<extra></extra>"
        )
        drawn.add_trace(trace)
    # A little left of zero, where most marks stand: an axis that begins there would cut them in half.
    top = float(np.nanmax([*rates["invalid_rate"], *rates["invalid_upper"], 1e-3]))
    drawn.update_xaxes(tickformat=".1%", range=[-0.03 * top, 1.05 * top])
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def stops(rates: pd.DataFrame) -> go.Figure:
    """How the sequences of each setting stopped, as shares of its sequences."""
    if rates.empty:
        return nothing("No decoding setting was measured.")
    parts = _stop_counts(rates)
    totals = rates["sequences"].to_numpy(dtype=float)
    labels, whole = (with_labels(rates, "setting")[name] for name in ("label", "whole"))
    drawn = figure("How sequences stop", "share of sequences", "", height=150 + 34 * len(rates))
    for name, colour, pattern in _STOPS:
        # A bar of no length is still a line at the end of its row, in a colour that says something else.
        counts = np.where(parts[name] > 0, parts[name], np.nan)
        if np.isnan(counts).all():
            continue
        bars = go.Bar(x=counts / np.maximum(totals, 1), y=labels, orientation="h", name=name.replace("_", " "))
        bars.marker = {"color": colour, "pattern": {"shape": pattern}}
        bars.customdata, bars.hovertext = np.column_stack([counts, totals]), whole
        counted = "%{customdata[0]:.0f} of %{customdata[1]:.0f}<extra></extra>"
        bars.hovertemplate = f"%{{hovertext}}: {bars.name} {counted}"
        drawn.add_trace(bars)
    if not drawn.data:
        return nothing("No sequence was decoded.")
    drawn.update_layout(barmode="stack")
    drawn.update_xaxes(tickformat=".0%", range=[0, 1])
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def duplication(rates: pd.DataFrame) -> go.Figure:
    """Share of repeated sequences per setting beside the held-out log's own share."""
    if rates.empty:
        return nothing("No decoding setting was measured.")
    shown = with_labels(rates, "setting")
    drawn = figure("Repeated sequences", "share of sequences", "", height=150 + 34 * len(rates))
    for column, name, colour, symbol in (
        ("duplicate_share", "decoded", BLUE, "circle"),
        ("log_duplicate_share", "held-out log", GREY, "line-ns"),
    ):
        trace = go.Scatter(x=shown[column], y=shown["label"], hovertext=shown["whole"], mode="markers", name=name)
        trace.marker = {"color": colour, "symbol": symbol, "size": 12, "line": {"width": 2, "color": colour}}
        trace.hovertemplate = f"%{{hovertext}}: {name} %{{x:.1%}}<extra></extra>"
        drawn.add_trace(trace)
    drawn.update_xaxes(tickformat=".0%", range=[0, 1])
    drawn.update_yaxes(type="category", autorange="reversed")
    return drawn


def _stop_counts(rates: pd.DataFrame) -> dict[str, np.ndarray]:
    """Sequences by how they stopped; an end that the cap forced is told apart from one that was chosen."""
    counted = {name: rates[name].to_numpy(dtype=float) for name in ("capped", "context_full", "no_legal", "forced")}
    counted["forced end"] = counted.pop("forced")
    # What no other stop explains was ended by the decoder's own choice.
    chosen = rates["sequences"].to_numpy(dtype=float) - sum(counted.values())
    return {**counted, "ended by choice": np.maximum(chosen, 0)}
