"""The server process around the HTTP face: where it listens, how long it waits for slow clients, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Collection
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from auditlib.errors import InputError
from auditlib.serving.arms import Stage
from auditlib.serving.following import follow
from auditlib.serving.http import LOOPBACK, HttpService
from auditlib.serving.opening import OpenService

_PATIENCE = 10.0  # seconds for a request's line and headers
_LEAST_CONNECTIONS = 512
_LARGEST_HEAD = 16 * 1024


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address and not listening yet; InputError where it is taken, or not one of this machine."""
    if not 0 <= port <= 65_535:
        raise _unusable(host, port, ValueError("ports go from 0 to 65535"))
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except (OSError, UnicodeError) as problem:
        raise _unusable(host, port, problem) from problem
    return bound


def serve(
    opened: OpenService,
    bound: socket.socket,
    *,
    hosts: Collection[str] = LOOPBACK,
    listening: Callable[[], None] = lambda: None,
    stage: Callable[[], Stage] | None = None,
    grace: float = 30.0,
) -> None:
    """Serve until SIGTERM or SIGINT; then take no new request, answer those under way, and flush the log.

    `listening` is called as soon as callers can connect. `stage` says, again and again, where the rollout stands.
    `grace`: seconds that requests under way may still take.
    """
    try:
        bound.listen(256)
    except OSError as problem:
        host, port, *_ = bound.getsockname()
        raise _unusable(host, port, problem) from problem
    server = _server(opened, hosts, grace)
    # From now on and not only while uvicorn serves: who reads that it listens may end it at once. uvicorn also raises a
    # signal that it caught once more when it is done; by then it has been obeyed.
    previous = {one: signal.signal(one, server.handle_exit) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        asyncio.run(_serve(opened, bound, server, listening, stage))
    finally:
        for one, handler in previous.items():
            signal.signal(one, handler)


async def _serve(
    opened: OpenService,
    bound: socket.socket,
    server: _Server,
    listening: Callable[[], None],
    stage: Callable[[], Stage] | None,
) -> None:
    async with opened:
        following = None if stage is None else asyncio.create_task(follow(opened, stage))
        listening()
        await server.serve([bound])
        if following is not None:
            following.cancel()


def _server(opened: OpenService, hosts: Collection[str], grace: float) -> _Server:
    bounds = opened.main.served.bounds
    config = uvicorn.Config(
        HttpService(opened, hosts),
        http=_ImpatientProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # every request has its row in the request log
        server_header=False,
        proxy_headers=False,
        limit_concurrency=max(_LEAST_CONNECTIONS, 2 * (bounds.slots + bounds.queue)),
        timeout_graceful_shutdown=max(1, round(grace)),
        h11_max_incomplete_event_size=_LARGEST_HEAD,
    )
    return _Server(config, opened)


class _Server(uvicorn.Server):
    """Refuses new requests from the moment it is told to end, also on connections that are open already."""

    def __init__(self, config: uvicorn.Config, opened: OpenService) -> None:
        super().__init__(config)
        self._opened = opened

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Refuse whatever comes from now on, then let uvicorn end; a handler of signals, so nothing here may block."""
        self._opened.draining = True
        super().handle_exit(sig, frame)


class _ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that hangs up on who takes too long to say what is wanted; uvicorn waits for that for ever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Let time run from the connection on: who says nothing at all is hung up on as well."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Read what came, and stop the clock once the head is whole."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock, which would keep a closed connection in memory until it runs out."""
        self._forget()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Let time run while a head is awaited, from its first byte; it is not begun anew by further ones."""
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(_PATIENCE, self._hang_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hang_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def _unusable(host: str, port: int, problem: Exception) -> InputError:
    why = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
    return InputError(f"cannot listen on {host} port {port} ({why}); give another one with --port or --host")
