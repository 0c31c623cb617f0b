"""What is loaded before somebody waits for it."""

from __future__ import annotations

import ast
import asyncio
import gc
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

from streamlit.web.server.app_discovery import discover_asgi_app

from auditlib.web import warm
from tests.web.opening import settings_for
from tests.web.world import make_world

ROOT = Path(__file__).parents[2]


def test_the_server_finds_its_app_in_the_file_that_is_also_the_script():
    assert discover_asgi_app(ROOT / "app.py").import_string == "app:app"


def test_everything_that_is_loaded_ahead_exists_and_the_first_page_does_not_wait_for_torch():
    assert [name for name in (*warm.FIRST, *warm.rooms(), *warm.TORCH) if find_spec(name) is None] == []
    code = "from auditlib.web import warm; warm.load(warm.FIRST); import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_what_the_pages_import_is_loaded_ahead():
    """A part that a new page needs must not be forgotten."""
    code = "import sys; from auditlib.web import warm as w; w.load((*w.rooms(), *w.TORCH)); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    needed = {name for page in (ROOT / "pages").glob("*.py") for name in imports(page)}
    assert needed - set(run.stdout.split()) == set()


def imports(page):
    """Modules of our own that a page file imports at its top."""
    for node in ast.parse(page.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("auditlib"):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield whole if find_spec(node.module).submodule_search_locations and find_spec(whole) else node.module


def test_a_server_that_ends_at_once_does_not_go_on_loading(monkeypatch):
    monkeypatch.setattr(warm, "FIRST", ())
    loaded = []
    monkeypatch.setattr(warm, "load", loaded.append)

    async def live():
        async with warm.lifespan(None):
            assert [one.name for one in threading.enumerate() if one.name == "warm-up"] == ["warm-up"]

    asyncio.run(live())
    assert loaded == [()]


def test_a_damaged_table_does_not_keep_the_server_from_starting(tmp_path, monkeypatch, capsys):
    world = make_world(tmp_path / "world")
    (world.refused.folder / "tables" / "cache_parity.gaps.parquet").write_bytes(b"PAR1 no more")
    settings_for(monkeypatch, tmp_path / "home", world.store, world.runs)
    warm._first_page()
    assert "Parquet" in capsys.readouterr().err


def test_the_collector_leaves_alone_what_is_loaded_ahead(monkeypatch):
    monkeypatch.setattr(warm, "load", lambda _: None)
    gc.unfreeze()
    try:
        warm._load_the_rest()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()


def test_a_library_that_is_missing_is_told_and_the_others_are_loaded(capsys):
    warm.load(("no_such_library", "colorsys"))
    assert "no_such_library" in capsys.readouterr().err
    assert "colorsys" in sys.modules
