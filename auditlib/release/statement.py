"""What a verdict says: an in-toto Statement v1 with a test-result v0.1 predicate. Knows no keys.

Formats: github.com/in-toto/attestation, spec/v1/statement.md and spec/predicates/test-result.md. Bytes are made once,
here, and signed as they are; nobody serialises a statement again to verify it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from auditlib.errors import RunError
from auditlib.release.digests import hex_of
from auditlib.release.documents import canonical
from auditlib.release.evidence import EvidenceFile
from auditlib.release.planted import planted_faults
from auditlib.release.settling import settle

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
VERSION = 2
"""Version of our own fields in the predicate. A change adds one here, a golden file, and a reader for the old form."""

REFUSED_BY_REVIEWER = "reviewer's decision"


@dataclass(frozen=True, slots=True)
class Review:
    """What the first reviewer decided, in their words, and the id of the key they sign with."""

    decision: str
    comment: str
    keyid: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a verdict stands: when it was made, and which verdict it follows ("sha256:…" of that one's payload)."""

    time: str
    sequence: int = 1
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """What a verdict binds: its subjects as name → SHA-256 in hexadecimal digits, the run's manifest, and evidence.

    The manifest ("sha256:…") lists the digest of every table of the run, so the verdict binds them all.
    """

    subjects: Mapping[str, str]
    manifest: str
    evidence: tuple[EvidenceFile, ...] = ()


def build_statement(
    report: Mapping[str, Any],
    manifest: Mapping[str, Any],
    bound: Bound,
    review: Review,
    place: Place,
) -> bytes:
    """The bytes to sign for one run.

    The result is PASSED only when the gate found nothing, all evidence passed, and the reviewer approves. RunError when
    the run lacks something, or holds what JSON cannot.
    """
    try:
        predicate = {**_predicate(report, manifest, bound, review, place), "manifest": bound.manifest}
        subjects = bound.subjects
        return canonical(
            {
                "_type": STATEMENT_TYPE,
                "subject": [{"name": name, "digest": {"sha256": subjects[name]}} for name in sorted(subjects)],
                "predicateType": PREDICATE_TYPE,
                "predicate": predicate,
            }
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(f"the run cannot be put into a verdict: {error!r}; audit again") from error


def _predicate(
    report: Mapping[str, Any], manifest: Mapping[str, Any], bound: Bound, review: Review, place: Place
) -> dict[str, object]:
    checks = list(_checks(report))
    settled = settle(report, manifest["policy"]["document"], bound.evidence)
    counted = [
        *(check for check in checks if not check.get("comparison")),
        *(check for one in bound.evidence for check in one.checks),
    ]
    bad = [_label(check) for check in counted if check["status"] != "passed"]
    if review.decision != "approve":
        bad.append(REFUSED_BY_REVIEWER)
    return {
        "result": "PASSED" if settled.approved and review.decision == "approve" else "FAILED",
        "configuration": list(_configuration(manifest)),
        "passedTests": [_label(check) for check in counted if check["status"] == "passed"],
        "warnedTests": [],
        "failedTests": bad,
        "version": VERSION,
        "time": place.time,
        "sequence": place.sequence,
        "previous": place.previous,
        "run": report["run"],
        "revision": {name: manifest["revision"][name] for name in ("name", "digest")},
        "review": {"decision": review.decision, "comment": review.comment, "keyid": review.keyid},
        "decision": {name: value for name, value in report["decision"].items() if name != "because"},
        "failures": list(settled.failures),
        "not_measured": list(settled.not_measured),
        "gate": report["gate"],
        "checks": checks,
        "not_applicable": {
            name: audit["not_applicable"] for name, audit in report["audits"].items() if audit["not_applicable"]
        },
        "notes": {name: audit["notes"] for name, audit in report["audits"].items() if audit.get("notes")},
        "tolerance": dict(_tolerances(report)),
        "planted_faults": planted_faults(report),
        "evidence": [one.to_json() for one in bound.evidence],
        **{name: manifest[name] for name in ("device", "dtype", "seed", "versions")},
    }


def _checks(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, audit in report["audits"].items():
        for check in audit["checks"]:
            yield {"audit": name, **check}


def _label(check: Mapping[str, Any]) -> str:
    return f"{check['audit']}: {check['name']}"


def _tolerances(report: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, audit in report["audits"].items():
        for found in audit["information"]:
            if found["name"] == "tolerance":
                yield name, found


def _configuration(manifest: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """What the run was configured with, as in-toto resource descriptors."""
    for name in ("event_order", "event_map", "code"):
        yield _resource(name.replace("_", " "), manifest[name]["digest"], {"version": manifest[name]["version"]})
    yield _resource("policy", manifest["policy"]["digest"], {"document": manifest["policy"]["document"]})
    yield _resource("held-out snapshot", manifest["snapshot"]["digest"], {"of": "rows, in order"})
    yield _resource("session store", manifest["snapshot"]["file_sha256"], {"of": "file"})


def _resource(name: str, digest: str, annotations: Mapping[str, Any]) -> dict[str, object]:
    return {"name": name, "digest": {"sha256": hex_of(digest)}, "annotations": dict(annotations)}
