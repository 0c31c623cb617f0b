"""An import is there as a whole or not at all, whatever ends it."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from auditlib.errors import CancelledError, LogError, PrefixgateError, StoreError
from auditlib.sessions.importers import import_log
from auditlib.sessions.split import split
from auditlib.sessions.store import SessionStore
from tests.sessions.session_logs import HEADER, csv_text, gzipped, imported, write, xes_event, xes_text, zipped

ROOT = Path(__file__).resolve().parents[2]
MANY = csv_text(f"M{n // 5},E{n % 5},2020-01-01 10:00:00,Ann,srv{n % 9}" for n in range(30_000))
WHOLE_XES = xes_text({f"X{n}": [xes_event("a", "2020-01-01T00:00:00Z")] * 3 for n in range(2000)})
PACKED_XES = gzipped(WHOLE_XES)
ZIP = zipped(log__csv=MANY.encode())


def content(path):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(path.iterdir()) if p.suffix != ".log"}


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("cut.xes.gz", PACKED_XES[: len(PACKED_XES) // 2], "is truncated: it ends in the middle"),
        ("cut.xes.gz", PACKED_XES[:-4], "is truncated: it ends in the middle"),
        ("cut.csv.gz", gzipped(MANY)[:-1], "is truncated"),
        ("bad.csv.gz", flipped(gzipped(MANY), -6), "is damaged: CRC check failed"),
        ("bad.csv.gz", gzipped(MANY) + b"trailing", "is damaged"),
        ("cut.xes", WHOLE_XES[:-20], "is truncated: the XML ends at line"),
        ("cut.zip", ZIP[: len(ZIP) // 2], "is damaged"),
        ("bad.zip", flipped(ZIP, len(ZIP) // 2), "is damaged"),
        ("cut.csv", MANY + 'M1,"E', "a quoted value never ends"),
        ("bad.csv", MANY.encode() + b"M1,\xff,2020-01-01,a,b\n", "is not utf-8 text near line"),
        ("zones.csv", MANY + "M1,E,2020-01-01 10:00:00Z,a,b\n", "state no time zone"),
        ("same.csv", csv_text(["INC1,New,2020-01-01,Ann,srv"]), "1 sessions of this log are in the store already"),
    ],
)
def test_a_log_that_fails_leaves_the_store_byte_for_byte_as_it_was(tmp_path, name, data, words):
    imported(tmp_path, csv_text(), "first.csv")
    (tmp_path / "first.csv").unlink()
    log = write(tmp_path / name, data)
    before = content(tmp_path)
    with pytest.raises((LogError, StoreError)) as caught:
        import_log(log, tmp_path / "store.duckdb")
    assert words in str(caught.value)
    assert content(tmp_path) == before


def test_a_later_import_adds_to_the_store_and_can_be_undone(tmp_path):
    imported(tmp_path, csv_text(), "first.csv")
    second = imported(tmp_path, MANY, "second.csv", mapping={"asset": ""})
    assert second.import_id == 2
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        assert store.summary().sessions == 2 + 6000
        assert [one.import_id for one in store.imports()] == [1, 2]
        store.undo_import(2)
        assert store.summary().sessions == 2
        assert [one.import_id for one in store.imports()] == [1]
        with pytest.raises(StoreError, match="no import 2 to undo; imports in the store: 1"):
            store.undo_import(2)
    assert imported(tmp_path, MANY, "second.csv").import_id == 3  # undone numbers are not used again


def test_the_same_bytes_are_not_imported_twice(tmp_path):
    imported(tmp_path, csv_text(), "first.csv")
    with pytest.raises(StoreError, match="in the store already \\(import 1\\)"):
        imported(tmp_path, csv_text(), "renamed.csv")


def test_a_cancelled_import_leaves_nothing(tmp_path):
    def cancel(done, total, note):
        raise CancelledError(f"stopped at {done} of {total}: {note}")

    with pytest.raises(CancelledError):
        imported(tmp_path, MANY, progress=cancel)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_progress_counts_bytes_up_to_the_size_of_the_log(tmp_path):
    seen = []
    manifest = imported(tmp_path, MANY, progress=lambda done, total, note: seen.append((done, total, note)))
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {total for _, total, _ in seen} == {manifest.size}
    assert seen[-1] == (manifest.size, manifest.size, "writing the store")


def test_a_log_that_changes_while_it_is_read_is_refused(tmp_path):
    def rewrite(done, total, note):
        write(tmp_path / "log.csv", MANY.replace("E0", "F0"))

    with pytest.raises(LogError, match="changed while it was read"):
        imported(tmp_path, MANY, progress=rewrite)


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path):
    imported(tmp_path, csv_text(), "first.csv")
    log = write(tmp_path / "many.csv", MANY)
    before = content(tmp_path)
    code = (
        "import resource, sys\n"
        "from auditlib.sessions.importers import import_log\n"
        "from auditlib.errors import StoreError\n"
        "from pathlib import Path\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)\n"
        "try:\n    import_log(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "except StoreError as error:\n    print(error)\n"
    )
    for limit in (100_000, 1_500_000):  # the temporary rows do not fit; the store's copy does not fit
        command = [sys.executable, "-c", code, str(log), str(tmp_path / "store.duckdb"), str(limit)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "rows cannot be kept" in done.stdout or "left as it was" in done.stdout
        assert content(tmp_path) == before


def test_a_folder_that_is_missing_or_may_not_be_written_is_named(tmp_path):
    log = write(tmp_path / "log.csv", csv_text())
    with pytest.raises(StoreError, match="cannot be opened"):
        import_log(log, tmp_path / "nowhere" / "store.duckdb")


@pytest.mark.slow
def test_an_import_that_is_killed_at_any_moment_leaves_the_old_store_or_the_new_one(tmp_path):
    imported(tmp_path, csv_text(), "first.csv")
    old = (tmp_path / "store.duckdb").read_bytes()
    log = write(tmp_path / "many.csv", MANY)
    code = (
        "import sys\nfrom pathlib import Path\nfrom auditlib.sessions.importers import import_log\n"
        "print('ready', flush=True)\nimport_log(Path(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    chance = random.Random(0)
    for _ in range(10):
        (tmp_path / "store.duckdb").write_bytes(old)
        command = [sys.executable, "-c", code, str(log), str(tmp_path / "store.duckdb")]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as work:
            work.stdout.readline()
            time.sleep(chance.random() * 1.5)
            os.kill(work.pid, signal.SIGKILL)
        with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
            assert store.summary().sessions in (2, 6002)
            split(store, held_out=0.5)  # the next writer sweeps up what was left
        assert sorted(path.name for path in tmp_path.iterdir()) == ["first.csv", "many.csv", "store.duckdb"]


def mutated(chance, data):
    for _ in range(chance.randrange(1, 5)):
        place, other = sorted(chance.randrange(len(data) + 1) for _ in range(2))
        noise = bytes(chance.randrange(256) for _ in range(chance.randrange(12)))
        odd = chance.choice(
            [b'"', b"\0", b"\n", b"\r", b",", b"\xff\xfe", b"<", b"&", b"]]>", b"\xed\xa0\x80", b"A" * 5000, noise]
        )
        data = (
            chance.choice(
                [
                    data[:place],
                    data[:place] + odd + data[place:],
                    data[:place] + data[other:],
                    data[:other] + data[place:],
                ]
            )
            or b"x"
        )
    return data


SMALL_CSV = csv_text(f"C{n // 3},E{n % 4},2020-01-{n % 28 + 1:02d} 10:00:00,Ann,s" for n in range(12)).encode()
SMALL_XES = xes_text({f"X{n}": [xes_event("a", "2020-01-01T00:00:00Z")] * 2 for n in range(3)}).encode()


@pytest.mark.parametrize("ending", [".csv", ".xes", ".csv.gz", ".xes.gz", ".zip"])
def test_no_malformed_log_raises_anything_but_our_own_errors(tmp_path, ending):
    """2,000 seeded inputs over all endings; one in ten that can be read goes all the way into a store."""
    plain = SMALL_XES if "xes" in ending else SMALL_CSV
    refused = 0
    for seed in range(400):
        chance = random.Random(f"{ending}{seed}")
        damaged_inside = chance.random() < 0.5
        data = mutated(chance, plain) if damaged_inside else plain
        packed = zipped(log__csv=data) if ending == ".zip" else gzipped(data) if ending.endswith("gz") else data
        log = write(tmp_path / f"log{ending}", packed if damaged_inside else mutated(chance, packed))
        # Without its folder the store is refused only after the whole log was read, which is the quicker test.
        store = tmp_path / "store.duckdb" if seed % 10 == 0 else tmp_path / "nowhere" / "store.duckdb"
        try:
            manifest = import_log(log, store, missing=("?", ""))
        except PrefixgateError as error:
            refused += isinstance(error, LogError) and not store.exists() and len(str(error)) > 30
        else:
            assert manifest.rows == manifest.events + manifest.rejects
            store.unlink()
    assert refused > 100


def test_every_row_is_an_event_or_a_reject(tmp_path):
    rows = [
        f"S{n % 7},{'?' if n % 5 == 0 else 'go'},{'x' if n % 11 == 0 else '2020-01-01'},Ann{',' * (n % 2)},b"
        for n in range(500)
    ]
    manifest = imported(tmp_path, csv_text(rows))
    assert (manifest.rows, manifest.events + manifest.rejects) == (500, 500)
    assert sum(manifest.reject_reasons.values()) == manifest.rejects
    with SessionStore.open(tmp_path / "store.duckdb") as store:
        assert len(store.rejects(limit=10_000)) == manifest.rejects
        assert [one.source_row for one in store.rejects(1, 3, 2)] == sorted(one.source_row for one in store.rejects())[
            2:5
        ]


def test_a_million_rows_would_fit_into_a_gigabyte(tmp_path):
    """300,000 events in a process of its own: its peak stays far below what a straight line to 1 GB allows."""
    log = tmp_path / "log.csv"
    with log.open("w") as file:
        file.write(HEADER + "\n")
        file.writelines(
            f"INC{n // 10},E{n % 7},2020-01-01 {n % 24:02d}:{n % 60:02d}:{n % 59:02d},C{n % 999},s\n"
            for n in range(300_000)
        )
    code = (
        "import resource, sys\nfrom pathlib import Path\nfrom auditlib.sessions.importers import import_log\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(import_log(Path(sys.argv[1]), Path(sys.argv[2])).events)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", code, str(log), str(tmp_path / "store.duckdb")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    events, kilobytes = map(int, done.stdout.split())
    assert events == 300_000
    assert kilobytes < 400_000
