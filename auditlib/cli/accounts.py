"""Import manifests and leakage reports in words: what was read, what was odd, what the two sides share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    return ", ".join(f"{role} = {c}{' (guessed)' if role in manifest.guessed else ''}" for role, c in named.items())


def _split_lines(snapshot: Snapshot, report: LeakageReport) -> Iterator[str]:
    yield f"snapshot   {snapshot.digest}"
    yield (
        f"sides      {snapshot.training_sessions:,} training, {snapshot.held_out_sessions:,} held-out "
        f"({100 * snapshot.held_out_share:.1f} %), {snapshot.quarantined:,} quarantined; by {', '.join(report.by)}"
    )
    if snapshot.components:
        largest = f"{snapshot.largest_component:,} sessions ({100 * snapshot.largest_component_share:.1f} %)"
        yield f"groups     {snapshot.components:,}, the largest holds {largest}"
    crossing = "".join(f", {count:,} {key}s" for key, count in report.crossing_keys.items())
    yield f"crossing   {report.shared_sessions:,} sessions{crossing} stand on both sides"
    yield (
        f"shared     {_share(report, report.shared_customers)} of held-out sessions share a customer with training, "
        f"{_share(report, report.shared_assets)} an asset"
    )
    yield (
        f"repetition {_share(report, report.duplicate_sequences)} of held-out sessions went exactly the way of a "
        "training session (information, no leak)"
    )


def _share(report: LeakageReport, count: int) -> str:
    """A count of held-out sessions with its share."""
    return f"{count:,} ({100 * report.share(count):.1f} %)"


def _counts(counts: Mapping[str, int]) -> str:
    """Names with their counts."""
    return ", ".join(f"{name if name.isalnum() else repr(name)} {count:,}" for name, count in counts.items())


def _after(counts: Mapping[str, int]) -> str:
    """Counts as the tail of a sentence; nothing when there are none."""
    return f": {_counts(counts)}" if counts else ""
