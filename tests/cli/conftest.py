from __future__ import annotations

import pytest

from auditlib.demo.build import fill_store


@pytest.fixture(scope="session")
def demo_store(tmp_path_factory):
    """The demo's store, as it is made on every machine."""
    store = tmp_path_factory.mktemp("demo") / "sessions.duckdb"
    fill_store(store)
    return store
