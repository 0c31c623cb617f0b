"""Revisions with their runs: what stands on the board, in which order, and what has changed since it was measured."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from auditlib.files import sha256_of
from auditlib.runs.folder import Run

_ORDER = {"refused": 0, "unreadable": 1, "not audited": 2, "approved": 3}


class Registered(Protocol):
    """A revision that the store knows."""

    @property
    def name(self) -> str:
        """Its name, which others may share."""

    @property
    def folder(self) -> str:
        """Where its files are."""

    @property
    def digest(self) -> str:
        """What its files were when it was registered."""


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that cannot be read, by what its manifest still says of it. Nothing that it measured counts."""

    id: str
    revision: str
    name: str
    created: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One revision (by digest) and its runs, newest first. `folder` is None when only a run still tells of it.

    `store_read` is False while no store says which folders there are: then nothing is known of the folder.
    """

    name: str
    digest: str
    folder: Path | None
    runs: tuple[Run, ...]
    damaged: tuple[DamagedRun, ...] = ()
    store_read: bool = True

    @property
    def run(self) -> Run | None:
        """The run that speaks for the revision: the newest that is complete, or that found a failure.

        A later run of a single audit that found nothing says too little to take the place of a complete one.
        """
        # A failure counts wherever it was found; silence counts only from a complete run.
        telling = (run for run in self.runs if complete(run) or run.report["failures"])
        return next(telling, self.runs[0] if self.runs else None)

    @property
    def lost(self) -> DamagedRun | None:
        """The newest run that cannot be read, if it is newer than the one that speaks: it may have said otherwise."""
        run, newest = self.run, max(self.damaged, key=lambda one: one.created, default=None)
        return newest if newest and (run is None or newest.created > run.manifest["created"]) else None

    @property
    def standing(self) -> str:
        """`refused`, `approved`, `unreadable` or `not audited`."""
        run = self.run
        # An approval speaks only for what no later run can have refused.
        if self.lost and (run is None or run.approved):
            return "unreadable"
        if run is None:
            return "not audited"
        return "approved" if run.approved else "refused"


def complete(run: Run) -> bool:
    """Whether every audit that a release needs was asked for."""
    return set(run.report["audits"]) <= set(run.manifest["audits"])


def entries(
    registered: Iterable[Registered] | None, runs: Iterable[Run], damaged: Iterable[DamagedRun] = ()
) -> tuple[Entry, ...]:
    """Every revision registered or audited, approved ones last and refused ones first; newest first in each standing.

    `registered` is None while the store cannot be read. `runs` are newest first.
    """
    by_digest: dict[str, list[Run]] = {}
    lost: dict[str, list[DamagedRun]] = {}
    for run in runs:
        by_digest.setdefault(run.revision, []).append(run)
    for one in damaged:
        lost.setdefault(one.revision, []).append(one)
    known = {one.digest: one for one in registered or ()}
    names = {digest: found[0].name for digest, found in lost.items()}
    names |= {digest: str(found[0].manifest["revision"]["name"]) for digest, found in by_digest.items()}
    names |= {digest: one.name for digest, one in known.items()}
    folders = {digest: Path(one.folder) for digest, one in known.items()}
    found = [
        Entry(
            name,
            digest,
            folders.get(digest),
            tuple(by_digest.get(digest, ())),
            tuple(lost.get(digest, ())),
            store_read=registered is not None,
        )
        for digest, name in names.items()
    ]
    # Both sorts are stable: newest first within each standing.
    found.sort(key=_newest, reverse=True)
    return tuple(sorted(found, key=lambda entry: _ORDER[entry.standing]))


def _newest(entry: Entry) -> str:
    """When the run was made that the revision's standing goes by, as text that sorts; empty without any."""
    if entry.lost:
        return entry.lost.created
    return str(entry.run.manifest["created"]) if entry.run else ""


def stale(entry: Entry, run: Run, latest_snapshot: str | None, policy: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What has changed since `run`, in words; empty when its numbers still describe what is there.

    `policy` is the policy document in force, None when it is not known.
    """
    checks = (
        (entry.store_read and _files_changed(entry), "the revision's files have changed or are gone"),
        (
            latest_snapshot is not None and run.manifest["snapshot"]["digest"] != latest_snapshot,
            "a newer held-out snapshot has been frozen",
        ),
        (_elsewhere(run.manifest["device"]), "it was measured on another kind of machine"),
        (policy is not None and run.manifest["policy"]["document"] != policy, "the policy file has changed"),
    )
    return tuple(words for changed, words in checks if changed)


def _files_changed(entry: Entry) -> bool:
    """Whether the folder no longer holds the revision; its digest is that of the manifest, which names all files."""
    manifest = entry.folder / "revision.json" if entry.folder else None
    return manifest is None or not manifest.is_file() or sha256_of(manifest) != entry.digest


def _elsewhere(device: Mapping[str, Any]) -> bool:
    """Whether the run's device differs in kind from this machine, as far as can be told without loading torch."""
    return (device.get("machine"), device.get("system")) != (platform.machine(), platform.system())
