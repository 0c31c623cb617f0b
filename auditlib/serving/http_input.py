"""What comes in over HTTP, read with suspicion: who was meant, how much came, how fast, and whether it is a request."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from auditlib.errors import InputError, RequestRefusedError
from auditlib.events.documents import Entry, parse
from auditlib.serving.request import Request

LARGEST_BODY = 256 * 1024
_PATIENCE = 10.0  # seconds for a whole body
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_MOST_ATTRIBUTES = 64
_LONGEST = 512  # characters of an attribute's name or value


def check_host(headers: list[tuple[bytes, bytes]], allowed: Collection[str]) -> None:
    """Nothing, when a request says in its one Host header that it means a name of `allowed` (lower case, no port).

    A page of another site can point a name of its own at this machine; what it asks then carries that name.
    """
    hosts = [value.decode("latin-1") for name, value in headers if name.lower() == b"host"]
    matched = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if matched is None or matched[1].lower() not in allowed:
        raise RequestRefusedError("host not allowed", "this service does not answer to that name; see --allow-host")


async def read_body(request: HttpRequest, most: int = LARGEST_BODY, patience: float = _PATIENCE) -> bytes:
    """The body of a request for JSON, whole before anything is done with it, so that a slow sender holds no slot.

    RequestRefusedError for another content type, more than `most` bytes, or a body that takes over `patience` seconds.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestRefusedError("not JSON", "send Content-Type: application/json, not compressed")
    # What it says first, so that nothing is read of a body that is too large; then what really comes.
    _check_size(int(said) if (said := request.headers.get("content-length", "0")).isdigit() else 0, most)
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            async for chunk in request.stream():
                body += chunk
                _check_size(len(body), most)
    except TimeoutError as problem:
        raise RequestRefusedError("too slow", f"the body did not come within {patience:g} s") from problem
    except ClientDisconnect as problem:
        raise RequestRefusedError("caller left", "the connection closed before the body was there") from problem
    return bytes(body)


def read_request(body: bytes) -> Request:
    """The request that a JSON body states; RequestRefusedError with code "malformed" names the place and the reason."""
    try:
        top = parse(body.decode("utf-8"), "body", InputError)
        return _request(top.members(("session", "events"), ("attributes", "max_new", "request_id")))
    except UnicodeDecodeError as problem:
        raise RequestRefusedError("malformed", f"byte {problem.start} of the body is not UTF-8") from problem
    except InputError as problem:
        raise RequestRefusedError("malformed", str(problem)) from problem


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise RequestRefusedError("body too large", f"a body may hold {most:,} bytes")


def _request(parts: Mapping[str, Entry]) -> Request:
    given: dict[str, Any] = {
        "session": parts["session"].text(),
        "events": tuple(event.text() for event in parts["events"].items()),
        "attributes": _attributes(parts["attributes"]) if "attributes" in parts else {},
    }
    if "max_new" in parts and parts["max_new"].value is not None:
        given["max_new"] = parts["max_new"].integer(1)
    if "request_id" in parts:
        if not _REQUEST_ID.fullmatch(parts["request_id"].text()):
            parts["request_id"].refuse("write 1 to 128 letters, digits and . _ : - with a letter or digit first")
        given["request_id"] = parts["request_id"].value
    return Request(**given)


def _attributes(entry: Entry) -> dict[str, str]:
    found = {name: value.text() for name, value in entry.mapping().items()}
    if len(found) > _MOST_ATTRIBUTES or any(len(text) > _LONGEST for pair in found.items() for text in pair):
        entry.refuse(f"holds more than {_MOST_ATTRIBUTES} attributes, or one of over {_LONGEST} characters")
    return found
