"""Logins that somebody ended with *Log out*, for as long as their tokens would still let somebody look.

Streamlit removes the browser's cookie only once the browser has followed a redirect, and tells no other tab. Until
then, and for whoever copied the cookie, this server has to know by itself that the login is over. It lies in its
memory, so a restart forgets it; `auditlib/web/reviewer.py` bounds what a forgotten one is worth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from auditlib.web.reviewer import LASTS


class EndedLogins:
    """Marks of ended logins, for all sessions of this server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """None has ended. `clock` gives seconds that never go back."""
        self._clock = clock
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()

    def end(self, login: str) -> None:
        """End a login, by its mark (`Reviewer.login`); those too old to open anything are forgotten on the way."""
        now = self._clock()
        with self._lock:
            # twice the time, for a token may be dated ahead of this machine's clock
            kept = {mark: at for mark, at in self._ended.items() if now - at <= 2 * LASTS.total_seconds()}
            self._ended = {**kept, login: now}

    def __contains__(self, login: str) -> bool:
        """Whether the login of this mark has ended."""
        with self._lock:
            return login in self._ended
