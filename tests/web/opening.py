"""Pages opened without a browser: the settings of a server, a page by its link, and the words that stand on it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from streamlit.testing.v1 import AppTest

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted(path.stem for path in (ROOT / "pages").glob("*.py")))


def settings_for(monkeypatch, home, store, runs):
    monkeypatch.setenv("PREFIXGATE_HOME", str(home))
    monkeypatch.setenv("PREFIXGATE_STORE", str(store))
    monkeypatch.setenv("PREFIXGATE_RUNS", str(runs))
    st.cache_resource.clear()
    st.cache_data.clear()
    return home


def opened(page, **link):
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, text in link.items():
        app.query_params[name] = text
    app.run()
    if page != "board":
        app.switch_page(f"pages/{page}.py")
        for name, text in link.items():
            app.query_params[name] = text
        app.run()
    assert not app.exception, app.exception
    return app


def words(app):
    kinds = (app.title, app.header, app.subheader, app.text, app.caption, app.markdown, app.error, app.info)
    return "\n".join(str(one.value) for kind in (*kinds, app.warning, app.success) for one in kind).replace("\\", "")
