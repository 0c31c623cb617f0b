"""A run as it lies on disk, checked against what its caller holds of it: only that is signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditlib.errors import IntegrityError, RunError
from auditlib.files import sha256_of
from auditlib.release.digests import hex_of
from auditlib.release.documents import read_object
from auditlib.release.evidence import evidence_for
from auditlib.release.settling import Settled, settle
from auditlib.release.statement import Bound, Place, Review, build_statement
from auditlib.release.subjects import ARTIFACT, folder_digests, held_against


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Everything of a run that a verdict speaks of."""

    report: Mapping[str, Any]
    manifest: Mapping[str, Any]
    bound: Bound

    def statement(self, review: Review, place: Place) -> bytes:
        """The statement to sign, the same bytes for the same review and place."""
        return build_statement(self.report, self.manifest, self.bound, review, place)

    @property
    def settled(self) -> Settled:
        """What the run amounts to together with its evidence."""
        return settle(self.report, self.manifest["policy"]["document"], self.bound.evidence)


def facts_of(
    run_folder: Path,
    report: Mapping[str, Any],
    manifest: Mapping[str, Any],
    artifact: Path | None = None,
    evidence: Sequence[Path] = (),
) -> RunFacts:
    """The facts of a run; IntegrityError when its files are not the ones that report and manifest were read from.

    So it is for evidence about another artifact than the one given.
    """
    # What a reviewer was shown must still be what lies there: a page may be open for hours.
    for name, held in (("report.json", report), ("manifest.json", manifest)):
        if _document(run_folder / name) != held:
            raise IntegrityError(f"{run_folder / name} is not what was shown for signing; open the run again")
    report_file = run_folder / "report.json"
    digest = sha256_of(report_file)
    try:
        listed, revision = manifest["files"]["report.json"], hex_of(manifest["revision"]["digest"])
        same = [(report["run"], manifest["run"]), (report["revision"], manifest["revision"]["digest"])]
        tolerance = held_against(report) if evidence else None
        same += [(report["snapshot"], manifest["snapshot"]["digest"]), (listed, digest)]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{run_folder} lacks what a verdict names: {error!r}; audit again") from error
    if any(one != other for one, other in same):
        raise IntegrityError(f"{report_file} and the manifest beside it do not belong together; audit again")
    packaged = {} if artifact is None else folder_digests(artifact)
    named = packaged.get("artifact.json")
    given = evidence_for(None if named is None else f"sha256:{named}", evidence, tolerance)
    files = {ARTIFACT + name: found for name, found in packaged.items()}
    files |= {one.name: hex_of(one.digest) for one in given}
    subjects = {"revision.json": revision, "report.json": hex_of(digest), **files}
    return RunFacts(report, manifest, Bound(subjects, sha256_of(run_folder / "manifest.json"), given))


def _document(path: Path) -> dict[str, Any]:
    try:
        return read_object(path.read_bytes())
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}; give the folder of a finished run") from error
    except ValueError as error:
        raise IntegrityError(f"{path} is damaged: {error}; audit again") from error
