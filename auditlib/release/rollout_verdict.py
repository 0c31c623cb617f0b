"""The verdict that a rollout rests on: young, the newest there is, and by keys that count, at each step onwards.

A signature is good for ever, an approval is not. Who opens the shadow stage shows the verdict itself; later steps look
at what the chain noted of it, and ask for the verdict again where that is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from auditlib.release.evidence import parse_entry
from auditlib.release.ledger import read_ledger
from auditlib.release.moments import stamp
from auditlib.release.reading import Statement
from auditlib.release.refusals import Reason, RefusedError
from auditlib.release.rollout_chain import Chain
from auditlib.release.rollout_transition import Transition
from auditlib.release.subjects import ARTIFACT
from auditlib.release.trust import SIGNER, Trust
from auditlib.release.verdict import verify_verdict

MAX_AGE = timedelta(days=30)
"""How old a verdict may be where nobody says, and how long one that was looked at is relied on without a new look."""

VERDICT = "verdict"
_SIGNED_BY = "verdict signer"
_AGAIN = "give one that holds with --verdict, or roll back"


@dataclass(frozen=True, slots=True)
class Document:
    """What a move rests on, already verified: its kind ("replay", "bench", "verdict", "verdict signer") and digest.

    A signer's digest is the id of their key, which is that of its public half.
    """

    kind: str
    digest: str


@dataclass(frozen=True, slots=True)
class Newest:
    """What a verdict must be to move a rollout; None leaves a thing out. As `verify` has it.

    `max_age`: at most so old. `previous`: the verdict that it must follow. `ledger`: the list whose newest, or next, it
    must be.
    """

    max_age: timedelta | None = MAX_AGE
    previous: Path | None = None
    ledger: Path | None = None


def require_verdict(
    path: Path, trust: Path, artifact: str, newest: Newest | None = None, now: datetime | None = None
) -> tuple[Document, ...]:
    """The verdict and its signers as documents to move on; `newest` None asks for none older than `MAX_AGE`.

    RefusedError unless it holds, says yes, names the artifact, and rests on whole evidence. InputError for a ledger
    that knows of nothing.
    """
    asked = newest or Newest()
    if asked.ledger is not None:
        read_ledger(asked.ledger, begun=True)
    verified = verify_verdict(
        path, trust, max_age=asked.max_age, previous=asked.previous, ledger=asked.ledger, now=now
    )  # fmt: skip
    statement = verified.statement
    if f"sha256:{statement.subjects.get(f'{ARTIFACT}artifact.json')}" != artifact:
        raise RefusedError("wrong artifact", "the verdict names another artifact than the rollout, or none")
    if not verified.says_yes:
        raise RefusedError("wrong artifact", "the verdict is about this artifact and says no; nothing is served on it")
    _require_whole(statement)
    signers = (Document(_SIGNED_BY, f"sha256:{signer.keyid}") for signer in verified.signers)
    return Document(VERDICT, statement.digest), *signers


def verdict_doubts(chain: Chain, trust: Trust, now: datetime, ledger: Path | None = None) -> Iterator[RefusedError]:
    """Why the verdict that a chain rests on no longer carries a step onwards, by what the chain noted of it."""
    resting = [move for move in chain.moves if _digests(move, VERDICT)]
    if not resting:
        yield _refused("threshold", "the chain names no verdict")
        return
    move = resting[-1]
    yield from _signers(move, trust)
    # The verdict itself is older still: the chain notes when it was shown, not when it was signed.
    if now - move.time > MAX_AGE:
        yield _refused("stale", f"the verdict was shown last on {stamp(move.time)}, longer ago than {MAX_AGE}")
    if ledger is not None:
        head = read_ledger(ledger, begun=True)[-1]
        if head.verdict not in _digests(move, VERDICT):
            said = f"the newest verdict of {ledger} is number {head.sequence} of {head.time}, and not the rollout's"
            yield _refused("replayed", said)


def _signers(move: Transition, trust: Trust) -> Iterator[RefusedError]:
    named = _digests(move, _SIGNED_BY)
    if not named:
        yield _refused("threshold", "the chain does not say who signed its verdict")
    # All of them, and not only enough: whether the rest suffice is for the verdict itself to show.
    for keyid in (digest.removeprefix("sha256:") for digest in named):
        key = trust.keys.get(keyid)
        if key is None:
            yield _refused("foreign key", f"key {keyid[:16]}, which signed the verdict, is in the trust file no more")
        elif key.revoked:
            yield _refused("revoked", f"the key of {key.person}, who signed the verdict, was revoked since")
        elif SIGNER not in key.roles:
            yield _refused("threshold", f"{key.person}, who signed the verdict, has no longer the role {SIGNER}")


def _refused(reason: Reason, said: str) -> RefusedError:
    return RefusedError(reason, f"{said}; {_AGAIN}")


def _digests(move: Transition, kind: str) -> list[str]:
    return [one["digest"] for one in move.documents if one["kind"] == kind]


def _require_whole(statement: Statement) -> None:
    """Raise RefusedError unless the evidence in a verdict has every check that its kind has today."""
    # Verdicts of version 1 hold none, and what is in a later one was signed as it stood then.
    for one in map(parse_entry, statement.predicate.get("evidence", ())):
        if one.lacks:
            raise RefusedError("wrong artifact", f"the verdict's {one.shortfall}, and sign a new verdict")
