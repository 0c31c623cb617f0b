"""Prefixes in names: tables and links keep them as ids, which tell a reader nothing."""

from __future__ import annotations

from auditlib.errors import EventMapError
from auditlib.events.event_map import EventMap
from auditlib.views.text import safe

MOST = 8


def named(mapping: EventMap | None, events: str, most: int = MOST) -> str:
    """Names for ids joined by "-", the last `most` of them, arrows between; the ids themselves without an event map."""
    if mapping is None or not events:
        return safe(events)
    ids = [int(part) for part in events.split("-") if part.isdigit()]
    # The end of a long prefix tells more than its beginning.
    inner = [number for number in ids if number != mapping.start]
    words = [safe(_name(mapping, number), 40) for number in inner[-most:]]
    return ("… → " if len(inner) > most else "") + " → ".join(words or ["(start)"])


def _name(mapping: EventMap, event: int) -> str:
    """Name of an id; a decoder without a mask may give out one that means nothing."""
    try:
        return mapping.name(event)
    except EventMapError:
        return f"<unused id {event}>"
