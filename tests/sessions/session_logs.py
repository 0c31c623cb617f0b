"""Small logs for tests of importing and splitting, written as real exporters write them."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from auditlib.sessions.importers import import_log
from auditlib.sessions.manifest import ImportManifest
from auditlib.sessions.snapshot import Terms
from auditlib.sessions.store import SessionStore

HEADER = "number,incident_state,sys_updated_at,caller_id,cmdb_ci"
TICKETS = (
    "INC1,New,2020-01-01 10:00:00,Ann,srv1",
    "INC1,Active,2020-01-01 10:05:00,Ann,srv1",
    "INC2,New,2020-01-01 11:00:00,Bob,?",
    "INC1,Closed,2020-01-02 09:00:00,Ann,srv1",
    "INC2,Closed,2020-01-03 09:00:00,Bob,?",
)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_text(rows: Iterable[str] = TICKETS, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def times_csv(times: Sequence[str]) -> str:
    """A log of one event per session, with these times."""
    return csv_text((f"s{n};go;{time}" for n, time in enumerate(times)), "case id;activity;timestamp")


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


def gzipped(text: str | bytes) -> bytes:
    return gzip.compress(text if isinstance(text, bytes) else text.encode())


def xes_event(name: str, time: str, **more: str) -> str:
    strings = "".join(f'<string key="{key}" value="{value}"/>' for key, value in more.items())
    date = f'<date key="time:timestamp" value="{time}"/>'
    return f'<event><string key="concept:name" value="{name}"/>{date}{strings}</event>'


def xes_text(traces: dict[str, Sequence[str]], extra: str = "") -> str:
    inside = "".join(
        f'<trace>\n<string key="concept:name" value="{name}"/>\n' + "\n".join(events) + "\n</trace>\n"
        for name, events in traces.items()
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{extra}<log xes.version="1.0">\n{inside}</log>\n'


def imported(tmp_path: Path, content: str | bytes, name: str = "log.csv", **options: object) -> ImportManifest:
    """The manifest of an import into tmp_path/store.duckdb."""
    return import_log(write(tmp_path / name, content), tmp_path / "store.duckdb", **options)  # type: ignore[arg-type]


def sequences(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    """Events by session of tmp_path/store.duckdb, through a frozen snapshot of everything."""
    with SessionStore.open(tmp_path / "store.duckdb", read_only=False) as store:
        everything = {row.session_id: "held-out" for row in store.keyed_sessions()}
        snapshot = store.freeze(Terms(("session",), 0.5, 0), everything)  # type: ignore[arg-type]
        return {session.session_id: session.events for session in store.sessions(snapshot)}


def ticket_store(tmp_path: Path, sessions: Iterable[tuple[str, str, str]], name: str = "tickets.csv") -> Path:
    """A store of two-event sessions, given as (id, customers joined with +, assets joined with +), an hour apart."""
    rows = []
    for number, (session, customers, assets) in enumerate(sessions):
        for step, (customer, asset) in enumerate(_pairs(customers.split("+"), assets.split("+"))):
            day, hour = divmod(number, 24)
            event, time = "close" if step else "open", f"2020-02-{day + 1:02d} {hour:02d}:{step:02d}:00"
            rows.append(f"{session},{event},{time},{customer},{asset}")
    import_log(write(tmp_path / name, csv_text(rows)), tmp_path / "store.duckdb")
    return tmp_path / "store.duckdb"


def _pairs(customers: list[str], assets: list[str]) -> list[tuple[str, str]]:
    length = max(2, len(customers), len(assets))
    return [(customers[min(n, len(customers) - 1)], assets[min(n, len(assets) - 1)]) for n in range(length)]
