"""The HTTP face of an open service (ASGI): one question, and what a supervisor and a monitor want to know.

Whatever comes in, what goes out is JSON with a fitting status: an answer that was checked, or {"error", "message"}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections import Counter
from collections.abc import Collection, Coroutine
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from auditlib.errors import RequestFailedError, RequestRefusedError
from auditlib.events.documents import shown
from auditlib.serving.http_input import check_host, read_body, read_request
from auditlib.serving.metrics import exposition
from auditlib.serving.opening import OpenService
from auditlib.serving.request import Answer

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names by which a service that listens on this machine only may be asked."""

STATUS = {
    "malformed": 400, "unknown event": 400, "illegal prefix": 400, "prefix too long": 400, "output out of bounds": 400,
    "host not allowed": 403, "not found": 404, "wrong method": 405, "too slow": 408, "duplicate": 409,
    "body too large": 413, "not JSON": 415, "busy": 429, "caller left": 499, "shutting down": 503,
    "no answer": 502, "nothing serves": 503, "time-out": 504,
}  # fmt: skip
"""HTTP status by the code of a refusal or failure; every other code is a fault of our own, 500."""

_UNREAD = {"host not allowed", "not found", "wrong method", "not JSON", "body too large", "too slow"}
_LONGEST_MESSAGE = 600
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_LOG = logging.getLogger("prefixgate.http")


class HttpService:
    """An ASGI application over an open service.

    `responses` counts by HTTP status, `refused` by code what no arm of the service has seen.
    """

    def __init__(self, opened: OpenService, hosts: Collection[str] = LOOPBACK) -> None:
        """`hosts`: names, in lower case and without port, that the Host header may hold."""
        self.opened, self._hosts = opened, frozenset(hosts)
        self.responses: Counter[int] = Counter()
        self.refused: Counter[str] = Counter()
        self._routed: ASGIApp = Starlette(
            routes=[
                Route("/v1/next", self._next, methods=["POST"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/ready", self._ready, methods=["GET"]),
                Route("/metrics", self._metrics, methods=["GET"]),
            ],
            exception_handlers={HTTPException: _not_routed},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; nothing that goes wrong meanwhile gets past here but a cancellation."""
        if scope["type"] != "http":
            return

        async def counted(message: Message) -> None:
            """Send the message on; the first of a response is counted by its status."""
            if message["type"] == "http.response.start":
                self.responses[message["status"]] += 1
            await send(message)

        try:
            check_host(scope["headers"], self._hosts)
        except RequestRefusedError as problem:
            await self._refusal(problem)(scope, receive, counted)
        else:
            await self._routed(scope, receive, counted)

    async def _next(self, request: HttpRequest) -> Response:
        asked = None
        try:
            asked = read_request(await read_body(request))
            return _json(_document(await _unless_gone(request.receive, self.opened.answer(asked))))
        except (RequestRefusedError, RequestFailedError) as problem:
            return self._refusal(problem, counted=asked is not None)
        except Exception as problem:  # noqa: BLE001 - the caller gets no traceback, whoever runs this gets the places
            _LOG.error("%s", _places(problem))
            return _error(500, "internal", "a fault of our own; the server's log says where")

    async def _health(self, _: HttpRequest) -> Response:
        report = await self.opened.health()
        return _json(report, 503 if report["status"] == "failed" else 200)

    async def _ready(self, _: HttpRequest) -> Response:
        ready = self.opened.answers()
        return _json({"ready": ready}, 200 if ready else 503)

    async def _metrics(self, _: HttpRequest) -> Response:
        text = exposition(self.opened, self.responses, self.refused)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8", headers=_HEADERS)

    def _refusal(self, problem: RequestRefusedError | RequestFailedError, *, counted: bool = False) -> Response:
        """`counted`: whether an arm has counted it, and so has a row of the log."""
        code, headers = problem.code, {}
        if not counted or code == "shutting down":
            self.refused[code] += 1
        message = str(problem).removeprefix(f"{code}: ")
        if isinstance(problem, RequestFailedError):
            code = code if code == "time-out" or self.opened.answers() else "nothing serves"
            message = "no path gave an answer that holds, so none is given; /health says what is wrong"
        if code == "busy":
            headers["Retry-After"] = "1"
        return _error(STATUS.get(code, 500), code, message, headers)


async def _unless_gone(receive: Receive, answer: Coroutine[Any, Any, Answer]) -> Answer:
    """The answer, unless the caller closes the connection first: then its slot is free for somebody else."""
    asked, gone = asyncio.ensure_future(answer), asyncio.ensure_future(_closed(receive))
    try:
        await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise RequestRefusedError("caller left", "the connection closed before the answer was there")
        return asked.result()
    finally:
        asked.cancel()
        gone.cancel()
        await asyncio.gather(asked, gone, return_exceptions=True)


async def _closed(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _document(answer: Answer) -> dict[str, Any]:
    return {**asdict(answer), "events": list(answer.events)}


async def _not_routed(_: HttpRequest, problem: Exception) -> Response:
    """For paths and methods that there are not."""
    if isinstance(problem, HTTPException) and problem.status_code == 405:
        return _error(405, "wrong method", "ask with POST /v1/next or GET /health, /ready, /metrics", problem.headers)
    return _error(404, "not found", "there are POST /v1/next and GET /health, /ready, /metrics")


def _error(status: int, code: str, message: str, headers: Any = None) -> Response:
    # Nobody will read the rest of the body, and whoever sends it for ever would otherwise keep the connection.
    closing = {"Connection": "close"} if code in _UNREAD else {}
    headers = {**(headers or {}), **closing}
    return _json({"error": code, "message": shown(message)[:_LONGEST_MESSAGE]}, status, headers)


def _json(document: Any, status: int = 200, headers: Any = None) -> Response:
    """ASCII only, whatever the document holds: no browser takes it for another encoding."""
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Response(text + "\n", status, {**_HEADERS, **(headers or {})}, "application/json")


def _places(problem: Exception) -> str:
    """Where something went wrong, without what it says: that may hold the text of a stranger."""
    frames = traceback.extract_tb(problem.__traceback__)
    return f"{type(problem).__name__} at " + " > ".join(f"{one.name}:{one.lineno}" for one in frames)
