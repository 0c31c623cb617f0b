"""Writing a store: a whole new file takes the old one's place, and writers wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditlib.errors import StoreError
from auditlib.sessions.store import SessionStore
from auditlib.sessions.store_file import attach, rewriting
from tests.sessions.session_logs import csv_text, imported

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def path(tmp_path):
    imported(tmp_path, csv_text())
    (tmp_path / "log.csv").unlink()
    return tmp_path / "store.duckdb"


def names(path):
    return sorted(one.name for one in path.parent.iterdir())


def test_an_error_inside_a_change_leaves_the_bytes_and_no_leftovers(path):
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), rewriting(path) as connection:
        connection.execute("delete from store.main.events")
        1 / 0  # noqa: B018
    assert path.read_bytes() == before
    assert names(path) == ["store.duckdb"]


def test_an_error_of_the_database_is_ours_and_leaves_the_bytes(path):
    before = path.read_bytes()
    with pytest.raises(StoreError, match="left as it was"), rewriting(path) as connection:
        connection.execute("delete from store.main.events")
        connection.execute("insert into store.main.events values ('wrong')")
    assert path.read_bytes() == before


def test_a_change_is_another_file_of_the_same_rights(path):
    path.chmod(0o640)
    old = path.stat()
    with rewriting(path) as connection:
        connection.execute("delete from store.main.events")
    assert path.stat().st_ino != old.st_ino
    assert path.stat().st_mode == old.st_mode
    assert names(path) == ["store.duckdb"]
    with SessionStore.open(path) as store:
        assert store.summary().events == 0


def test_many_writers_at_once_lose_nothing(path):
    code = (
        "import sys\nfrom auditlib.sessions.store import SessionStore\n"
        "for number in range(3):\n"
        "    with SessionStore.open(sys.argv[1], read_only=False) as store:\n"
        "        store.add_revision(f'{sys.argv[2]}-{number}', 'folder', 'sha256:0')\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(n)], cwd=ROOT) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    with SessionStore.open(path) as store:
        assert len(store.revisions()) == 9


def test_leftovers_of_a_killed_writer_are_swept_and_nothing_else(path):
    for name in (".store.duckdb.new-abc", ".other.duckdb.new-abc", "store.duckdb.new-abc"):
        (path.parent / name).mkdir()
        (path.parent / name / "half").write_bytes(b"x")
    with SessionStore.open(path, read_only=False) as store:
        store.add_revision("a", "b", "c")
    assert names(path) == [".other.duckdb.new-abc", "store.duckdb", "store.duckdb.new-abc"]


def test_a_name_with_wildcards_sweeps_only_its_own(tmp_path):
    (tmp_path / ".sXre.new-abc").mkdir()
    SessionStore.create(tmp_path / "s[X]re").close()
    SessionStore.create(tmp_path / "s*re").close()
    assert (tmp_path / ".sXre.new-abc").exists()


def test_a_store_can_be_a_link_and_the_link_is_replaced_not_its_target(path, tmp_path):
    link = tmp_path / "link.duckdb"
    link.symlink_to(path)
    before = path.read_bytes()
    with SessionStore.open(link, read_only=False) as store:
        store.add_revision("a", "b", "c")
        assert len(store.revisions()) == 1
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(path):
    path.parent.chmod(0o500)
    try:
        with pytest.raises(StoreError, match="left as it was"), SessionStore.open(path, read_only=False) as store:
            store.add_revision("a", "b", "c")
    finally:
        path.parent.chmod(0o700)


def test_a_reader_that_is_open_does_not_stop_a_writer_nor_see_it(path):
    reader = attach(path)
    try:
        with rewriting(path) as connection:
            connection.execute("delete from store.main.events")
        assert reader.execute("select count(*) from store.main.events").fetchall() == [(5,)]
    finally:
        reader.close()


def test_reading_changes_no_byte_and_leaves_no_file(path):
    before = path.read_bytes()
    with SessionStore.open(path) as store:
        store.summary()
        store.transitions()
    assert path.read_bytes() == before
    assert names(path) == ["store.duckdb"]
