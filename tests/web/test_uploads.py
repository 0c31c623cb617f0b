"""Uploaded files: kept whole, under names that lead nowhere else."""

from __future__ import annotations

import pytest

from auditlib.web.uploads import keep

NAMES = [
    "../../etc/passwd.csv", "..\\..\\x.csv", "/abs/log.csv", "C:\\log.csv", "\\\\host\\share\\log.csv", "a\x00b.csv",
    ".hidden.csv", "..", "", "---.csv", "\u202egnp.csv", "x" * 5000 + ".csv.gz", "con", "log;rm -rf.csv", "ＬＯＧ.csv",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    path = keep(tmp_path / "uploads", name, b"content")
    assert path.parent.parent == tmp_path / "uploads"
    assert path.read_bytes() == b"content"
    assert path.name.isascii()
    assert len(path.name) <= 100
    assert {one.name for one in tmp_path.iterdir()} == {"uploads"}


def test_how_a_log_is_packed_is_still_told_by_its_name(tmp_path):
    assert keep(tmp_path, "y" * 300 + ".csv.gz", b"x").name.endswith(".csv.gz")


def test_the_same_bytes_lie_once_and_other_bytes_beside_them(tmp_path):
    first, again, other = (keep(tmp_path, "log.csv", content) for content in (b"a", b"a", b"b"))
    assert first == again
    assert other != first
