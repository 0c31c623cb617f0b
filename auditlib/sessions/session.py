"""What a session is: the currency between the store and everything that reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Session:
    """One service session: its events by name in time order (ties in file order), and what it belongs to."""

    session_id: str
    events: tuple[str, ...]
    customer: str | None = None
    asset: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
