"""Asks an HTTP service without a network, and opens services over decoders that need no files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from auditlib.serving.arms import Stage
from auditlib.serving.engine import Engine
from auditlib.serving.http import HttpService
from auditlib.serving.keeping import Keeper
from auditlib.serving.opening import OpenService
from auditlib.serving.request import Encoded
from auditlib.serving.routes import Label
from auditlib.serving.served import Served
from auditlib.serving.service import Service

JSON = (("host", "localhost:8600"), ("content-type", "application/json"))


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Caller:
    """What a server tells an application about one request. `leave` closes the connection."""

    def __init__(self, chunks: Iterable[bytes] = (b"",), pause: float = 0.0) -> None:
        self.chunks, self.pause = list(chunks), pause
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if not self.chunks:
            await self.gone.wait()
            return {"type": "http.disconnect"}
        await asyncio.sleep(self.pause)
        chunk = self.chunks.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(self.chunks)}

    def leave(self) -> None:
        self.gone.set()


async def call(app, method="GET", path="/health", headers=JSON, caller: Caller | None = None) -> Reply:
    caller = caller or Caller()
    sent: list[dict[str, Any]] = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path,
        "raw_path": path.encode(), "query_string": b"", "root_path": "", "scheme": "http", "client": None,
        "server": ("127.0.0.1", 8600), "headers": [(name.encode(), str(value).encode()) for name, value in headers],
    }  # fmt: skip
    await app(scope, caller.receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Reply(sent[0]["status"], found, sent[1]["body"])


async def post(app, body: Any, headers=JSON, caller: Caller | None = None) -> Reply:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await call(app, "POST", "/v1/next", headers, caller or Caller([content]))


def question(one: Encoded, **more: Any) -> dict[str, Any]:
    request = one.request
    asked = {"session": request.session, "events": list(request.events), "max_new": one.max_new}
    return {**asked, "request_id": request.request_id, **more}


def opened(
    served: Served,
    earlier: Served | None = None,
    *,
    stage: Stage | None = None,
    log: Any = None,
    make: Any = None,
    **terms: Any,
) -> OpenService:
    """Services as `open_service` makes them, of artifacts that lie in no folder."""
    keeper = Keeper(log)
    name = "released" if stage is None else stage.name
    common = {"keep": keeper.keep, "timeout": 20.0, **terms}
    new = Service(served, fallback=earlier, label=Label("new", name), make_engine=make or Engine, **common)
    services = {"new": new}
    if stage is not None:
        services["fallback"] = Service(earlier, label=Label("fallback", name), **common)
    return OpenService(services, stage, keeper, {}, served.digest)


def with_app(open_one, script):
    """What `script(app)` gives, run over an open service and closed in order."""

    async def run():
        async with open_one() as service:
            return await script(HttpService(service))

    return asyncio.run(run())
