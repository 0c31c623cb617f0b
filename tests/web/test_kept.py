"""What pages keep: made once for what it is about, drawn again without being made, never mixed up."""

from __future__ import annotations

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from auditlib.web import kept


@pytest.fixture(autouse=True)
def forgotten():
    st.cache_resource.clear()
    st.cache_data.clear()
    MADE.clear()


MADE: list[str] = []


def making(name):
    def make():
        MADE.append(name)
        return [name]

    return make


def test_a_thing_is_made_once_for_each_subject_and_name():
    first = kept.made("run 1", "table", making("a"))
    assert kept.made("run 1", "table", making("b")) is first
    assert kept.made("run 2", "table", making("c")) == ["c"]
    assert kept.made("run 1", "other", making("d")) == ["d"]
    assert MADE == ["a", "c", "d"]


def page():
    import plotly.graph_objects as go  # noqa: PLC0415
    import streamlit as st  # noqa: PLC0415

    from auditlib.web import kept  # noqa: PLC0415

    about, made = st.session_state.get("about", "run 1"), st.session_state.setdefault("made", [])

    def make():
        made.append(about)
        return go.Figure(layout={"title": {"text": f"chart of {about}"}})

    kept.chart(about, "gap", make)
    count = kept.drawn(about, "words", lambda: st.text(f"words of {about}") and 7)
    st.text(f"count {count}")


def test_a_kept_chart_is_drawn_again_without_being_made_and_another_subject_gets_its_own():
    app = AppTest.from_function(page, default_timeout=60).run()
    first = app.main.children[0].proto.SerializeToString()
    app.run()
    assert app.main.children[0].proto.SerializeToString() == first
    assert app.session_state["made"] == ["run 1"]
    app.session_state["about"] = "run 2"
    app.run()
    assert app.session_state["made"] == ["run 1", "run 2"]
    assert b"chart of run 2" in app.main.children[0].proto.SerializeToString()
    assert [text.value for text in app.text] == ["words of run 2", "count 7"]


def test_a_run_that_was_measured_anew_under_the_same_name_is_another_subject(tmp_path):
    class Run:
        def __init__(self, digest):
            self.folder, self.manifest = tmp_path, {"files": {"report.json": digest}}

    assert kept.of_run(Run("sha256:1")) != kept.of_run(Run("sha256:2"))
