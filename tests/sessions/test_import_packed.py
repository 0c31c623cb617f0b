"""Packed logs: what unpackers let through in silence is an error here."""

from __future__ import annotations

import gzip
import io
import os
import zipfile

import pytest

from auditlib.errors import LogError
from auditlib.sessions.log_file import open_log
from tests.sessions.session_logs import csv_text, gzipped, imported, write, xes_text, zipped

CSV = csv_text().encode()


def archive(*members, **flags):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members:
            packed.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "kind", "packed"),
    [
        ("a.csv", CSV, "csv", None),
        ("a.csv.gz", gzipped(CSV), "csv", "gzip"),
        ("a.gz", gzipped(xes_text({})), "xes", "gzip"),
        ("a.zip", zipped(b__csv=CSV), "csv", "zip"),
        ("a.zip", archive(("folder/", b""), ("folder/b.xes", b"<log/>")), "xes", "zip"),
        ("a.zip", archive(("b.csv", CSV), ("__MACOSX/._b.csv", b"x")), "csv", "zip"),
        ("a.bin", b"\xef\xbb\xbf  <log/>", "xes", None),
        ("a.csv", b"PAR1....", "parquet", None),
        ("log.2020.CSV", CSV, "csv", None),
        ("plain.csv.gz", CSV, "csv", None),  # named as packed, but is not
    ],
)
def test_packing_is_told_by_bytes_and_format_by_name_or_bytes(tmp_path, name, content, kind, packed):
    with open_log(write(tmp_path / name, content)) as log:
        assert (log.source, log.format, log.packed) == (name, kind, packed)


def test_a_format_that_is_named_wins(tmp_path):
    with open_log(write(tmp_path / "a.csv", CSV), "xes") as log:
        assert log.format == "xes"


def test_a_name_inside_a_zip_is_only_a_name(tmp_path):
    manifest = imported(tmp_path, archive(("../../etc/evil.csv", CSV)), "log.zip")
    assert manifest.events == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.zip", "store.duckdb"]


def test_gzip_members_that_follow_each_other_are_one_log(tmp_path):
    half = CSV.index(b"\n") + 1
    assert imported(tmp_path, gzip.compress(CSV[:half]) + gzip.compress(CSV[half:]), "log.csv.gz").events == 5


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_every_cut_of_a_gzip_is_noticed(tmp_path, cut):
    with pytest.raises(LogError):
        imported(tmp_path, gzipped(CSV)[:-cut], "log.csv.gz")


def test_an_encrypted_member_is_refused(tmp_path):
    content = bytearray(zipped(log__csv=CSV))
    content[6] |= 1  # the flag in the local header, and in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    with pytest.raises(LogError, match="is encrypted"):
        imported(tmp_path, bytes(content), "log.zip")


@pytest.mark.parametrize(
    ("name", "pack"), [("bomb.csv.gz", gzipped), ("bomb.zip", lambda content: zipped(log__csv=content))]
)
@pytest.mark.parametrize("filling", [b"\n", b"\0", b"1,a,2020-01-01,b,c\n"])
def test_a_bomb_is_refused_before_it_goes_off(tmp_path, name, pack, filling):
    content = pack(CSV + filling * (20_000_000 // len(filling)))
    with pytest.raises(LogError, match=r"decompression bomb|a line of more than|blank lines in a row"):
        imported(tmp_path, content, name)


def test_a_log_that_shrinks_well_is_no_bomb(tmp_path):
    rows = (f"INC{n},New,2020-01-01 10:00:00,Ann,srv1" for n in range(30_000))
    content = gzipped(csv_text(rows))
    assert imported(tmp_path, content, "log.csv.gz").events == 30_000


def test_the_stream_starts_anew_each_time_and_says_how_far_it_is(tmp_path):
    content = os.urandom(400_000).hex().encode()
    with open_log(write(tmp_path / "a.csv", content)) as log:
        for _ in range(2):
            with log.stream() as stream:
                assert stream.read(10) == content[:10]
                assert 0 < log.position() < log.size
                assert len(stream.read()) == len(content) - 10
            assert log.position() == log.size
