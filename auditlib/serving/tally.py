"""Latencies and outcomes of requests, counted from their log rows as they come."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from auditlib.serving.log_row import LogRow

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the latency buckets, in seconds; one more bucket holds what is slower."""


@dataclass(slots=True)
class Histogram:
    """How many durations fell into each bucket, and their sum (s)."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        # A duration that equals a bound is in its bucket: the format's "le" is less or equal.
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return sum(self.buckets)


@dataclass(slots=True)
class Tally:
    """What the rows so far say, by arm: outcomes ("answered" or the code of an error) and latencies from arrival."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_event: dict[str, Histogram] = field(default_factory=dict)
    whole: dict[str, Histogram] = field(default_factory=dict)

    def add(self, row: LogRow) -> None:
        """Count one row. What was refused has no latency: it would make a full service look fast."""
        self.outcomes[row.arm, row.error or "answered"] += 1
        if row.error is None and row.first_event is not None:
            self.first_event.setdefault(row.arm, Histogram()).add((row.first_event - row.arrival) / 1e6)
            self.whole.setdefault(row.arm, Histogram()).add((row.end - row.arrival) / 1e6)
