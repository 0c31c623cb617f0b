"""The published logs give the published figures. Needs their folder in PREFIXGATE_LOGS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from auditlib.errors import StoreError
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import group_sizes, leakage, split
from auditlib.sessions.store import SessionStore

FOLDER = os.environ.get("PREFIXGATE_LOGS")
LIFECYCLE = {"event": "concept:name+lifecycle:transition"}

# file, mapping, sessions, events, names, variants, longest, ties, out of order, duplicates
LOGS = [
    ("uci-servicenow-incidents.zip", {}, 24_918, 141_712, 9, 2080, 58, 14_118, 1, 0),
    ("helpdesk.xes.gz", {}, 4580, 21_348, 14, 226, 15, 130, 0, 127),
    ("helpdesk-tax.csv", {}, 3804, 13_710, 9, 154, 14, 91, 0, 91),
    ("bpic2013-incidents.xes.gz", LIFECYCLE, 7554, 65_533, 13, 2278, 123, 0, 0, 0),
]


def log(name: str) -> Path:
    if not FOLDER:
        pytest.skip("PREFIXGATE_LOGS is not set to the folder with the published logs")
    path = Path(FOLDER) / name
    if not path.exists():
        pytest.skip(f"{name} is not in PREFIXGATE_LOGS")
    return path


@pytest.mark.parametrize(
    ("name", "mapping", "sessions", "events", "names", "variants", "longest", "ties", "late", "copies"), LOGS
)
def test_a_published_log_gives_its_published_figures(
    tmp_path, name, mapping, sessions, events, names, variants, longest, ties, late, copies
):
    manifest = import_log(log(name), tmp_path / "store.duckdb", mapping=mapping)
    assert (manifest.sessions, manifest.events, manifest.rejects) == (sessions, events, 0)
    assert (manifest.ties, manifest.out_of_order, manifest.duplicates) == (ties, late, copies)
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert len(store.event_names()) == names
        assert len(store.variants(limit=10_000)) == variants
        assert max(store.lengths()) == longest
        assert sum(one.count for one in store.transitions()) == events + sessions


def test_servicenow_incidents_split_by_caller(tmp_path):
    manifest = import_log(log("uci-servicenow-incidents.zip"), tmp_path / "store.duckdb")
    assert manifest.mapping.to_dict() == {
        "session": "number",
        "event": ["incident_state"],
        "time": "sys_updated_at",
        "customer": "caller_id",
        "asset": "cmdb_ci",
        "attributes": [],
    }
    assert (manifest.time_format, manifest.time_format_reason) == ("D/M/YYYY", "only D/M/YYYY reads '29/2/2016 01:23'")
    assert manifest.missing == {"cmdb_ci": {"?": 141_267}, "caller_id": {"?": 29}}
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        assert store.summary().event_counts["-100"] == 5
        sizes = group_sizes(store, ("customer",))
        assert (len(sizes), round(sizes[0] / sum(sizes), 3)) == (5244, 0.018)
        report = leakage(store, split(store))
        assert 0.91 < report.share(report.shared_customers) < 0.94
        assert 0.93 < report.share(report.duplicate_sequences) < 0.98
        by_customer = leakage(store, split(store, ("session", "customer")))
        assert (by_customer.shared_customers, by_customer.held_out_sessions) == (0, 4984)


def test_servicenow_callers_and_locations_are_nearly_one_group(tmp_path):
    import_log(log("uci-servicenow-incidents.zip"), tmp_path / "store.duckdb", mapping={"asset": "location"})
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        sizes = group_sizes(store, ("customer", "asset"))
    assert round(sizes[0] / sum(sizes), 3) == 0.955


def test_helpdesk_customers_and_products_are_one_group_and_quarantine_helps(tmp_path):
    import_log(log("helpdesk.xes.gz"), tmp_path / "store.duckdb")
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        customers = group_sizes(store, ("customer",))
        assert (len(customers), round(customers[0] / 4580, 3)) == (390, 0.061)
        assert len({value for row in store.keyed_sessions() for value in row.customers}) == 397
        assert len({value for row in store.keyed_sessions() for value in row.assets}) == 21
        with pytest.raises(StoreError, match=r"holds 4576 of 4580 sessions \(99.91%\)"):
            split(store, ("customer", "asset"))
        report = leakage(store, split(store, ("customer", "asset"), quarantine=True))
        assert (report.shared_customers, report.shared_assets) == (0, 0)
        assert report.quarantined < 1000
        assert 0.15 < report.held_out_sessions / (report.held_out_sessions + report.training_sessions) < 0.25
