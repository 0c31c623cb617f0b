"""Times: read in the one way that the log allows, else refused; zones are never mixed in silence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditlib.errors import LogError
from auditlib.sessions.store import SessionStore
from auditlib.sessions.time_formats import named_format
from auditlib.sessions.time_guess import TimeEvidence, instants, zone_named
from auditlib.sessions.times import NO_OFFSET, offset_name, read_times
from tests.sessions.session_logs import imported, times_csv

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


def settled(*texts):
    evidence = TimeEvidence()
    for text in texts:
        evidence.add(pa.array([text]))
    form, reason = evidence.settle()
    return form.name, reason


def one_time(text, name):
    times = read_times(pa.array([text]), named_format(name))
    if not times.valid[0]:
        return None
    clock = EPOCH + timedelta(microseconds=int(times.clock[0]))
    return clock.isoformat(), offset_name(int(times.offset[0]))


@pytest.mark.parametrize(
    ("text", "name", "clock", "offset"),
    [
        ("2016-02-29 01:23:45", "YYYY-MM-DD", "2016-02-29T01:23:45", "none"),
        ("2016-02-29T01:23:45.678+02:00", "YYYY-MM-DD", "2016-02-29T01:23:45.678000", "+02:00"),
        ("2016-02-29T01:23:45Z", "YYYY-MM-DD", "2016-02-29T01:23:45", "+00:00"),
        ("2016/2/9", "YYYY-MM-DD", "2016-02-09T00:00:00", "none"),
        ("2016-02-29 01:23:45,1234567 -0530", "YYYY-MM-DD", "2016-02-29T01:23:45.123456", "-05:30"),
        ("29/2/2016 01:16", "D/M/YYYY", "2016-02-29T01:16:00", "none"),
        ("9.2.2016 1:16", "D/M/YYYY", "2016-02-09T01:16:00", "none"),
        ("2/9/2016 1:16 PM", "M/D/YYYY", "2016-02-09T13:16:00", "none"),
        ("2/9/2016 12:16 am", "M/D/YYYY", "2016-02-09T00:16:00", "none"),
        ("5/2/16", "D/M/YY", "2016-02-05T00:00:00", "none"),
        ("5/2/70", "M/D/YY", "1970-05-02T00:00:00", "none"),
        ("05/Feb/16 10:22 AM", "D Mon YYYY", "2016-02-05T10:22:00", "none"),
        ("5 September 2016", "D Mon YYYY", "2016-09-05T00:00:00", "none"),
        ("Feb 5, 2016 10:22", "Mon D, YYYY", "2016-02-05T10:22:00", "none"),
        ("1456708585", "epoch seconds", "2016-02-29T01:16:25", "+00:00"),
        ("1456708585.5", "epoch seconds", "2016-02-29T01:16:25.500000", "+00:00"),
        ("1456708585123", "epoch milliseconds", "2016-02-29T01:16:25.123000", "+00:00"),
        ("20160229011625", "%Y%m%d%H%M%S", "2016-02-29T01:16:25", "none"),
        ("29.02.16 (01:16)", "%d.%m.%y (%H:%M)", "2016-02-29T01:16:00", "none"),
        ("29-Feb-2016 01:16 PM +0100", "%d-%b-%Y %I:%M %p %z", "2016-02-29T13:16:00", "+01:00"),
        ("2/9/2016 1:16", "m/d/yyyy", "2016-02-09T01:16:00", "none"),
        ("2/9/2016 1:16", "DD.MM.YYYY", "2016-09-02T01:16:00", "none"),
    ],
)
def test_times_are_read_as_they_are_written(text, name, clock, offset):
    assert one_time(text, name) == (clock, offset)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2016-02-30", "YYYY-MM-DD"),
        ("2015-02-29", "YYYY-MM-DD"),
        ("2016-13-01", "YYYY-MM-DD"),
        ("2016-00-10", "YYYY-MM-DD"),
        ("2016-01-01 24:00", "YYYY-MM-DD"),
        ("2016-01-01 10:60", "YYYY-MM-DD"),
        ("2016-01-01 10:00:60", "YYYY-MM-DD"),
        ("2016-01-01 10:00 CET", "YYYY-MM-DD"),
        ("2016-01-01 10:00 and more", "YYYY-MM-DD"),
        ("0001-01-01", "YYYY-MM-DD"),
        ("2/9/2016 13:16 PM", "M/D/YYYY"),
        ("2/9/2016 0:16 PM", "M/D/YYYY"),
        ("5 Foo 2016", "D Mon YYYY"),
        ("12345", "epoch seconds"),
        ("", "YYYY-MM-DD"),
        ("2016-01-01\n", "YYYY-MM-DD"),
        ("٢٠١٦-01-01", "YYYY-MM-DD"),
    ],
)
def test_what_is_no_time_is_not_taken_for_one(text, name):
    assert one_time(text, name) is None


@given(st.datetimes(EPOCH.replace(year=1900), EPOCH.replace(year=9998)), st.integers(-14 * 60, 14 * 60))
def test_every_iso_time_survives_the_way_through_text(moment, minutes):
    times = read_times(pa.array([f"{moment.isoformat()}{offset_name(minutes)}"]), named_format("YYYY-MM-DD"))
    utc, exists, _ = instants(times, None)
    expected = (moment - timedelta(minutes=minutes) - EPOCH) // timedelta(microseconds=1)
    assert (bool(exists[0]), int(utc[0])) == (True, expected)


@given(st.text(max_size=30))
def test_no_text_breaks_the_reader(text):
    for name in ("YYYY-MM-DD", "D/M/YYYY", "D Mon YYYY", "epoch seconds"):
        one_time(text, name)


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (["5/2/2016 01:16", "29/2/2016 01:16"], "D/M/YYYY"),
        (["5/2/2016 01:16", "2/29/2016 01:16"], "M/D/YYYY"),
        (["05/02/16", "31/12/99"], "D/M/YY"),
        (["2016-02-05"], "YYYY-MM-DD"),
        (["5/5/2016", "6/6/2016"], "D/M/YYYY"),  # both readings name the same day
        (["05/Feb/16 10:22 AM"], "D Mon YYYY"),
        (["1456708585"], "epoch seconds"),
        (["29/2/2016"] * 30 + ["rubbish"], "D/M/YYYY"),
        (["29/2/2016"] * 30 + ["2016-02-29"], "D/M/YYYY"),
    ],
)
def test_the_log_settles_how_its_times_are_written(texts, name):
    assert settled(*texts)[0] == name


def test_the_reason_names_the_row_that_settled_it():
    assert settled("5/2/2016 01:16", "29/2/2016 01:16")[1] == "only D/M/YYYY reads '29/2/2016 01:16'"


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            ["5/2/2016", "6/2/2016"],
            "'5/2/2016' can be read as D/M/YYYY or as M/D/YYYY, and no row of the log settles it",
        ),
        (["1/2/16"], "no row of the log settles it"),
        (["31/12/16"], "can be read as D/M/YY or as YY/M/D"),
        (
            ["13/2/2016", "2/13/2016"],
            "contradicts itself: 1 rows can only be D/M/YYYY (such as '13/2/2016') and 1 only M/D/YYYY",
        ),
        (["rubbish", "more"], "no known way to read times such as 'rubbish'"),
        (["2016-02-01"] * 10 + ["13/2/2016"] * 9, "written in two ways: 10 rows as YYYY-MM-DD and 9 rows as D/M/YYYY"),
    ],
)
def test_times_in_doubt_are_refused(texts, words):
    with pytest.raises(LogError) as caught:
        settled(*texts)
    assert words in str(caught.value)
    assert "--time-format" in str(caught.value)


def test_a_format_that_is_told_ends_the_doubt_and_rejects_what_is_written_otherwise(tmp_path):
    manifest = imported(tmp_path, times_csv(["5/2/2016", "13/2/2016", "2/13/2016"]), time_format="M/D/YYYY")
    assert (manifest.events, manifest.rejects, manifest.time_format_reason) == (2, 1, "as told")
    assert manifest.last_time == "2016-05-02T00:00:00"


@pytest.mark.parametrize("name", ["%Q", "%d/%m", "%Y-%m-%d %Y", "Y-M", "", "%d/%m/%Y %"])
def test_a_format_that_is_none_is_refused_with_those_that_are(name):
    with pytest.raises(LogError, match=r"%Y|%d"):
        named_format(name)


@pytest.mark.parametrize("pattern", ["%d/%m/%Y (.*)+", "[%Y-%m-%d", "%Y-%m-%d.%%"])
def test_a_pattern_is_never_read_as_a_regular_expression(pattern):
    assert one_time("2016-02-05", pattern) is None


def test_rows_with_and_without_a_zone_are_refused_until_a_zone_is_named(tmp_path):
    log = times_csv(["2016-07-01 12:00:00+00:00", "2016-07-01 12:00:00"])
    with pytest.raises(LogError, match=r"1 rows state no time zone and others do .*--time-zone"):
        imported(tmp_path, log)
    manifest = imported(tmp_path, log, time_zone="Europe/Berlin")
    assert (manifest.first_time, manifest.last_time) == ("2016-07-01T10:00:00", "2016-07-01T12:00:00")
    assert manifest.zones == {"none": 1, "+00:00": 1}


def test_different_offsets_are_one_order_in_utc_and_are_counted(tmp_path):
    manifest = imported(tmp_path, times_csv(["2016-07-01 12:00:00+02:00", "2016-07-01 11:00:00+00:00"]))
    assert manifest.zones == {"+00:00": 1, "+02:00": 1}
    assert manifest.first_time == "2016-07-01T10:00:00"


def test_clocks_that_are_skipped_make_rejects_and_doubled_ones_are_counted(tmp_path):
    log = times_csv(["2016-03-27 02:30:00", "2016-10-30 02:30:00", "2016-07-01 12:00:00"])
    manifest = imported(tmp_path, log, time_zone="Europe/Berlin")
    assert manifest.reject_reasons == {"the clocks of Europe/Berlin skip this time": 1}
    assert "1 clock readings that the zone has twice, of which the earlier was taken" in manifest.notes
    assert manifest.last_time == "2016-10-30T00:30:00"  # summer time, the earlier of the two
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert [(one.source_row, one.text) for one in store.rejects()] == [(2, "2016-03-27 02:30:00")]


@pytest.mark.parametrize("name", ["Mars/Olympus", "../../etc/passwd", "a\0b", ""])
def test_an_unknown_zone_is_refused(name):
    with pytest.raises(LogError, match="IANA"):
        zone_named(name)


def test_a_zone_leaves_times_with_an_offset_alone():
    times = read_times(pa.array(["2016-07-01 12:00Z", "2016-07-01 12:00"]), named_format("YYYY-MM-DD"))
    utc, exists, twice = instants(times, zone_named("Asia/Kolkata"))
    assert exists.all()
    assert twice == 0
    assert utc[0] - utc[1] == 330 * 60_000_000
    assert datetime.fromtimestamp(utc[0] / 1e6, UTC).hour == 12


def test_times_of_pieces_come_back_in_order_with_unread_ones_marked():
    evidence = TimeEvidence()
    for piece in (["2016-01-01", "2016-01-02"], ["rubbish"], ["2016-01-02", "2016-01-02"]):
        evidence.add(pa.array(piece))
    times = evidence.times(evidence.settle()[0])
    assert times.valid.tolist() == [True, True, False, True, True]
    assert np.diff(times.clock[[0, 1, 3, 4]]).tolist() == [86_400_000_000, 0, 0]
    assert set(times.offset.tolist()) == {NO_OFFSET}


@pytest.mark.parametrize(
    ("time", "options"),
    [
        ("9999-12-31T23:59:59-05:00", {}),
        ("0001-01-01T00:00:00+05:00", {}),
        ("9999-12-31T23:59:59", {"time_zone": "America/New_York"}),
    ],
)
def test_a_time_that_no_date_can_hold_in_utc_is_a_reject_and_no_crash(tmp_path, time, options):
    offset = time[19:]
    manifest = imported(
        tmp_path, times_csv([f"2020-01-0{n}T10:00:00{offset}" for n in range(1, 9)] + [time]), **options
    )
    assert (manifest.events, manifest.rejects) == (8, 1)
