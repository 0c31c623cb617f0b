"""What people and evidence do with a rollout: start it, take it as far as evidence allows, stop it, let it go on."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from cryptography.hazmat.primitives.asymmetric import ec

from auditlib.errors import InputError, IntegrityError
from auditlib.release.evidence import EvidenceFile, held_to
from auditlib.release.keys import key_id
from auditlib.release.rollout_chain import Chain, begin_chain, extend_chain
from auditlib.release.rollout_decision import Decision, decide
from auditlib.release.rollout_evidence import LiveEvidence, gather
from auditlib.release.rollout_plan import Plan
from auditlib.release.rollout_rows import LiveRows
from auditlib.release.rollout_standing import FALLBACK_ONLY, REPLAYED, ROLLED_BACK
from auditlib.release.rollout_transition import Kind, Subject, Transition
from auditlib.release.rollout_verdict import Document, verdict_doubts
from auditlib.release.trust import Trust

ByHand = Literal["pause", "resume", "roll back"]
"""Moves that a person makes."""


class LogLike(Protocol):
    """A live log as read: its rows, and the files that they came from."""

    @property
    def rows(self) -> LiveRows:
        """Columns of all rows."""
        ...

    @property
    def files(self) -> Sequence[Mapping[str, Any]]:
        """For each file: name, sha256, rows, and digest of those rows."""
        ...

    def digest_of(self, name: str, rows: int) -> str | None:
        """Digest of the first so many rows of a file; None when it has fewer, or is not there."""
        ...


@dataclass(frozen=True, slots=True)
class Signer:
    """Who moves: their key, and the trust file that the chain is read with."""

    key: ec.EllipticCurvePrivateKey
    trust: Trust


def start(
    path: Path, signer: Signer, plan: Plan, *, artifact: str, fallback: str, tolerance: float, comment: str = "",
    now: datetime | None = None,
) -> Chain:  # fmt: skip
    """Begin the chain of a new rollout in `path`; only the fallback serves then."""
    if fallback == artifact:
        raise InputError("artifact and fallback are the same; name the earlier artifact, or full-prefix")
    about = Subject(secrets.token_hex(16), artifact, fallback, float(tolerance), plan.digest)
    first = Transition(
        about, 1, None, _now(now), "start", "person", "", FALLBACK_ONLY, key_id(signer.key.public_key()), comment,
        plan=plan.to_json(),
    )  # fmt: skip
    return begin_chain(path, first, signer.key, signer.trust)


def look(chain: Chain, log: LogLike, now: datetime | None = None) -> tuple[LiveEvidence, Decision]:
    """What a log shows, and what that allows. IntegrityError when rows that a move stands on are gone or changed."""
    require_same_log(chain, log)
    evidence = gather(log.rows, chain.plan, chain.standing, int(_now(now).timestamp() * 1_000_000))
    return evidence, decide(chain.plan, chain.standing, evidence)


def advance(
    path: Path, signer: Signer, log: LogLike, now: datetime | None = None,
    *, verdict: Sequence[Document] = (), ledger: Path | None = None,
) -> tuple[Chain, Decision]:  # fmt: skip
    """Do what the evidence allows, and sign it; nothing is written for "hold".

    `verdict` is what `require_verdict` gave just now. Without it a step onwards rests on what the chain noted of its
    verdict, and on the `ledger` where one is named: RefusedError when that is not enough any more. Steps back never do.
    """
    said: list[Decision] = []

    def move(chain: Chain) -> Transition | None:
        """The transition that evidence asks for; None to hold, and outside the plan's stages. Notes the decision."""
        moment = _now(now)
        evidence, decision = look(chain, log, moment)
        said.append(decision)
        if decision.action == "hold" or chain.standing.state not in chain.plan.names:
            return None
        onwards = decision.action == "promote"
        if onwards and not verdict:
            _require_verdict_still(chain, signer.trust, moment, ledger)
        kind: Kind = "advance" if decision.action == "promote" else decision.action
        return _next(
            chain, signer, moment, kind, decision.to, by="evidence", reasons=decision.reasons, files=tuple(log.files),
            counts=evidence.to_json(), documents=_listed(verdict) if onwards else (),
        )  # fmt: skip

    return extend_chain(path, signer.trust, signer.key, move), said[-1]


