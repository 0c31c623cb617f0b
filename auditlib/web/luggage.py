"""What a browser takes along through a login: the link that it came by, and a form that was half filled in.

A login leaves the page and comes back to the bare host with a new session, so this lies in the server's memory in
between: under the browser's own mark, for a quarter of an hour, and it is handed out once.
"""

from __future__ import annotations

import binascii
import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from auditlib.release.identity import Identity

_LASTS = 900.0
_MOST = 1000
_LONGEST = 16_000


@dataclass(frozen=True, slots=True)
class Bag:
    """A page with its link's parameters, and what its form held. `owner` is the only one who gets the form back."""

    page: str
    query: Mapping[str, str]
    form: Mapping[str, str] = field(default_factory=dict)
    owner: Identity | None = None

    def form_for(self, identity: Identity) -> Mapping[str, str]:
        """The form, for whoever filled it in; nothing for anybody else who then logs in at the same browser."""
        return self.form if self.owner == identity else {}


class Luggage:
    """Bags by browser, for all sessions of this server; at most a thousand, the oldest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Empty."""
        self._clock = clock
        self._bags: dict[str, tuple[float, Bag]] = {}
        self._lock = threading.Lock()

    def keep(self, browser: str, bag: Bag) -> None:
        """Keep a bag in place of the browser's last one; one that is too large to keep is left behind."""
        size = sum(len(name) + len(text) for part in (bag.query, bag.form) for name, text in part.items())
        if size > _LONGEST:
            return
        with self._lock:
            self._bags.pop(browser, None)
            while len(self._bags) >= _MOST:
                del self._bags[next(iter(self._bags))]
            self._bags[browser] = (self._clock(), bag)

    def take(self, browser: str) -> Bag | None:
        """The browser's bag, which is then gone; None when there is none or it has lain too long."""
        with self._lock:
            since, bag = self._bags.pop(browser, (0.0, None))
        return bag if bag is not None and self._clock() - since <= _LASTS else None


def browser_of(cookie: str) -> str | None:
    """A mark of the browser from Streamlit's cookie against cross-site requests; None for a cookie of another form.

    The cookie is `2|mask|masked token|time`, masked anew at each load: only the token stays. No other site reads it.
    """
    try:
        version, mask, masked, _ = cookie.strip("\"'").split("|")
        key, token = binascii.unhexlify(mask), binascii.unhexlify(masked)
    except ValueError:
        return None
    if version != "2" or len(key) != 4 or len(token) < 16:
        return None
    plain = bytes(byte ^ key[place % 4] for place, byte in enumerate(token))
    return hashlib.sha256(plain).hexdigest()
