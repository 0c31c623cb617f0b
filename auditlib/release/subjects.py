"""The things a verdict is about, in hand: folders and files whose digests must be the ones that it names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auditlib.errors import InputError
from auditlib.files import sha256_of
from auditlib.release.digests import hex_of
from auditlib.release.documents import read_object
from auditlib.release.evidence import FOLDER
from auditlib.release.limits import finite
from auditlib.release.refusals import RefusedError

ARTIFACT = "artifact/"
"""Prefix of the subjects that are files of the packaged artifact."""


def folder_digests(folder: Path) -> dict[str, str]:
    """SHA-256 in hexadecimal digits of every file below `folder`, by its path in it.

    InputError for a folder or file that cannot be read. RefusedError for a link or special file: what it leads to is
    not the folder's content, and may be other content tomorrow.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; give the folder that the verdict is about")
    found = {}
    # The link is asked about first: `is_file` follows it, and would call it plain.
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise RefusedError("wrong artifact", f"{path} is a link or a special file; only plain files are released")
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = _digest(path)
    return found


def require_artifact(folder: Path, subjects: Mapping[str, str]) -> None:
    """Raise RefusedError ("wrong artifact") unless `folder` holds exactly the artifact's files that a verdict names."""
    named = {name.removeprefix(ARTIFACT): digest for name, digest in subjects.items() if name.startswith(ARTIFACT)}
    if not named:
        raise RefusedError("wrong artifact", f"the verdict names no packaged artifact, so it says nothing of {folder}")
    _require_same(folder, folder_digests(folder), named)


def require_packaged(
    folder: Path, subjects: Mapping[str, str], report: Mapping[str, Any], manifest: Mapping[str, Any]
) -> None:
    """Raise RefusedError ("wrong artifact") unless `folder` is a whole artifact of the run of these documents.

    Every file must be the one that its `artifact.json` lists, and whatever that says of the run must be so: what is
    signed is then what was packaged, and not what somebody made of it.
    """
    path = folder / "artifact.json"
    try:
        written = read_object(path.read_bytes())
        named = {name: hex_of(digest) for name, digest in written["files"].items()}
        digests = {"report.json": hex_of(written["report"]), "revision.json": hex_of(written["revision"]["digest"])}
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give the folder that `package` wrote") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RefusedError("wrong artifact", f"{path} does not say which run and which files it is made of") from error
    run = report["run"]
    if written.get("run") != run or any(digest != subjects[name] for name, digest in digests.items()):
        raise RefusedError("wrong artifact", f"{folder} was packaged from another run than {run}; package this one")
    found = folder_digests(folder)
    _require_same(folder, found, {**named, "artifact.json": found["artifact.json"]})
    try:
        facts = _said_of(written, report, manifest)
    except (KeyError, TypeError, AttributeError) as error:
        raise RefusedError(
            "wrong artifact", f"{path} and run {run} do not both say what they were made of ({error!r})"
        ) from error
    wrong = [name for name, (said, true) in facts.items() if said != true]
    if wrong:
        raise RefusedError(
            "wrong artifact", f"{path} says another {', '.join(wrong)} than run {run} has; package the run again"
        )


def _said_of(
    written: Mapping[str, Any], report: Mapping[str, Any], manifest: Mapping[str, Any]
) -> dict[str, tuple[object, object]]:
    """What an artifact says of its run, and what the run says itself, by name."""
    decision, blocked = report["decision"], written.get("blocked", {})
    settings = {name: decision["decoding"][name] == "blocked" for name in decision["proposed"]}
    tolerance = written.get("tolerance", {})
    return {
        "policy": (
            (written.get("policy"), written["files"].get("policy.json")),
            (manifest["policy"]["digest"], manifest["files"]["policy.json"]),
        ),
        "snapshot": (written.get("snapshot"), manifest["snapshot"]["digest"]),
        "code": (written.get("code"), manifest["code"]),
        "dtype": (written.get("dtype"), manifest["dtype"]),
        "device": (tolerance.get("device"), manifest["device"]),
        "tolerance": (tolerance.get("value"), held_against(report)),
        "decision on the cache": (bool(blocked.get("cache_acceleration")), decision["cache_acceleration"] == "blocked"),
        "decision on decoding": (
            {name: bool(reasons) for name, reasons in blocked.get("decoding", {}).items()}, settings
        ),
    }  # fmt: skip


def held_against(report: Mapping[str, Any]) -> float | None:
    """The tolerance (logits) that a run's cached path was held against; None where the run measured none."""
    checks = report["audits"].get("cache parity", {}).get("checks", [])
    return next((finite(one["limit"]) for one in checks if one["name"] == "single events"), None)


def require_revision(folder: Path, subjects: Mapping[str, str]) -> None:
    """Raise RefusedError ("wrong artifact") unless `folder` is the revision a verdict names, each file unchanged."""
    found = folder_digests(folder)
    if found.get("revision.json") != subjects["revision.json"]:
        raise RefusedError("wrong artifact", f"{folder / 'revision.json'} is not the one that the verdict names")
    # its bytes are those that were signed for, so what it lists is what was audited
    try:
        listed = read_object((folder / "revision.json").read_bytes())["files"]
        named = {name: hex_of(digest) for name, digest in listed.items()}
    except (ValueError, KeyError, AttributeError) as error:
        raise RefusedError("wrong artifact", f"{folder / 'revision.json'} lists no digests of its files") from error
    _require_same(folder, found, {**named, "revision.json": subjects["revision.json"]})


def require_report(path: Path, subjects: Mapping[str, str]) -> None:
    """Raise RefusedError ("wrong artifact") unless the file at `path` is the report that a verdict names."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; give the report.json of the run")
    if _digest(path) != subjects["report.json"]:
        raise RefusedError("wrong artifact", f"{path} is not the report that the verdict names")


def require_evidence(path: Path, subjects: Mapping[str, str]) -> None:
    """Raise RefusedError ("wrong artifact") unless the file at `path` is evidence that a verdict names, unchanged."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; give the document that bench, replay or rehearse wrote")
    if _digest(path) not in {digest for name, digest in subjects.items() if name.startswith(FOLDER)}:
        raise RefusedError("wrong artifact", f"{path} is no evidence that the verdict names")


def _require_same(folder: Path, found: Mapping[str, str], named: Mapping[str, str]) -> None:
    differing = sorted(name for name in {*found, *named} if found.get(name) != named.get(name))
    if not differing:
        return
    first = differing[0]
    how = "is missing" if first not in found else "is not listed" if first not in named else "was changed"
    more = f", and {len(differing) - 1} more" if len(differing) > 1 else ""
    raise RefusedError("wrong artifact", f"{folder / first} {how}{more}; the verdict is about other content")


def _digest(path: Path) -> str:
    try:
        return sha256_of(path).removeprefix("sha256:")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; give files that can") from error
