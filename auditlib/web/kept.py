"""What pages make of things that never change: made once, then kept for everybody who looks.

A page runs from top to bottom at every click. A run's tables and charts stay the same from click to click, and making
them anew would cost more than everything else that the page does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import streamlit as st

from auditlib.runs.folder import Run

T = TypeVar("T")

_DRAWN, _MADE = 400, 100
"""How many charts and tables are kept as they were sent, and how many objects; the oldest go first."""


def of_run(*runs: Run) -> str:
    """What names these runs as they are now: their ids, and the digests of their reports."""
    return "|".join(f"{run.folder}:{run.manifest['files'].get('report.json')}" for run in runs)


def made(about: str, name: str, make: Callable[[], T]) -> T:
    """What `make` gives, made once for each (`about`, `name`) and shared: nobody may change it.

    `about` names everything that the result depends on, such as `of_run(run)`.
    """
    found: T = _made(about, name, make)
    return found


def drawn(about: str, name: str, draw: Callable[[], T]) -> T:
    """Draw by `draw`, or once more what it sent the first time; gives what it gave.

    `draw` may use elements that only show something: what takes a click or a choice cannot be kept.
    """
    found: T = _drawn(about, name, draw)
    return found


def chart(about: str, key: str, make: Callable[[], Any]) -> None:
    """The chart that `make` gives, kept under `about` and its own key."""
    drawn(about, key, lambda: st.plotly_chart(make(), key=key) and None)


@st.cache_resource(max_entries=_MADE, show_spinner=False)
def _made(about: str, name: str, _make: Callable[[], Any]) -> Any:  # noqa: ARG001  the names are the cache's key
    return _make()


@st.cache_data(max_entries=_DRAWN, show_spinner=False)
def _drawn(about: str, name: str, _draw: Callable[[], Any]) -> Any:  # noqa: ARG001  the names are the cache's key
    return _draw()
