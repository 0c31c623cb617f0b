"""What was measured on a packaged artifact, after its run: read strictly, and signed together with the run's verdict.

A bench, a replay or a rehearsal of the fallback leaves one document. It counts only for the very artifact that it
names, and only when every check in it passed: whatever is missing, doubtful or about something else is a no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from auditlib.errors import InputError, IntegrityError
from auditlib.release.checks import holds
from auditlib.release.digests import digest_of, hex_of
from auditlib.release.documents import LARGEST, is_format, read_object
from auditlib.release.evidence_checks import lacking, too_wide
from auditlib.release.limits import finite

KINDS = ("bench", "rehearsal", "replay")
"""Kinds of evidence; a verdict names at most one document of each."""

FOLDER = "evidence/"
"""Prefix of the subjects that are evidence documents."""

_STATUSES = ("passed", "failed", "not measured")
_TEXTS = ("audit", "name", "unit", "status")


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """One evidence document, as far as a verdict speaks of it.

    `digest` is that of the file, `artifact` that of the artifact.json it is about, both "sha256:…". `status` is
    "passed" only where every check of its kind is there and bears it out. `lacks` says in words which are not, `where`
    the file that it was read from; neither stands in a verdict.
    """

    kind: str
    digest: str
    artifact: str
    status: str
    checks: tuple[Mapping[str, Any], ...]
    lacks: tuple[str, ...] = field(default=(), compare=False)
    where: str = field(default="", compare=False)

    @property
    def shortfall(self) -> str:
        """A sentence on what it lacks, and what to do about it; empty when it is whole."""
        if not self.lacks:
            return ""
        verb = "rehearse" if self.kind == "rehearsal" else self.kind
        return (
            f"{self.where or self.name} has not the checks of a {self.kind} ({'; '.join(self.lacks)}), so it counts as "
            f"not measured; run {verb} again and give its document as it was written"
        )

    @property
    def name(self) -> str:
        """Its name among the subjects of a verdict."""
        return f"{FOLDER}{self.kind}.json"

    def to_json(self) -> dict[str, Any]:
        """The entry of a verdict's predicate."""
        shown = {name: getattr(self, name) for name in ("kind", "name", "digest", "artifact", "status")}
        return {**shown, "checks": [dict(one) for one in self.checks]}


def read_evidence(path: Path) -> EvidenceFile:
    """The evidence in the file at `path`; InputError for a file that is not exactly one document of the known form."""
    try:
        # Asked first: what is no file, or has no end, must not be read into memory.
        data = path.read_bytes() if path.is_file() and path.stat().st_size <= LARGEST else None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; give the file that bench, replay or rehearse wrote"
        ) from error
    if data is None:
        raise InputError(f"{path} is no file of a reasonable size; give the file that bench, replay or rehearse wrote")
    try:
        return replace(parse_evidence(read_object(data), digest_of(data)), where=str(path))
    except (ValueError, TypeError, KeyError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{path} is no evidence document: {said}; run bench, replay or rehearse again") from error


def parse_evidence(document: Mapping[str, Any], digest: str) -> EvidenceFile:
    """The evidence in a document; ValueError, KeyError or TypeError for anything of another form.

    One that lacks a check of its kind is read, and has not passed: to refuse to read it would let it be passed over.
    """
    found = _parsed(document, digest)
    lacks = tuple(dict.fromkeys(lacking(found.kind, found.checks, document)))
    status = "not measured" if lacks and found.status == "passed" else found.status
    return replace(found, status=status, lacks=lacks)


def _parsed(document: Mapping[str, Any], digest: str) -> EvidenceFile:
    """The evidence in a document, by the checks that stand in it."""
    if not is_format(document["format"], 1):
        raise ValueError("its format is not 1")
    kind, status, listed = document["kind"], document["status"], document["checks"]
    if kind not in KINDS or status not in _STATUSES:
        raise ValueError(f"its kind is none of {', '.join(KINDS)}, or its status is none that there is")
    if not isinstance(listed, list) or not listed:
        raise ValueError("it holds no checks")
    hex_of(document["artifact"])
    checks = tuple(_check(one) for one in listed)
    # A status that claims more than its checks is taken down; none is ever raised.
    borne_out = all(holds(one) for one in checks)
    return EvidenceFile(
        kind, digest, document["artifact"], status if status != "passed" or borne_out else "failed", checks
    )


def parse_entry(entry: Mapping[str, Any]) -> EvidenceFile:
    """The evidence that an entry of a predicate speaks of; ValueError, KeyError or TypeError for another form.

    Its status is as it was signed: verdicts from before a check was known are still read. `lacks` says what they lack.
    """
    hex_of(entry["digest"])
    found = _parsed({**entry, "format": 1}, entry["digest"])
    if found.to_json() != entry:
        raise ValueError("an entry of its evidence does not agree with itself")
    return replace(found, lacks=tuple(dict.fromkeys(lacking(found.kind, found.checks))))


def held_to(found: EvidenceFile, tolerance: float | None) -> EvidenceFile:
    """The same evidence, "not measured" where its logits were held against more than `tolerance`, or that is None."""
    eased = tuple(too_wide(found.kind, found.checks, tolerance))
    if not eased:
        return found
    return replace(
        found, lacks=(*found.lacks, *eased), status="not measured" if found.status == "passed" else found.status
    )


def evidence_for(artifact: str | None, paths: Sequence[Path], tolerance: float | None) -> tuple[EvidenceFile, ...]:
    """Evidence in the files at `paths`, by kind; `artifact` is the digest ("sha256:…") of what is signed for.

    `tolerance` (logits) is that of the run which the artifact was packaged from; None where it measured none.
    InputError for evidence without an artifact or two documents of one kind, IntegrityError for evidence about another
    artifact.
    """
    if paths and artifact is None:
        raise InputError("evidence is about a packaged artifact; name its folder with --artifact too")
    found = [held_to(read_evidence(path), tolerance) for path in paths]
    for path, one in zip(paths, found, strict=True):
        if one.artifact != artifact:
            raise IntegrityError(
                f"{path} is about another artifact than the one to be signed; run {one.kind} on this one"
            )
    if len({one.kind for one in found}) != len(found):
        raise InputError("two evidence documents are of one kind; give the newest of each")
    return tuple(sorted(found, key=lambda one: one.kind))


def _check(given: Mapping[str, Any]) -> dict[str, Any]:
    """The known fields of one check, each of its type; nothing else of it gets into a verdict."""
    if not all(isinstance(given[name], str) for name in _TEXTS) or given["status"] not in _STATUSES:
        raise ValueError("a check has no audit, name, unit or status")
    value, limit, count = given["value"], given["limit"], given["count"]
    if any(number is not None and finite(number) is None for number in (value, limit)):
        raise ValueError("a check's value or limit is no finite number")
    if type(count) is not int or count < 0:
        raise ValueError("a check's count is no whole number")
    return {**{name: given[name] for name in _TEXTS}, "value": value, "limit": limit, "count": count}


def missing_limits(policy: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Limits on serving that a policy document states and none of `checks` was held against.

    A check answers a limit of its own name (what stands before ": " aside) when its own limit is no wider.
    """
    serving = policy.get("serving")
    stated = serving.get("limits", {}) if isinstance(serving, Mapping) else {}
    for name, most in stated.items():
        widest = finite(most)
        # A check that was held against less than the policy allows answers for it; one held against more does not.
        mine = [finite(one["limit"]) for one in checks if str(one["name"]).rpartition(": ")[2] == name]
        if widest is None or not any(limit is not None and limit <= widest for limit in mine):
            yield str(name)
