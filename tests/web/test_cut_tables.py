"""Where a page shows only the first or the most frequent, it says so and of how many."""

from __future__ import annotations

import pandas as pd
import pytest

from auditlib.views import charts_sessions
from auditlib.web import parts_sessions, sessions_facts
from tests.web.opening import opened, words


@pytest.fixture
def saved(monkeypatch):
    found = {}
    monkeypatch.setattr(parts_sessions, "downloads", lambda frame, name, _: found.update({name: len(frame)}))
    return found


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("count", "said", "held"),
    [
        (2_500, "The first 1,000 of 2,500 rows that were left out; the downloads hold all.", 2_500),
        (3_001, "of more than 3,000 rows that were left out; the downloads hold the first 3,000.", 3_000),
    ],
)  # fmt: skip
def test_rejected_rows_beyond_the_first_are_counted_and_saved(count, said, held, saved, monkeypatch):
    rows = pd.DataFrame({"line": range(count), "session": "S", "reason": "no time", "text": "x"})
    manifest = {"number": 1, "log": "l", "sessions": 1, "events": 1, "imported UTC": "2026-11-30T10:00:00+00:00"}
    monkeypatch.setattr(sessions_facts, "rejects", lambda _: rows)
    monkeypatch.setattr(sessions_facts, "imports", lambda _: pd.DataFrame([manifest]))
    monkeypatch.setattr(sessions_facts, "MOST_REJECTS", 3_000)
    app = opened("sessions", section="Imports")
    assert said in words(app)
    assert max(len(table.value) for table in app.dataframe) == 1_000
    assert saved["rejects"] == held


@pytest.mark.usefixtures("place")
def test_ways_that_are_not_shown_are_told(monkeypatch):
    whole = sessions_facts.variants
    monkeypatch.setattr(sessions_facts, "variants", lambda *asked: whole(*asked)[:1])
    first = opened("sessions", section="Variants")
    shown = int(first.dataframe[0].value["sessions"].sum())
    assert f"The 1 most frequent ways, which {shown} of them went." in words(first)


@pytest.mark.usefixtures("place")
def test_names_that_are_not_drawn_are_told(monkeypatch):
    assert "Drawn are" not in words(opened("sessions", section="Transitions"))
    monkeypatch.setattr(charts_sessions, "MOST_NAMES", 2)
    assert "Drawn are the 2 most frequent of 4 names." in words(opened("sessions", section="Transitions"))