def open_on(path: Path, signer: Signer, documents: Sequence[Document], now: datetime | None = None) -> Chain:
    """Move on from a state before the first stage, on documents that were verified."""

    def move(chain: Chain) -> Transition:
        """The step towards the first stage; InputError in every other state."""
        following = {FALLBACK_ONLY: REPLAYED, REPLAYED: chain.plan.names[0]}.get(chain.standing.state)
        if following is None:
            raise InputError(f"the rollout is at {chain.standing.state} already; give the live log instead")
        return _next(chain, signer, _now(now), "advance", following, by="evidence", documents=_listed(documents))

    return extend_chain(path, signer.trust, signer.key, move)


def by_hand(
    path: Path, signer: Signer, kind: ByHand, comment: str,
    log: LogLike | None = None, now: datetime | None = None,
) -> Chain:  # fmt: skip
    """A person's move, with their reason. Resuming with a log accepts the faults that it shows now, and no more."""

    def move(chain: Chain) -> Transition:
        """The person's transition; InputError where the rollout's state knows no such move."""
        moment = _now(now)
        standing = chain.standing
        if standing.state == ROLLED_BACK or (kind != "roll back" and (kind == "resume") != standing.paused):
            where = "paused" if standing.paused else standing.state
            raise InputError(f"the rollout is {where}: it cannot {kind} there")
        counts = None if log is None else look(chain, log, moment)[0].to_json()
        to = ROLLED_BACK if kind == "roll back" else standing.state
        files = () if log is None else tuple(log.files)
        return _next(chain, signer, moment, kind, to, by="person", comment=comment, files=files, counts=counts)

    if not comment.strip():
        raise InputError("a person's move needs a reason; give --comment")
    return extend_chain(path, signer.trust, signer.key, move)


def require_same_log(chain: Chain, log: LogLike) -> None:
    """Raise IntegrityError unless every row that an earlier move stands on is still in the log, unchanged."""
    for move in chain.moves:
        for one in move.files:
            if log.digest_of(one["name"], one["rows"]) != one["digest"]:
                raise IntegrityError(
                    f"{one['name']}: its first {one['rows']:,} rows are not those that transition {move.sequence} "
                    "stands on; restore the log, or roll back"
                )


def require_passed(found: EvidenceFile, kind: str, artifact: str, tolerance: float) -> Document:
    """The evidence as a document to move on; IntegrityError unless it is of this kind and artifact, and passed.

    `tolerance`: what the artifact's logits may differ by, as the rollout's chain has it.
    """
    found = held_to(found, tolerance)
    if (found.kind, found.artifact) != (kind, artifact):
        raise IntegrityError(f"the document is no {kind} of this artifact; run {kind} on it")
    if found.lacks:
        raise IntegrityError(found.shortfall)
    if found.status != "passed":
        raise IntegrityError(f"the {kind} did not pass, or measured too little; nothing is served on it")
    return Document(kind, found.digest)


def _require_verdict_still(chain: Chain, trust: Trust, moment: datetime, ledger: Path | None) -> None:
    for doubt in verdict_doubts(chain, trust, moment, ledger):
        raise doubt


def _listed(documents: Sequence[Document]) -> tuple[dict[str, str], ...]:
    return tuple({"kind": one.kind, "digest": one.digest} for one in documents)


def _next(chain: Chain, signer: Signer, moment: datetime, kind: Kind, to: str, **said: Any) -> Transition:
    """The transition that follows a chain's newest."""
    about, number = chain.moves[-1].subject, len(chain.moves) + 1
    keyid = key_id(signer.key.public_key())
    return Transition(about, number, chain.head, moment, kind, said.pop("by"), chain.standing.state, to, keyid, **said)


def _now(now: datetime | None) -> datetime:
    # To the second, as it is signed: a finer moment would not be the same when read back.
    return (now or datetime.now(UTC)).astimezone(UTC).replace(microsecond=0)
