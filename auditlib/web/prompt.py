"""Answers that leave at once: the server's sockets without Nagle's algorithm.

Streamlit binds its socket without naming the protocol, and asyncio switches Nagle's algorithm off only where TCP is
named. Then the second small packet of every answer waits for the browser's delayed acknowledgement, 40 ms on Linux
(RFC 1122, 4.2.3.2 and 4.2.3.4). A first page asks for more than a hundred files.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_OPEN = Path("/dev/fd")
"""Where Linux and macOS list what a process has open; elsewhere answers stay as slow as they are."""


def send_at_once() -> int:
    """Switch Nagle's algorithm off on every listening TCP socket of this process, and say on how many.

    Connections inherit the option from the socket that accepts them.
    """
    found = 0
    for one in _listening():
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found += 1
    return found


def _listening() -> Iterator[socket.socket]:
    """Listening TCP sockets, each through a descriptor of its own that is closed afterwards."""
    for name in [entry.name for entry in _OPEN.iterdir()] if _OPEN.is_dir() else ():
        # What is listed may be closed meanwhile, and the listing itself always is.
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as one:
                internet = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
                if internet and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    yield one
