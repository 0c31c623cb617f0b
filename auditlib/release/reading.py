"""Statements read back: only from bytes whose signatures hold, and only when every part is there and agrees."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from auditlib.release.documents import read_object
from auditlib.release.moments import moment_of, stamp
from auditlib.release.refusals import RefusedError
from auditlib.release.statement import PREDICATE_TYPE, STATEMENT_TYPE, VERSION, Place, Review, hex_of

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
    if predicate["version"] != VERSION:
        raise ValueError("its version is not one that this program reads")
    statement = Statement(
        digest=f"sha256:{hashlib.sha256(payload).hexdigest()}",
        subjects=_subjects(document["subject"]),
        predicate=predicate,
        review=Review(*(str(predicate["review"][name]) for name in ("decision", "comment", "keyid"))),
        place=_place(predicate),
        time=moment_of(predicate["time"]),
    )
    for contradiction in _contradictions(statement):
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
    yield bool(counted) and all(check["status"] == "passed" and check["count"] >= 1 for check in counted)
    yield all(check["value"] <= check["limit"] for check in counted)
    yield said["passedTests"] == [f"{check['audit']}: {check['name']}" for check in counted]
    yield decision["cache_acceleration"] == "allowed"
    yield bool(decision["proposed"]) and all(
        decision["decoding"].get(name) == "allowed" for name in decision["proposed"]
    )


def _said(error: Exception) -> str:
    # a KeyError's text is the missing name itself, which came out of our own code and not out of the document
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
