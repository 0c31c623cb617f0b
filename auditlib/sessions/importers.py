"""An event log into a session store: read whole, cleaned, counted, and only then written, all or nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from auditlib.errors import LogError
from auditlib.progress import Progress, silent
from auditlib.sessions import store_import, store_stage
from auditlib.sessions.columns import resolve
from auditlib.sessions.csv_log import CsvLog
from auditlib.sessions.log_file import LogFile, open_log
from auditlib.sessions.log_rows import LogHead, LogReader
from auditlib.sessions.manifest import ColumnMapping, ImportManifest
from auditlib.sessions.parquet_log import ParquetLog
from auditlib.sessions.spool import Spool
from auditlib.sessions.staging import JOINER, MISSING, Staging, spool_schema, twins
from auditlib.sessions.store_file import rewriting
from auditlib.sessions.store_stage import REJECTED
from auditlib.sessions.time_formats import named_format
from auditlib.sessions.time_guess import zone_named
from auditlib.sessions.timing import Timing, stated_zones, timed_tables
from auditlib.sessions.xes_log import XesLog

_MANY_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class LogPreview:
    """The start of a log and what its columns seem to be; `mapping` is None when `problem` says why."""

    source: str
    format: str
    head: LogHead
    mapping: ColumnMapping | None
    guessed: tuple[str, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Opened:
    """A log that is ready to be read through."""

    file: LogFile
    reader: LogReader
    head: LogHead
    mapping: ColumnMapping
    guessed: tuple[str, ...]


def preview(
    log: Path,
    *,
    format: str | None = None,  # noqa: A002
    mapping: ColumnMapping | Mapping[str, Any] | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    rows: int = 20,
) -> LogPreview:
    """Columns, first rows and guessed mapping of a log, without importing it. LogError when it cannot be read."""
    with open_log(log, format) as file:
        head = _reader(file, encoding, delimiter).head(rows)
        try:
            chosen, guessed = resolve(head.columns, mapping, complete=head.complete)
        except LogError as error:
            return LogPreview(file.source, file.format, head, None, (), str(error))
        return LogPreview(file.source, file.format, head, chosen, guessed)


def import_log(
    log: Path,
    store: Path,
    *,
    format: str | None = None,  # noqa: A002
    mapping: ColumnMapping | Mapping[str, Any] | None = None,
    time_format: str | None = None,
    time_zone: str | None = None,
    encoding: str | None = None,
    delimiter: str | None = None,
    missing: Sequence[str] = MISSING,
    progress: Progress = silent,
) -> ImportManifest:
    """The manifest of an import of `log` into `store`, which is made when it is not there.

    `mapping` names columns for roles (see columns.resolve); what it leaves out is guessed. Rows that cannot be events
    are kept as rejects. LogError when the log is truncated, damaged or ambiguous or has no usable row; StoreError when
    the store cannot take it. Either leaves the store's bytes as they were.
    """
    zone = zone_named(time_zone) if time_zone else None
    told = named_format(time_format) if time_format else None
    with open_log(Path(log), format) as file, tempfile.TemporaryDirectory(prefix="prefixgate-import-") as folder:
        opened = _open(file, mapping, encoding, delimiter)
        rows = Spool(Path(folder) / "rows.arrow", spool_schema(opened.mapping))
        with rows, Spool(Path(folder) / "rejects.arrow", REJECTED) as rejects:
            staging = Staging(opened.mapping, rows, rejects, missing, told)
            _read(opened, staging, progress)
            form, reason = staging.evidence.settle()
            timing = Timing(form, reason, zone, staging.evidence.times(form))
            return _write(opened, _Staged(rows, rejects, staging, timing), Path(store), progress)


@dataclass(frozen=True, slots=True)
class _Staged:
    """A log that was read through, with the way its times are to be read."""

    rows: Spool
    rejects: Spool
    staging: Staging
    timing: Timing


def _open(
    file: LogFile,
    mapping: ColumnMapping | Mapping[str, Any] | None,
    encoding: str | None,
    delimiter: str | None,
) -> _Opened:
    reader = _reader(file, encoding, delimiter)
    head = reader.head(1)
    chosen, guessed = resolve(head.columns, mapping, complete=head.complete)
    return _Opened(file, reader, head, chosen, guessed)


def _reader(file: LogFile, encoding: str | None, delimiter: str | None) -> LogReader:
    if file.format == "csv":
        return CsvLog(file, encoding, delimiter)
    if encoding or delimiter:
        raise LogError(f"{file.source} is {file.format}, which says itself how it is written; leave out the encoding")
    return XesLog(file) if file.format == "xes" else ParquetLog(file)


def _read(opened: _Opened, staging: Staging, progress: Progress) -> None:
    """Read the whole log; LogError when it proves damaged, or no row of it can be an event."""
    for piece in opened.reader.pieces(opened.mapping.columns(), staging.tally.remarks):
        staging.add(piece)
        progress(min(opened.file.position(), opened.file.size), opened.file.size, f"{staging.tally.rows} rows read")
    opened.file.digest_again()  # the manifest names the bytes that were read, not those that were there before
    _refuse_nothing(opened, staging, staging.tally.rows - sum(staging.tally.rejects.values()))
    for name in (opened.mapping.customer, opened.mapping.asset, *opened.mapping.attributes):
        absent = sum(staging.tally.missing.get(name or "", {}).values())
        if name and name not in opened.head.columns and absent == staging.tally.rows:
            raise LogError(f"no event of {opened.file.source} has {name!r}; check the name, or leave it out")


def _refuse_nothing(opened: _Opened, staging: Staging, usable: int) -> None:
    if usable:
        return
    reasons = "; ".join(f"{count} times: {reason}" for reason, count in staging.tally.rejects.items())
    raise LogError(
        f"{opened.file.source} has no usable event in {staging.tally.rows} rows ({reasons or 'there are none'}); "
        "check which columns hold session, event and time, and how times are written"
    )


def _write(opened: _Opened, staged: _Staged, store: Path, progress: Progress) -> ImportManifest:
    """Put the staged rows into the store, or leave it as it was."""
    zones = stated_zones(staged.timing.times, staged.timing.zone)
    progress(opened.file.size, opened.file.size, "writing the store")
    attributes = opened.mapping.attributes
    with rewriting(store) as connection:
        store_import.refuse_known_source(connection, opened.file.sha256)
        tables = timed_tables(staged.rows, staged.timing, staged.staging)
        store_stage.stage_events(connection, tables, attributes)
        store_stage.stage_rejects(connection, map(_table, staged.rejects.batches()))
        # Again, now that the times were read as well.
        _refuse_nothing(opened, staged.staging, staged.staging.tally.rows - sum(staged.staging.tally.rejects.values()))
        store_stage.refuse_known_sessions(connection)
        import_id = store_import.next_import_id(connection)
        counts = store_import.settle(connection, import_id, attributes)
        manifest = _manifest(opened, staged, counts, zones, import_id)
        store_import.record(connection, manifest)
    return manifest


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.table(batch)


def _manifest(
    opened: _Opened, staged: _Staged, counts: store_import.Counts, zones: dict[str, int], import_id: int
) -> ImportManifest:
    tally = staged.staging.tally
    return ImportManifest(
        import_id=import_id,
        imported=datetime.now(UTC).isoformat(timespec="seconds"),
        source=opened.file.source,
        sha256=opened.file.sha256,
        size=opened.file.size,
        format=opened.file.format,
        encoding=opened.head.encoding,
        delimiter=opened.head.delimiter,
        mapping=opened.mapping,
        guessed=opened.guessed,
        time_format=staged.timing.form.name,
        time_format_reason=staged.timing.reason,
        time_zone=None if staged.timing.zone is None else str(staged.timing.zone),
        rows=tally.rows,
        sessions=counts.sessions,
        events=counts.events,
        rejects=sum(tally.rejects.values()),
        rejected_sessions=counts.rejected_sessions,
        first_time=counts.first_time.isoformat(),
        last_time=counts.last_time.isoformat(),
        reject_reasons=dict(sorted(tally.rejects.items(), key=lambda item: -item[1])),
        missing=tally.missing,
        zones=zones,
        duplicates=counts.duplicates,
        repeats=counts.repeats,
        ties=counts.ties,
        out_of_order=counts.out_of_order,
        changing=counts.changing,
        notes=_notes(opened, staged.staging),
    )


def _notes(opened: _Opened, staging: Staging) -> tuple[str, ...]:
    """What a reader should look at, in words."""
    tally = staging.tally
    notes = [f"{count} {what}" for what, count in tally.remarks.counts.items()]
    notes += [f"events that differ only in case or spaces: {group}" for group in twins(tally.names)]
    if len(tally.names) > _MANY_EVENTS:
        notes.append(f"{len(tally.names)} or more different events: is the event in the right column?")
    lifecycle = "lifecycle:transition"
    if lifecycle in opened.head.columns and lifecycle not in opened.mapping.event:
        both = JOINER.join((*opened.mapping.event, lifecycle))
        notes.append(f"the log has {lifecycle}, which is not part of the event; name it with --event {both!r}")
    return tuple(notes)
