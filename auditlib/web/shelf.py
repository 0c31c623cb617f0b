"""Artifacts of a run and the evidence that lies beside them. No Streamlit here, and nothing is loaded: names only.

Layout: each folder below the artifacts folder that holds an `artifact.json` is an artifact, and each JSON file beside
the folders that is an evidence document counts for the artifact that it names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from auditlib.errors import PrefixgateError
from auditlib.files import sha256_of
from auditlib.release.evidence import EvidenceFile, read_evidence

DOCUMENT = "artifact.json"
_LARGEST = 32 << 20


@dataclass(frozen=True, slots=True)
class Shelved:
    """An artifact's folder and digest, and of which run and revision it was packaged, as the folder itself says.

    `revision` is a name for people, empty where the folder says none.
    """

    folder: Path
    digest: str
    run: str
    revision: str = ""


@dataclass(frozen=True, slots=True)
class Bound:
    """An artifact with the evidence on it that a verdict names, or will name."""

    artifact: Shelved
    evidence: Mapping[Path, EvidenceFile]


def artifacts(root: Path) -> tuple[Shelved, ...]:
    """Every artifact below `root`, by name. Links are passed over: they may lead anywhere."""
    folders = [one for one in sorted(root.iterdir()) if one.is_dir() and not one.is_symlink()] if root.is_dir() else []
    return tuple(found for found in map(_shelved, folders) if found is not None)


def with_newest_evidence(root: Path, artifact: Shelved) -> Bound:
    """An artifact with the newest document of each kind of evidence on it."""
    newest: dict[str, tuple[str, Path, EvidenceFile]] = {}
    for path, created, found in _documents(root):
        if found.artifact == artifact.digest and created >= newest.get(found.kind, ("",))[0]:
            newest[found.kind] = (created, path, found)
    return Bound(artifact, {path: found for _, path, found in newest.values()})


def named_in(root: Path, subjects: Mapping[str, str]) -> Bound | None:
    """What a verdict's subjects name of the shelf; None when it names no artifact, or one that is not here.

    Evidence that is not here any more is left out, so that a second signature is refused rather than given to less.
    """
    digest = f"sha256:{subjects.get(f'artifact/{DOCUMENT}')}"
    artifact = next((one for one in artifacts(root) if one.digest == digest), None)
    if artifact is None:
        return None
    named = {f"sha256:{found}" for name, found in subjects.items() if name.startswith("evidence/")}
    return Bound(artifact, {path: found for path, _, found in _documents(root) if found.digest in named})


def _shelved(folder: Path) -> Shelved | None:
    document = folder / DOCUMENT
    try:
        if not document.is_file() or document.is_symlink() or document.stat().st_size > _LARGEST:
            return None
        said = json.loads(document.read_bytes())
        run, revision = said["run"], said.get("revision")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # whoever opens it is told what is wrong with it; here it is no artifact of any run
    name = revision.get("name") if isinstance(revision, dict) else None
    return Shelved(folder, sha256_of(document), run, str(name or "")) if isinstance(run, str) else None


def _documents(root: Path) -> Iterator[tuple[Path, str, EvidenceFile]]:
    """Evidence documents in `root` with the moment each says it was made.

    All of them: a failed replay that is passed over for its name would let its artifact be approved.
    """
    for path in sorted(root.glob("*.json")):
        if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST:
            continue
        try:
            found = read_evidence(path)
            created = json.loads(path.read_bytes()).get("created")
        except (PrefixgateError, OSError, ValueError):
            continue  # the page of an artifact lists what cannot be read; here it is no evidence
        yield path, str(created), found
