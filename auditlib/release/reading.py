"""Statements read back: only from bytes whose signatures hold, and only when every part is there and agrees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from auditlib.release import planted
from auditlib.release.checks import holds
from auditlib.release.digests import digest_of, hex_of
from auditlib.release.documents import read_object
from auditlib.release.evidence import FOLDER, missing_limits, parse_entry
from auditlib.release.moments import moment_of, stamp
from auditlib.release.refusals import RefusedError
from auditlib.release.statement import PREDICATE_TYPE, STATEMENT_TYPE, VERSION, Place, Review
from auditlib.release.subjects import ARTIFACT

_LARGEST_SEQUENCE = 2**53 - 1  # the largest integer that every reader of JSON keeps exact


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's parts. `digest` is that of its exact bytes; `predicate` holds everything it says."""

    digest: str
    subjects: Mapping[str, str]
    predicate: Mapping[str, Any]
    review: Review
    place: Place
    time: datetime

    @property
    def result(self) -> str:
        """Either PASSED or FAILED."""
        return str(self.predicate["result"])

    @property
    def run(self) -> str:
        """Name of the run it is about."""
        return str(self.predicate["run"])


def parse_statement(payload: bytes) -> Statement:
    """The statement in verified bytes; RefusedError ("malformed") names what is missing or contradicts itself."""
    try:
        return _parse(payload)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RefusedError("malformed", f"the statement cannot be used: {_said(error)}") from error


def _parse(payload: bytes) -> Statement:
    document = read_object(payload)
    if document["_type"] != STATEMENT_TYPE or document["predicateType"] != PREDICATE_TYPE:
        raise ValueError("it is no in-toto Statement v1 with a test result v0.1")
    predicate = document["predicate"]
    if type(predicate["version"]) is not int or not 1 <= predicate["version"] <= VERSION:
        raise ValueError("its version is not one that this program reads")
    statement = Statement(
        digest=digest_of(payload),
        subjects=_subjects(document["subject"]),
        predicate=predicate,
        review=Review(*(str(predicate["review"][name]) for name in ("decision", "comment", "keyid"))),
        place=_place(predicate),
        time=moment_of(predicate["time"]),
    )
    for contradiction in (*_contradictions(statement), *_contradictions_since_2(statement)):
        raise ValueError(contradiction)
    return statement


def _place(predicate: Mapping[str, Any]) -> Place:
    time, sequence, previous = predicate["time"], predicate["sequence"], predicate["previous"]
    if stamp(moment_of(time)) != time:
        raise ValueError("its time is not in UTC to the second")
    if not isinstance(sequence, int) or isinstance(sequence, bool) or not 1 <= sequence <= _LARGEST_SEQUENCE:
        raise ValueError("its sequence number is not an integer from 1")
    if previous is not None:
        hex_of(previous)
    if (previous is None) != (sequence == 1):
        raise ValueError("the first verdict of a line, and only that, follows no other")
    return Place(time, sequence, previous)


def _subjects(listed: list[dict[str, Any]]) -> dict[str, str]:
    subjects = {entry["name"]: hex_of(f"sha256:{entry['digest']['sha256']}") for entry in listed}
    if len(subjects) != len(listed) or not {"revision.json", "report.json"} <= set(subjects):
        raise ValueError("its subjects must be the revision, the report and the artifact's files, each once")
    return subjects


def _contradictions(statement: Statement) -> Iterator[str]:
    """What in a statement does not agree with the rest; whoever signed it, a yes needs every part to say yes."""
    said = statement.predicate
    if hex_of(said["revision"]["digest"]) != statement.subjects["revision.json"]:
        yield "it names one revision and has another as its subject"
    if said["result"] != {"approve": "PASSED", "refuse": "FAILED"}.get(statement.review.decision):
        yield "its result is not the one that the reviewer's decision leads to"
    if said["result"] == "PASSED" and not all(_reasons_for(said)):
        yield "its result is better than what it reports"
    if said["result"] == "FAILED" and not said["failedTests"]:
        yield "its result is worse than what it reports, and nothing says why"


def _reasons_for(said: Mapping[str, Any]) -> Iterator[bool]:
    counted = [check for check in said["checks"] if check.get("comparison") is not True]
    decision = said["decision"]
    yield said["failedTests"] == said["failures"] == said["not_measured"] == []
    measured_since = [check for one in said.get("evidence", ()) for check in one["checks"]]
    # `all` says yes to nothing: a verdict without checks must not.
    yield bool(counted) and all(holds(check) for check in (*counted, *measured_since))
    yield said["passedTests"] == [f"{check['audit']}: {check['name']}" for check in (*counted, *measured_since)]
    yield decision["cache_acceleration"] == "allowed"
    yield bool(decision["proposed"]) and all(
        decision["decoding"].get(name) == "allowed" for name in decision["proposed"]
    )


def _contradictions_since_2(statement: Statement) -> Iterator[str]:
    """What version 2 added: evidence on the artifact, and the table of planted faults. Version 1 had neither."""
    said, subjects = statement.predicate, statement.subjects
    named = {name: digest for name, digest in subjects.items() if name.startswith(FOLDER)}
    if said["version"] == 1:
        if named or {"evidence", "planted_faults"} & set(said):
            yield "it holds what a verdict of its version cannot"
        return
    entries = [parse_entry(one) for one in said["evidence"]]
    if {one.name: hex_of(one.digest) for one in entries} != named or len(named) != len(entries):
        yield "its evidence is not what its subjects are"
    if any(hex_of(one.artifact) != subjects.get(f"{ARTIFACT}artifact.json") for one in entries):
        yield "its evidence is about something else than its artifact"
    if statement.result == "PASSED" and any(one.status != "passed" for one in entries):
        yield "its result is better than its evidence"
    if statement.result == "PASSED" and _serving_unanswered(said):
        yield "its result is better than what is known of serving"
    yield from planted.contradictions(said)


def _serving_unanswered(said: Mapping[str, Any]) -> bool:
    """Whether the policy states limits on serving that no bench answers."""
    (policy,) = (one["annotations"]["document"] for one in said["configuration"] if one["name"] == "policy")
    benches = [one for one in said["evidence"] if one["kind"] == "bench"]
    return "serving" in policy and (not benches or any(missing_limits(policy, benches[0]["checks"])))


def _said(error: Exception) -> str:
    # a KeyError's text is the missing name itself, which came out of our own code and not out of the document
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
