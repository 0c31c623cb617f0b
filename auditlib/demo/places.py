"""Where the demo lies: what ships with the project, and what is made on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHIPPED = Path(__file__).parents[2] / "data" / "demo"
"""The demo's log, rules and revisions, as they are in the repository."""

SOUND = "service-decoder-1.0"
FAULTY = "service-decoder-1.1"


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo that is ready: its store, its folder of runs, and its two revisions."""

    store: Path
    runs: Path
    sound: Path
    faulty: Path


def demo_under(home: Path) -> Demo:
    """Where the demo of this home folder is, or will be."""
    root = home / "demo"
    return Demo(root / "sessions.duckdb", root / "runs", SHIPPED / "revisions" / SOUND, SHIPPED / "revisions" / FAULTY)
