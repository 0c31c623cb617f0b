"""Times as they stand in verdicts and trust files: UTC, to the second."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """A moment in UTC as RFC 3339 text, such as 2026-11-30T22:14:00Z; fractions of a second are cut off."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_of(text: object) -> datetime:
    """The moment that RFC 3339 text or a bare date names, UTC where no offset stands; ValueError for other things."""
    if not isinstance(text, str):
        raise ValueError("not a time")  # noqa: TRY004  one error for every form of not a time
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # overflow: an offset that leads out of the years 1 to 9999
        raise ValueError("not a time") from None  # Python's own message quotes the text, and this one may be shown
