"""Moments on the viewer's clock."""

from __future__ import annotations

import pytest

from auditlib.web.clock import at


@pytest.mark.parametrize(
    ("moment", "zone", "shown"),
    [
        ("2026-12-01T01:46:10.723+00:00", "Europe/Berlin", "2026-12-01 02:46 CET"),
        ("2026-07-01T01:46:10+00:00", "Europe/Berlin", "2026-07-01 03:46 CEST"),
        ("2026-12-01T01:46:10+00:00", None, "2026-12-01 01:46 UTC"),
        ("2026-12-01T01:46:10", None, "2026-12-01 01:46 UTC"),
        ("2026-12-01T01:46:10+00:00", "../../etc/passwd", "2026-12-01 01:46 UTC"),
        ("2026-12-01T01:46:10+00:00", "Nowhere/Land", "2026-12-01 01:46 UTC"),
        ("2026-12-01T23:30:00+00:00", "Asia/Kolkata", "2026-12-02 05:00 IST"),
        ("![x](http://evil.example)", "Europe/Berlin", "at an unknown time"),
    ],
)
def test_a_moment_is_shown_on_the_clock_of_the_viewer_with_the_name_of_the_zone(moment, zone, shown):
    assert at(moment, zone) == shown
