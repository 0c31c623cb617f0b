"""Moments of a service: one clock that never jumps, told as UTC."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Microseconds since 1970 in UTC, read off a monotonic clock that was set once.

    A step of the system's clock, such as one by NTP, would otherwise give requests that end before they start.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        """Set by `wall` (s since 1970) now, and running with `steady` (s) from here on."""
        self._steady = steady
        self._offset = wall() - steady()

    def now(self) -> int:
        """This moment."""
        return self.at(self._steady())

    def at(self, reading: float) -> int:
        """The moment at which the steady clock gave `reading` (s)."""
        return round((reading + self._offset) * 1e6)
