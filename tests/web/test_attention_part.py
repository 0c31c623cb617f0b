"""A decoder that does not offer its attention is told in words."""

from __future__ import annotations

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest


def shown():
    from auditlib.web import parts_attention  # noqa: PLC0415

    parts_attention.attention = lambda *_: None
    parts_attention.attended(type("Seen", (), {"here": None, "prefix": None, "names": []})())


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    from auditlib.web import parts_attention  # noqa: PLC0415

    monkeypatch.setattr(parts_attention, "attention", parts_attention.attention)
    st.cache_resource.clear()


def test_a_decoder_without_attention_gives_a_sentence_and_no_figure():
    app = AppTest.from_function(shown, default_timeout=60).run()
    assert not app.exception
    assert "does not offer its attention" in app.text[0].value
