"""Import manifests and leakage reports in words: what was read, what was odd, what the two sides share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from auditlib.sessions.manifest import ImportManifest
from auditlib.sessions.snapshot import Snapshot
from auditlib.sessions.split import LeakageReport


def manifest_in_words(manifest: ImportManifest) -> str:
    """A few lines on an import: counts, columns with the guessed ones marked, times, and everything unusual."""
    return "\n".join(_manifest_lines(manifest))


def split_in_words(snapshot: Snapshot, report: LeakageReport) -> str:
    """A few lines on a split: its sides, its groups, what crosses, and what is only repetition."""
    return "\n".join(_split_lines(snapshot, report))


def _manifest_lines(manifest: ImportManifest) -> Iterator[str]:
    yield f"{manifest.sessions:,} sessions, {manifest.events:,} events from {manifest.rows:,} rows of {manifest.source}"
    yield f"source     {manifest.sha256}, {manifest.format}, {manifest.encoding}"
    yield f"columns    {_columns(manifest)}"
    yield f"times      {manifest.time_format} ({manifest.time_format_reason}); zones: {_counts(manifest.zones)}"
    yield f"span       {manifest.first_time} to {manifest.last_time}"
    yield f"rejected   {manifest.rejects:,} rows{_after(manifest.reject_reasons)}"
    yield (
        f"kept       {manifest.ties:,} ties in time (file order decides), {manifest.out_of_order:,} rows out of order "
        f"(sorted in), {manifest.duplicates:,} duplicate rows, {manifest.repeats:,} repeats of event and time"
    )
    for column, markers in manifest.missing.items():
        yield f"missing    {column}: {_counts(markers)}"
    for role, sessions in manifest.changing.items():
        yield f"changing   {sessions:,} sessions name more than one {role}"
    yield from (f"note       {note}" for note in manifest.notes)


def _columns(manifest: ImportManifest) -> str:
    """Column of each role, those that nobody named marked as guessed."""
    roles = manifest.mapping.to_dict()
    named = {role: "+".join(c) if isinstance(c, list) else c for role, c in roles.items() if c}
    return ", ".join(f"{name if name.isalnum() else repr(name)} {count:,}" for name, count in counts.items())


def _after(counts: Mapping[str, Any], mark: str = ": ") -> str:
    """Counts as the tail of a sentence; nothing when there are none."""
    return f"{mark}{_counts(counts)}" if counts else ""
