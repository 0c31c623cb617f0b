"""Columns: usual names are guessed, named ones win, unknown ones are refused."""

from __future__ import annotations

import pytest

from auditlib.errors import LogError
from auditlib.sessions.columns import resolve
from auditlib.sessions.manifest import ColumnMapping


@pytest.mark.parametrize(
    ("columns", "session", "event", "time", "customer", "asset"),
    [
        (
            "case:concept:name concept:name time:timestamp",
            "case:concept:name",
            "concept:name",
            "time:timestamp",
            None,
            None,
        ),
        (
            "number incident_state sys_updated_at caller_id cmdb_ci",
            "number",
            "incident_state",
            "sys_updated_at",
            "caller_id",
            "cmdb_ci",
        ),
        (
            "documentkey fieldname oldvalue newvalue sys_created_on",
            "documentkey",
            "fieldname+newvalue",
            "sys_created_on",
            None,
            None,
        ),
        ("key field fromString toString created reporter", "key", "field+toString", "created", "reporter", None),
        ("CaseID ActivityID CompleteTimestamp", "CaseID", "ActivityID", "CompleteTimestamp", None, None),
        (
            "Case_ID Activity Complete-Timestamp Customer product",
            "Case_ID",
            "Activity",
            "Complete-Timestamp",
            "Customer",
            "product",
        ),
    ],
)
def test_usual_names_are_found_whatever_their_case_and_dashes(columns, session, event, time, customer, asset):
    mapping, guessed = resolve(columns.split(), None)
    assert (mapping.session, "+".join(mapping.event), mapping.time) == (session, event, time)
    assert (mapping.customer, mapping.asset) == (customer, asset)
    assert {"session", "event", "time"} <= set(guessed)


def test_a_named_column_wins_and_is_not_called_guessed():
    mapping, guessed = resolve(["number", "state", "time", "place", "caller"], {"session": "place", "customer": ""})
    assert (mapping.session, mapping.customer) == ("place", None)
    assert guessed == ("event", "time")


def test_a_whole_mapping_is_taken_as_it_is():
    given = ColumnMapping("a", ("b",), "c")
    assert resolve(["a", "b", "c", "customer"], given) == (given, ())


def test_a_column_whose_own_name_holds_a_plus_is_one_column():
    mapping, _ = resolve(["key", "a+b", "time"], {"event": "a+b"})
    assert mapping.event == ("a+b",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"session": "nummer"}, "no column 'nummer'"),
        ({"event": "state+nothing"}, "no column 'nothing'"),
        ({"attributes": ("vip",)}, "no column 'vip'"),
        ({"owner": "state"}, "unknown role 'owner'"),
        ({"session": ("number", "state")}, "session is one column"),
        ({"time": ""}, "no column has a usual name for time; name it with --time"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(given, words):
    with pytest.raises(LogError) as caught:
        resolve(["number", "state", "time"], given)
    assert words in str(caught.value)


def test_a_column_that_later_rows_may_bring_is_let_through():
    mapping, _ = resolve(["number", "state", "time"], {"asset": "cmdb_ci"}, complete=False)
    assert mapping.asset == "cmdb_ci"


def test_every_column_is_read_once():
    assert ColumnMapping("a", ("b", "c"), "d", customer="a", asset=None, attributes=("b", "e")).columns() == tuple(
        "abcde"
    )
