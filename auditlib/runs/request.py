"""What an audit run is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What to audit, against what, and how. Two equal requests on one device give the same numbers."""

    store: Path
    revision: Path
    runs: Path
    audits: tuple[str, ...] | None = None
    policy: Path | None = None
    snapshot: str | None = None
    device: str = "cpu"
    dtype: str = "float32"
    allow_code: bool = False
    seed: int = 0
    self_check: bool = True
