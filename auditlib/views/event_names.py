"""Prefixes in names: tables and links keep them as ids, which tell a reader nothing."""

from __future__ import annotations

import re

from auditlib.errors import EventMapError
from auditlib.events.event_map import EventMap
from auditlib.views.text import safe

MOST = 8
_APART = re.compile(r"\bevent ([0-9]+) is ([0-9]+), the request has ([0-9]+)\b")
"""How the cache guard says which event a request has where its cache has another."""


def named(mapping: EventMap | None, events: str, most: int = MOST) -> str:
    """Names for ids joined by "-", the last `most` of them, arrows between; the ids themselves without an event map."""
    if mapping is None or not events:
        return safe(events)
    ids = [int(part) for part in events.split("-") if part.isdigit()]
    # The end of a long prefix tells more than its beginning.
    inner = [number for number in ids if number != mapping.start]
    words = [safe(_name(mapping, number), 40) for number in inner[-most:]]
    return ("… → " if len(inner) > most else "") + " → ".join(words or ["(start)"])


def with_names(mapping: EventMap | None, note: str) -> str:
    """What an audit notes, with the prefixes and events in it by their names; audits know ids only."""
    if mapping is None:
        return note
    prefixes = re.sub(rf"\b{mapping.start}(?:-[0-9]+){{2,}}\b", lambda ids: f"“{named(mapping, ids.group())}”", note)
    return _APART.sub(
        lambda found: (
            f"event {found[1]} is “{safe(_name(mapping, int(found[2])), 40)}”, "
            f"the request has “{safe(_name(mapping, int(found[3])), 40)}”"
        ),
        prefixes,
    )


def _name(mapping: EventMap, event: int) -> str:
    """Name of an id; a decoder without a mask may give out one that means nothing."""
    try:
        return mapping.name(event)
    except EventMapError:
        return f"<unused id {event}>"
