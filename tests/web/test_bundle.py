"""The browser's files from memory: the same bytes that Streamlit would send, and nothing that it would not."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from auditlib.web.bundle import FIRST, FOLDER, Bundle, preloads

SCRIPT = "static/js/Table.A1b2-_3c.js"


@pytest.fixture
def folder(tmp_path):
    """A small copy of what Streamlit brings: a page, a table that imports two modules, one of which the page names."""
    files = {
        "index.html": '<html><head><script src="./static/js/index.aaaaaaaa.js"></script></head><body>…</body></html>',
        SCRIPT: 'import{a}from"./rows.bbbbbbbb.js";import"./index.aaaaaaaa.js";a("./not.imported.js")',
        "static/js/rows.bbbbbbbb.js": 'import {b} from "./Table.A1b2-_3c.js"',
        "static/js/index.aaaaaaaa.js": "1",
        "static/js/Table.old.A1b2-_3c.js": "another part",
        "static/css/page.cccccccc.css": "p {}",
        "static/js/unhashed.js": "2",
        "secret.12345678.js": "not in a folder of the bundle",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def client(folder, base=""):
    def behind(request):
        return PlainTextResponse("from behind", headers={"seen": request.url.path})

    def page(_):
        return FileResponse(folder / "index.html")

    def packed(_):
        return HTMLResponse("<head></head>", headers={"content-encoding": "gzip"})

    def words(_):
        return PlainTextResponse("<head></head>")

    def gone(_):
        return HTMLResponse("<head></head>", status_code=404)

    routes = [Route("/", page), Route("/packed", packed), Route("/words", words), Route("/gone", gone)]
    app = Starlette(routes=[*routes, Route("/{rest:path}", behind, methods=["GET", "POST"])])
    return TestClient(Bundle(app, base, folder))


@pytest.mark.parametrize("base", ["", "audits", "/of/audits/"])
def test_a_hashed_file_is_answered_with_its_bytes_and_may_be_kept_for_ever(folder, base):
    told = client(folder, base).get("/".join(["", *filter(None, [base.strip("/")]), SCRIPT]))
    assert told.content == (folder / SCRIPT).read_bytes()
    assert told.headers["content-type"].startswith("text/javascript")
    assert "immutable" in told.headers["cache-control"]
    assert "seen" not in told.headers


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("/static/js/unhashed.js", {}),
        ("/static/js/gone.dddddddd.js", {}),
        ("/secret.12345678.js", {}),
        ("/static/js/..%2f..%2fsecret.12345678.js", {}),
        (f"//{SCRIPT}", {}),
        (f"/{SCRIPT}", {"headers": {"range": "bytes=0-3"}}),
        (f"/{SCRIPT}", {"method": "POST"}),
    ],
)
def test_everything_else_is_left_to_the_server_behind(folder, path, options):
    told = client(folder).request(**{"method": "GET", **options}, url=f"http://testserver{path}")
    assert told.text == "from behind"


def test_a_file_outside_of_the_base_path_is_left_to_the_server_behind(folder):
    assert client(folder, "audits").get(f"/{SCRIPT}").text == "from behind"


def test_a_part_is_preloaded_with_what_it_imports_and_without_what_the_page_names_itself(folder):
    assert preloads(folder, ("Table",)) == (SCRIPT, "static/js/rows.bbbbbbbb.js")
    assert preloads(folder, ("Gone",)) == ()


def test_a_page_gets_the_preloads_in_its_head_and_nothing_else_does(folder, monkeypatch):
    monkeypatch.setattr("auditlib.web.bundle.preloads", lambda folder: preloads(folder, ("Table",)))
    asked = client(folder)
    link = f'<link rel="modulepreload" crossorigin href="./{SCRIPT}">'
    page = asked.get("/")
    assert page.text.index(link) < page.text.index("</head>")
    assert page.text.replace(link, "").count("modulepreload") == 1  # the rows
    assert int(page.headers["content-length"]) == len(page.content)
    for other in ("/words", "/gone"):
        assert asked.get(other).text == "<head></head>"
    with asked.stream("GET", "/packed") as packed:  # no reader could unpack what is no gzip
        assert b"".join(packed.iter_raw()) == b"<head></head>"


def test_streamlit_has_every_part_that_is_named():
    names = {path.split("/")[-1].split(".")[0] for path in preloads()}
    assert set(FIRST) <= names
    assert all((FOLDER / path).is_file() for path in preloads())
