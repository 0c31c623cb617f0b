"""Figures of a session store: how long sessions are, and which event follows which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import BLUE, GREY, ORANGE, RED, SHADES, bar_above, figure, nothing, whole_numbers
from auditlib.views.text import duration, figure_labels, in_hover

MOST_NAMES = 40
_ALL_NAMED, _WIDE = 20, 22
_MARKS = (
    ("1 ms", 1e-3), ("1 s", 1), ("10 s", 10), ("1 min", 60), ("10 min", 600), ("1 h", 3600), ("6 h", 21_600),
    ("1 day", 86_400), ("1 week", 604_800), ("30 days", 2_592_000), ("1 year", 31_536_000), ("10 years", 315_360_000),
)  # fmt: skip


def lengths(counts: pd.DataFrame) -> go.Figure:
    """How many sessions have how many events, a bar a length, training and held-out side by side.

    Columns: length, side, sessions.
    """
    if counts.empty:
        return nothing("No session yet.")
    drawn = figure("Length of sessions", "events in the session", "sessions", height=320)
    _by_side(drawn, counts, "length", "%{y} %{fullData.name} sessions of %{x} events")
    whole_numbers(drawn, "x", float(counts["length"].max()))
    return drawn


def durations(counts: pd.DataFrame, bins_a_decade: int) -> go.Figure:
    """How long sessions take from first to last event, on a log axis of time, training and held-out side by side.

    Columns: side, bin (its least duration is 10 ** (bin / bins_a_decade) seconds), sessions; rows without a bin, of
    sessions that took no time, have no place on such an axis and are left out.
    """
    known = counts[counts["bin"].notna()] if len(counts) else counts
    if known.empty:
        return nothing("No session takes any time from its first to its last event.")
    drawn = figure("Time from first to last event", "", "sessions", height=320)
    # Bars stand on a plain axis of bins, which the axis then names as times: a bar on a log axis has no even width.
    shown = known.assign(bin=known["bin"].astype(int))
    _by_side(drawn, shown, "bin", "%{y} %{fullData.name} sessions of %{customdata}")
    for bars in drawn.data:
        bars.customdata = [_spanned(place, bins_a_decade) for place in bars.x]
    low, high = shown["bin"].min(), shown["bin"].max()
    ticks = [(bins_a_decade * np.log10(seconds) - 0.5, words) for words, seconds in _MARKS]
    inside = [(place, words) for place, words in ticks if low - 1 <= place <= high + 1]
    drawn.update_xaxes(tickvals=[place for place, _ in inside], ticktext=[words for _, words in inside])
    return drawn


def _spanned(place: int, bins_a_decade: int) -> str:
    """A bin in words, from its least duration to that of the next."""
    low, high = (duration(10.0 ** (edge / bins_a_decade)) for edge in (place, place + 1))
    return f"{low} to {high}"


def starts(counts: pd.DataFrame, period: str) -> go.Figure:
    """How many sessions began in each period of the log, training and held-out side by side.

    Columns: side, start (the period's first moment, UTC), sessions.
    """
    if counts.empty:
        return nothing("No session yet.")
    drawn = figure("When sessions began", f"{period} (UTC)", "sessions", height=320)
    _by_side(drawn, counts, "start", f"%{{y}} %{{fullData.name}} sessions in the {period} from %{{x|%Y-%m-%d}}")
    return drawn


def _by_side(drawn: go.Figure, counts: pd.DataFrame, column: str, hover: str) -> None:
    """Bars of both sides beside each other, told apart by hatching as well as by colour."""
    for side, colour, pattern in (("training", BLUE, ""), ("held-out", ORANGE, "/")):
        rows = counts[counts["side"] == side]
        bars = go.Bar(x=rows[column], y=rows["sessions"], name=side, marker={"color": colour})
        bars.marker.pattern = {"shape": pattern}
        bars.hovertemplate = f"{hover}<extra></extra>"
        drawn.add_trace(bars)


def transitions(names: Sequence[str], counts: np.ndarray, legal: np.ndarray | None) -> go.Figure:
    """Heat map of which event followed which; a cross marks a step that the rules forbid after that event alone.

    counts int [N + 1, N + 1]: rows start + names, columns names + end. `legal` bool of that shape, None for no rules.
    Only the MOST_NAMES most frequent names are drawn.
    """
    if not len(names):
        return nothing("No event yet.")
    # The most frequent names, in alphabetical order as they came.
    kept = np.sort(np.argsort(-counts[1:].sum(axis=1), kind="stable")[:MOST_NAMES])
    cells = counts[np.ix_([0, *(kept + 1)], [*kept, len(names)])]
    # Short, whatever the log says: names of sixty letters beside and under the cells leave them no room.
    labels = figure_labels([names[i] for i in kept], taken=("(start)", "(end)"), limit=_WIDE)
    rows, columns = ["(start)", *labels], [*labels, "(end)"]
    whole = [in_hover(names[i]) for i in kept]
    words = [[f"{first} then {then}" for then in [*whole, "(end)"]] for first in ["(start)", *whole]]
    drawn = figure("Which event (row) is followed by which (column)", "", "", height=280 + 32 * len(rows))
    drawn.add_trace(_heat(rows, columns, cells, words))
    if legal is not None:
        drawn.add_trace(_crosses(rows, columns, legal[np.ix_([0, *(kept + 1)], [*kept, len(names)])], cells, words))
    drawn.update_layout(margin={"t": 110})
    _name_cells(drawn, rows, columns)
    return drawn


def _name_cells(drawn: go.Figure, rows: list[str], columns: list[str]) -> None:
    """Names beside and under the cells: all of them where they are few, those beside in two lines to leave room."""
    drawn.update_xaxes(type="category", side="bottom", tickangle=-90)
    drawn.update_yaxes(type="category", autorange="reversed")
    if len(rows) > _ALL_NAMED:
        return
    # Left to itself the axis would skip every other name on a narrow screen, also where there is room.
    drawn.update_xaxes(tickvals=columns, ticktext=columns)
    drawn.update_yaxes(tickvals=rows, ticktext=[name.replace(" ", "<br>", 1) for name in rows])


def components(sizes: Sequence[int]) -> go.Figure:
    """Sizes of the groups of sessions that share a key and so must stay on one side, largest first."""
    if not len(sizes) or max(sizes) == 1:
        return nothing("Every session stands alone: nothing ties sessions together.")
    largest = np.sort(np.asarray(sizes))[::-1][:50]
    drawn = figure("Largest groups that must stay together", "group, largest first", "sessions", height=280)
    bars = go.Bar(x=np.arange(1, len(largest) + 1), y=largest, marker={"color": BLUE})
    bars.hovertemplate = "group %{x}: %{y} sessions<extra></extra>"
    drawn.add_trace(bars)
    whole_numbers(drawn, "y", float(largest.max()))
    return drawn


def _heat(rows: list[str], columns: list[str], cells: np.ndarray, words: list[list[str]]) -> go.Heatmap:
    """The counts on a log colour scale; empty cells stay blank."""
    with np.errstate(divide="ignore"):
        shades = np.where(cells > 0, np.log10(np.maximum(cells, 1)), np.nan)
    heat = go.Heatmap(x=columns, y=rows, z=[[None if np.isnan(v) else v for v in line] for line in shades])
    # The colour shows the power of ten, the hover the count.
    heat.customdata, heat.hovertext = cells, words
    heat.colorscale = SHADES
    top = int(np.ceil(np.nanmax(shades))) if np.isfinite(shades).any() else 1
    heat.colorbar = {**bar_above("times"), "tickvals": list(range(top + 1)), "ticktext": _powers(top)}
    heat.hovertemplate = "%{hovertext}: %{customdata} times<extra></extra>"
    heat.hoverongaps = False
    return heat


def _crosses(
    rows: list[str], columns: list[str], legal: np.ndarray, cells: np.ndarray, words: list[list[str]]
) -> go.Scatter:
    """Crosses on forbidden cells: grey where the log agrees, red where it happened all the same."""
    at = np.argwhere(~legal)
    happened = [int(cells[r, c]) for r, c in at]
    crosses = go.Scatter(x=[columns[c] for _, c in at], y=[rows[r] for r, _ in at], mode="markers", name="forbidden")
    crosses.marker = {"symbol": "x-thin", "size": 8, "color": GREY, "line": {"width": 2}}
    crosses.marker.line.color = [RED if times else GREY for times in happened]
    crosses.customdata, crosses.hovertext = happened, [words[r][c] for r, c in at]
    crosses.hovertemplate = "%{hovertext}: forbidden, happened %{customdata} times<extra></extra>"
    return crosses


def _powers(top: int) -> list[str]:
    """Labels of the colour bar."""
    return [f"{10**power:,}" for power in range(top + 1)]
