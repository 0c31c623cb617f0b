"""Streamlit's files for the browser, answered from memory, and the first page's told of before the page asks.

Streamlit serves each of the more than a hundred files of a first page through a worker thread, and lets the browser
find out about a table's or a button's code once the first of them arrives. On a busy machine a first page waits for
that most of all. The names of files hold a hash of their content, so a name's bytes never change.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import streamlit
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOLDER = Path(streamlit.__file__).parent / "static"
"""What `index.html` and all that it loads lie in."""
FIRST = ("Selectbox", "Button", "ButtonGroup", "PageLink", "DataFrame", "arrowFormatUtils", "DownloadButton")
"""Parts of Streamlit that the board draws, by the names of their files before the hash."""
_HASHED = re.compile(r"/static/(?:js|css|media)/[\w.-]+\.[\w-]{8}\.\w+")
_IMPORTED = re.compile(rb"""(?:from|import)\s*["']\./([\w.-]+\.js)["']""")
_FOR_EVER = b"public, immutable, max-age=31536000"


class Bundle:
    """ASGI middleware in front of Streamlit: answers for hashed files, adds preloads to pages, hands on the rest."""

    def __init__(self, app: ASGIApp, base: str = "", folder: Path = FOLDER) -> None:
        """Stand before an app that is served under the path `base`, with the files of `folder`."""
        self._app, self._folder = app, folder
        self._base = f"/{base.strip('/')}" if base.strip("/") else ""
        self._kept: dict[str, tuple[bytes, bytes]] = {}
        self._told = _links(preloads(folder))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the app answer."""
        if scope["type"] != "http" or scope["method"] != "GET":
            return await self._app(scope, receive, send)
        kept = self._find(scope["path"])
        if kept is None or any(name == b"range" for name, _ in scope["headers"]):
            return await self._app(scope, receive, self._with_preloads(send))
        kind, content = kept
        headers = [
            (b"content-type", kind),
            (b"content-length", str(len(content)).encode()),
            (b"cache-control", _FOR_EVER),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})
        return None

    def _find(self, path: str) -> tuple[bytes, bytes] | None:
        """Kind and content of a hashed file; None for every other path."""
        if path in self._kept:
            return self._kept[path]
        name = path.removeprefix(self._base)
        file = self._folder / name.lstrip("/")
        if not path.startswith(self._base) or _HASHED.fullmatch(name) is None or not file.is_file():
            return None
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        text = "; charset=utf-8" if kind.startswith("text/") else ""
        self._kept[path] = (f"{kind}{text}".encode(), file.read_bytes())
        return self._kept[path]

    def _with_preloads(self, send: Send) -> Send:
        """Send a page with the preloads in its head, and everything else as it comes."""
        begun: Message = {}
        page = bytearray()

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and _is_page(message):
                begun.update(message)
            elif not begun:
                await send(message)
            else:
                page.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    await _send_page(send, begun, bytes(page).replace(b"</head>", self._told + b"</head>", 1))

        return tell


def _is_page(start: Message) -> bool:
    """Whether a whole page follows that nobody has compressed."""
    headers = {name.lower(): value for name, value in start.get("headers", ())}
    return (
        start["status"] == 200
        and headers.get(b"content-type", b"").startswith(b"text/html")
        and b"content-encoding" not in headers
    )


async def _send_page(send: Send, start: Message, page: bytes) -> None:
    kept = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
    await send({**start, "headers": [*kept, (b"content-length", str(len(page)).encode())]})
    await send({"type": "http.response.body", "body": page})


def in_front(base: str = "") -> Middleware:
    """The bundle as `st.App` takes it, for a dashboard under the path `base`."""
    return Middleware(Bundle, base=base)


@cache
def preloads(folder: Path = FOLDER, first: Iterable[str] = FIRST) -> tuple[str, ...]:
    """Paths below the static folder's root that the first page will load, in the order in which to load them."""
    scripts = folder / "static" / "js"
    page = (folder / "index.html").read_text(encoding="utf-8")
    known = {path.name for path in scripts.glob("*.js") if path.name in page}
    found: dict[str, None] = {}
    waiting = [path.name for name in first for path in scripts.glob(f"{name}.*.js") if path.name.count(".") == 2]
    while waiting:
        name = waiting.pop(0)
        if name in found or name in known or not (scripts / name).is_file():
            continue
        found[name] = None
        waiting += [one.decode() for one in _IMPORTED.findall((scripts / name).read_bytes())]
    return tuple(f"static/js/{name}" for name in found)


def _links(paths: Iterable[str]) -> bytes:
    """Elements that make a browser fetch and compile modules early: `modulepreload` of the HTML standard.

    In the page and not in its header: sixty names are more than a proxy in front may take in a header.
    """
    return "".join(f'<link rel="modulepreload" crossorigin href="./{path}">' for path in paths).encode()
