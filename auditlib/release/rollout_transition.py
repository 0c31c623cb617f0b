"""One move of a rollout, as it is signed: an in-toto Statement v1 with a predicate of our own. Knows no keys.

The predicate type differs from a verdict's, so neither can be taken for the other.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, get_args

from auditlib.release.digests import hex_of
from auditlib.release.documents import canonical, read_object
from auditlib.release.moments import moment_of, stamp
from auditlib.release.refusals import RefusedError
from auditlib.release.statement import STATEMENT_TYPE

PREDICATE_TYPE = "urn:prefixgate:rollout-transition:1"

Kind = Literal["start", "advance", "pause", "resume", "roll back"]
By = Literal["evidence", "person"]

_ROLLOUT = re.compile(r"[0-9a-f]{32}", re.ASCII)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Subject:
    """What a rollout is about; the same in all its transitions. `rollout` names it, drawn at random.

    `tolerance` in logits. `plan` is the digest of the plan, whose whole text the first transition holds.
    """

    rollout: str
    artifact: str
    fallback: str
    tolerance: float
    plan: str


@dataclass(frozen=True, slots=True)
class Transition:
    """One move: who made it when, from which state to which, and on what evidence.

    `documents` are the files that it rests on (kind and "sha256:…"), `files` the parts of the live log that were read
    (name, sha256, rows, digest of the rows), `counts` what they showed. `previous` names the transition before it.
    """

    subject: Subject
    sequence: int
    previous: str | None
    time: datetime
    kind: Kind
    by: By
    source: str
    to: str
    keyid: str
    comment: str = ""
    reasons: tuple[str, ...] = ()
    documents: tuple[Mapping[str, str], ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()
    counts: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    @property
    def microseconds(self) -> int:
        """The moment of the move in microseconds since 1970."""
        return int(self.time.timestamp()) * 1_000_000


def transition_bytes(move: Transition) -> bytes:
    """The bytes to sign."""
    predicate = {
        "version": 1, "rollout": move.subject.rollout, "sequence": move.sequence, "previous": move.previous,
        "time": stamp(move.time), "kind": move.kind, "by": move.by, "from": move.source, "to": move.to,
        "keyid": move.keyid, "comment": move.comment, "reasons": list(move.reasons),
        "fallback": move.subject.fallback, "tolerance": move.subject.tolerance, "plan": move.subject.plan,
        "plan_document": dict(move.plan),
        "evidence": {
            "documents": [dict(one) for one in move.documents], "files": [dict(one) for one in move.files],
            "counts": move.counts,
        },
    }  # fmt: skip
    subject = [{"name": "artifact.json", "digest": {"sha256": hex_of(move.subject.artifact)}}]
    return canonical(
        {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate}
    )


def digest_of(payload: bytes) -> str:
    """What the next transition names its predecessor by."""
    return f"sha256:{hashlib.sha256(payload).hexdigest()}"


def parse_transition(payload: bytes) -> Transition:
    """The move in verified bytes; RefusedError ("malformed") when it is not exactly what `transition_bytes` writes."""
    try:
        move = _parse(read_object(payload))
        # Written again and compared: nothing can hide in a name that this program does not read.
        whole = transition_bytes(move) == payload
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise RefusedError("malformed", f"it is no transition of a rollout: {_said(error)}") from error
    if not whole:
        raise RefusedError("malformed", "it holds more, or other, than a transition does")
    return move


def _parse(document: dict[str, Any]) -> Transition:
    if document["_type"] != STATEMENT_TYPE or document["predicateType"] != PREDICATE_TYPE:
        raise ValueError("its type is another")
    said = document["predicate"]
    (named,) = document["subject"]
    evidence = said["evidence"]
    return Transition(
        subject=_subject(said, f"sha256:{named['digest']['sha256']}"),
        sequence=_count(said["sequence"]),
        previous=said["previous"] if said["previous"] is None else f"sha256:{hex_of(said['previous'])}",
        time=moment_of(said["time"]),
        kind=_one_of(said["kind"], get_args(Kind)),
        by=_one_of(said["by"], get_args(By)),
        source=_text(said["from"]),
        to=_text(said["to"]),
        keyid=_text(said["keyid"]),
        comment=_text(said["comment"]),
        reasons=tuple(_text(reason) for reason in said["reasons"]),
        documents=tuple(
            {"kind": _text(one["kind"]), "digest": f"sha256:{hex_of(one['digest'])}"} for one in evidence["documents"]
        ),
        files=tuple(_file(one) for one in evidence["files"]),
        counts=evidence["counts"],
        plan=said["plan_document"],
    )


def _subject(said: Mapping[str, Any], artifact: str) -> Subject:
    tolerance, fallback = said["tolerance"], said["fallback"]
    if not isinstance(tolerance, float) or not math.isfinite(tolerance) or tolerance < 0:
        raise ValueError("its tolerance is no number from 0")
    if fallback != "full-prefix":
        hex_of(fallback)
    if not _ROLLOUT.fullmatch(said["rollout"]):
        raise ValueError("the name of its rollout is malformed")
    return Subject(said["rollout"], f"sha256:{hex_of(artifact)}", fallback, tolerance, f"sha256:{hex_of(said['plan'])}")


def _file(one: Mapping[str, Any]) -> dict[str, Any]:
    digests = {name: f"sha256:{hex_of(one[name])}" for name in ("sha256", "digest")}
    return {"name": _text(one["name"]), "rows": _count(one["rows"]), **digests}


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a number in it is no whole number from 0")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text is missing")  # noqa: TRY004  one error for every malformed transition
    return value


def _one_of(value: Any, words: tuple[str, ...]) -> Any:
    if value not in words:
        raise ValueError("it makes a move that is none")
    return value


def _said(error: Exception) -> str:
    return f"it lacks {error}" if isinstance(error, KeyError) else str(error)
