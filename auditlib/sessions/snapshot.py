"""What a frozen split is, and the digest that names its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Side = Literal["training", "held-out", "quarantined"]
SIDES: tuple[Side, ...] = ("training", "held-out", "quarantined")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a split was asked to be."""

    by: tuple[str, ...]
    held_out: float
    seed: int
    chronological: bool = False
    quarantine: bool = False

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "by": list(self.by)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A split whose sessions are copied and never change; `digest` names content and terms ("sha256:…").

    `held_out` is the share asked for; `largest_component` counts the sessions of the largest group that the keys of
    `by` tie together, out of `components` groups.
    """

    digest: str
    created: str
    by: tuple[str, ...]
    held_out: float
    seed: int
    chronological: bool
    quarantine: bool
    training_sessions: int
    held_out_sessions: int
    quarantined: int
    training_events: int
    held_out_events: int
    components: int
    largest_component: int

    @property
    def sessions(self) -> int:
        """Sessions on all sides, the quarantined ones included."""
        return self.training_sessions + self.held_out_sessions + self.quarantined

    @property
    def held_out_share(self) -> float:
        """Held-out sessions over held-out and training ones: the share that was reached."""
        return self.held_out_sessions / max(1, self.held_out_sessions + self.training_sessions)

    @property
    def largest_component_share(self) -> float:
        """Share of all sessions that stands in the largest component."""
        return self.largest_component / max(1, self.sessions)

    def terms(self) -> Terms:
        """What was asked of the split."""
        return Terms(self.by, self.held_out, self.seed, self.chronological, self.quarantine)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**asdict(self), "by": list(self.by)}


@dataclass(frozen=True, slots=True)
class FrozenSession:
    """A row of a snapshot: a session with its side and every customer and asset that it names, first seen first.

    Times are microseconds since 1970.
    """

    side: str
    session_id: str
    events: tuple[str, ...]
    customers: tuple[str, ...]
    assets: tuple[str, ...]
    attributes: Mapping[str, str]
    first_time: int
    last_time: int


def content_digest(terms: Terms, rows: Iterable[FrozenSession]) -> str:
    """SHA-256 over the terms and the rows, one line of JSON each: the same content gives the same digest in any file.

    Rows come ordered by side, then session id; JSON keeps fields apart, whatever characters the log put into them.
    """
    digest = hashlib.sha256(b"prefixgate snapshot 1\n")
    digest.update(json.dumps(terms.to_dict(), sort_keys=True).encode() + b"\n")
    for row in rows:
        keys = [row.customers, row.assets, sorted(row.attributes.items())]
        line = json.dumps([row.side, row.session_id, row.events, keys, row.first_time, row.last_time])
        digest.update(line.encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"
