"""Which prefix the inspector shows. The address is the record: every change goes there, so a link is the state."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from auditlib.errors import EventMapError, InputError
from auditlib.events.event_map import EventMap
from auditlib.sessions.session import Session

LONGEST = 512


@dataclass(frozen=True, slots=True)
class Prefix:
    """Ids of a prefix, start included, and which conditions of the event order hold for it."""

    ids: tuple[int, ...]
    flags: tuple[bool, ...]

    @property
    def text(self) -> str:
        """The ids joined by "-", as tables and links have them."""
        return "-".join(map(str, self.ids))


def from_link(text: str, mapping: EventMap) -> tuple[int, ...]:
    """Ids from a link; InputError when they are no prefix of this event map."""
    if not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})*", text):
        raise InputError("the link's events are not ids joined by dashes, such as 1-3-4")
    ids = tuple(int(part) for part in text.split("-"))
    if len(ids) > LONGEST:
        raise InputError(f"the link names {len(ids)} events; at most {LONGEST} are shown")
    known = {mapping.start, mapping.end, mapping.padding, *mapping.domain}
    # An id beyond the map would reach outside the decoder's embedding.
    foreign = sorted(set(ids) - known)
    if foreign:
        raise InputError(f"the link names ids that this revision's event map does not know: {foreign[:10]}")
    return ids if ids[0] == mapping.start else (mapping.start, *ids)


def from_names(text: str, mapping: EventMap) -> tuple[int, ...]:
    """Ids of names pasted by hand, separated by commas, arrows or line ends; EventMapError lists unknown ones."""
    names = [name.strip() for name in re.split(r"[\n,;]|→|->", text)]
    names = [name for name in names if name]
    if len(names) > LONGEST:
        raise InputError(f"{len(names)} events were pasted; at most {LONGEST} are shown")
    try:
        return (mapping.start, *mapping.encode(names))
    except EventMapError as problem:
        raise InputError(f"{problem}; known are {', '.join(sorted(mapping.events)[:30])}") from problem


def of_session(session: Session, mapping: EventMap) -> tuple[int, ...]:
    """Ids of a whole session, without its end."""
    return (mapping.start, *mapping.encode(session.events))


def flags_text(flags: Sequence[bool]) -> str:
    """Conditions as digits for a link, such as 10."""
    return "".join("1" if flag else "0" for flag in flags)
