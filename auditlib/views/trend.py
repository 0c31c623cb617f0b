"""One check over all runs so far: its values in the order in which they were measured, with limit and snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from auditlib.views.figure import (
    BLUE,
    GREY,
    RED,
    bottom,
    exact,
    figure,
    log_axis,
    nothing,
    on_log,
)
from auditlib.views.text import in_figure, in_hover

MOST_RUNS = 60
_SMALL = 30
_STATUS = (("passed", BLUE, "circle"), ("failed", RED, "x"), ("not measured", GREY, "triangle-up"))


def small_lines(checks: pd.DataFrame, snapshot: str) -> dict[tuple[str, str], list[float]]:
    """Values of each check (audit, name) over the runs on one snapshot, oldest first, the newest thirty.

    `checks` is the table of `checks_of_all_runs`. One value is no trend and gives none.
    """
    if checks.empty:
        return {}
    known = checks[checks["snapshot"] == snapshot].dropna(subset="value")
    found = {key: rows["value"].tolist()[-_SMALL:] for key, rows in known.groupby(["audit", "name"])}
    return {key: values for key, values in found.items() if len(values) > 1}


def until(checks: pd.DataFrame, run: str) -> pd.DataFrame:
    """The checks of a run and of all runs before it; all of them where the table does not know the run."""
    if checks.empty:
        return checks
    last = checks.loc[checks["run"] == run, "created"]
    return checks[checks["created"] <= last.iloc[0]] if len(last) else checks


def heights(values: Sequence[float]) -> list[float]:
    """Bars for a few values: in decades above the smallest where they span more than two, else as they are.

    Drawn as they are, one run with a gap of 1 logit would make every sound one look like nothing at all.
    """
    finite = [value if np.isfinite(value) else 0.0 for value in values]
    positive = [value for value in finite if value > 0]
    if not positive or min(finite) < 0 or max(positive) <= 100 * min(positive):
        return finite
    low = bottom(positive)
    return [float(np.log10(value / low)) if value > 0 else 0.0 for value in finite]


def elsewhere(checks: pd.DataFrame, snapshot: str) -> int:
    """How many runs measured another snapshot."""
    return 0 if checks.empty else int(checks.loc[checks["snapshot"] != snapshot, "run"].nunique())


def of_check(checks: pd.DataFrame, audit: str, name: str) -> pd.DataFrame:
    """The runs that asked for one check, oldest first, at most the newest sixty."""
    if checks.empty:
        return checks
    return checks[(checks["audit"] == audit) & (checks["name"] == name)].tail(MOST_RUNS).reset_index(drop=True)


def over_runs(found: pd.DataFrame, snapshot: str, title: str) -> go.Figure:
    """Value of a check in each run, oldest left, limit as a stepped line; runs on another snapshot are hollow.

    Log where the limit is positive and nothing is negative; a check that allows nothing counts from 0.
    """
    if found.empty:
        return nothing("No run has asked for this check yet.")
    values, limits = found["value"].to_numpy(float), found["limit"].to_numpy(float)
    logarithmic = bool(np.nanmax([*limits, 0.0]) > 0 and np.nanmin([*values, 0.0]) >= 0)
    low = bottom(values, limits) if logarithmic else 0.0
    drawn = figure(in_figure(title, 100), "", in_figure(found["unit"].iloc[-1]), height=420)
    own = found["snapshot"] == snapshot
    for status, colour, symbol in _STATUS:
        rows = found["status"] == status
        _marks(drawn, found[rows & own], (low, logarithmic), (status, colour, symbol))
        hollow = (f"{status}, other snapshot", colour, f"{symbol}-open")
        _marks(drawn, found[rows & ~own], (low, logarithmic), hollow)
    _limits(drawn, limits)
    _snapshot_changes(drawn, found)
    if logarithmic:
        finite = [value for value in (*values, *limits) if np.isfinite(value)]
        log_axis(drawn, "y", low, max([*finite, low]))
    else:
        drawn.update_yaxes(rangemode="tozero", exponentformat="e")
    drawn.update_xaxes(tickvals=list(range(len(found))), ticktext=_names(found), tickangle=-30)
    return drawn


def _marks(drawn: go.Figure, rows: pd.DataFrame, scale: tuple[float, bool], look: tuple[str, str, str]) -> None:
    """Runs of one look; what is not a number stands at the foot of the figure, so that no run is missing."""
    if rows.empty:
        return
    (low, logarithmic), (name, colour, symbol) = scale, look
    values = rows["value"].to_numpy(float)
    heights = on_log(values, low) if logarithmic else [float(v) if np.isfinite(v) else None for v in values]
    marks = go.Scatter(x=rows.index.tolist(), y=[low if y is None else y for y in heights], mode="markers", name=name)
    marks.marker = {"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}}
    words = [in_hover(name) for name in rows["revision_name"]], [str(run)[:13] for run in rows["run"]]
    marks.customdata = list(zip(*words, exact(values), exact(rows["limit"]), rows["count"], strict=True))
    marks.hovertemplate = (
        "%{customdata[0]}, run %{customdata[1]}<br>%{customdata[2]} where %{customdata[3]} is allowed, "
        "n = %{customdata[4]}"
    )
    drawn.add_trace(marks)


def _limits(drawn: go.Figure, limits: np.ndarray) -> None:
    """The limit of each run, which may move with its tolerance or its policy."""
    shown = [float(one) if np.isfinite(one) else None for one in limits]
    line = {"color": RED, "dash": "dash", "width": 2, "shape": "hvh"}
    trace = go.Scatter(x=list(range(len(shown))), y=shown, mode="lines", line=line, name="limit", hoverinfo="skip")
    if len(shown) == 1:
        trace.mode, trace.marker = "markers", {"symbol": "line-ew", "size": 30, "line": {"width": 2, "color": RED}}
    drawn.add_trace(trace)


def _snapshot_changes(drawn: go.Figure, found: pd.DataFrame) -> None:
    """A line where the held-out sessions changed: values left and right of it measured other sessions."""
    changed = (found["snapshot"] != found["snapshot"].shift()).to_numpy()
    for place in np.flatnonzero(changed)[1:]:
        drawn.add_vline(x=place - 0.5, line={"color": GREY, "dash": "dot", "width": 2})
        drawn.add_annotation(
            x=place - 0.5,
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            text="other snapshot",
            font={"size": 11},
        )


def _names(found: pd.DataFrame) -> list[str]:
    """Name of each run's revision, with the day; of many only some, lest they cover each other, the newest always."""
    every = max(1, -(-len(found) // 12))
    words = [
        f"{in_figure(name, 24)}<br>{str(day)[:10]}"
        for name, day in zip(found["revision_name"], found["created"], strict=True)
    ]
    return [word if (len(words) - 1 - place) % every == 0 else "" for place, word in enumerate(words)]
