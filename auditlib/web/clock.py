"""Moments as whoever looks at the page reads them; files keep UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import streamlit as st


def when(moment: str) -> str:
    """An ISO moment on the viewer's clock, to the minute, with the zone's name; in UTC where the browser names none."""
    return at(moment, st.context.timezone)


def at(moment: str, zone: str | None) -> str:
    """An ISO moment on the clock of `zone`, in UTC for None or an unknown zone; digits and plain words only."""
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return "at an unknown time"
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return f"{aware.astimezone(_zone(zone)):%Y-%m-%d %H:%M %Z}"


def _zone(name: str | None) -> ZoneInfo:
    """The zone, or UTC: a browser may say anything, and this machine may lack its zone."""
    try:
        return ZoneInfo(name or "UTC")
    except (OSError, ValueError, KeyError):
        return ZoneInfo("UTC")
