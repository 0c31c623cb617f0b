"""Files that appear only when they are whole."""

from __future__ import annotations

import pytest

from auditlib.files import sha256_of, whole_folder, write_whole


class StopError(Exception):
    pass


def test_a_folder_appears_with_everything_in_it(tmp_path):
    with whole_folder(tmp_path / "deep" / "target") as aside:
        assert not (tmp_path / "deep" / "target").exists()
        (aside / "a").write_text("1")
    assert (tmp_path / "deep" / "target" / "a").read_text() == "1"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["target"]


def test_a_folder_whose_filling_failed_leaves_nothing(tmp_path):
    with pytest.raises(StopError), whole_folder(tmp_path / "target") as aside:
        (aside / "a").write_text("1")
        raise StopError
    assert list(tmp_path.iterdir()) == []


def test_a_taken_name_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "target").mkdir()
    with pytest.raises(FileExistsError), whole_folder(tmp_path / "target"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["target"]


def test_a_file_is_replaced_in_one_step_and_keeps_its_mode(tmp_path):
    path = tmp_path / "key"
    write_whole(path, b"old", mode=0o600)
    write_whole(path, b"new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_the_digest_is_sha256_of_the_bytes(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_of(tmp_path / "f") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
