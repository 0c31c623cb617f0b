from __future__ import annotations

import pytest
from streamlit.runtime.pages_manager import PagesManager

from tests.web.opening import settings_for
from tests.web.world import make_world


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def place(world, tmp_path, monkeypatch):
    """Settings of a fresh server that looks at the world's store."""
    return settings_for(monkeypatch, tmp_path, world.store, world.runs)


@pytest.fixture(autouse=True)
def warm_server(monkeypatch):
    """AppTest forgets before each run that app.py has run; a server remembers. The cold case has its browser test."""
    make = PagesManager.__init__

    def remembering(self, *arguments, **options):
        PagesManager.uses_pages_directory = False
        make(self, *arguments, **options)

    monkeypatch.setattr(PagesManager, "__init__", remembering)
