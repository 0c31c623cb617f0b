"""Verdicts, whole: made from a run and signed, or verified and held against what is at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from auditlib.errors import InputError, KeyFileError
from auditlib.files import locked_folder, write_whole
from auditlib.release.drafting import agreed, draft, next_place
from auditlib.release.envelope import read_envelope
from auditlib.release.facts import facts_of
from auditlib.release.keys import key_id, load_key
from auditlib.release.ledger import held, holds, read_ledger, require_follows, require_next, take_up
from auditlib.release.moments import stamp
from auditlib.release.opening import Signer, open_verdict, verdict_bytes
from auditlib.release.reading import Statement, parse_statement
from auditlib.release.refusals import RefusedError
from auditlib.release.signing import open_envelope, sign
from auditlib.release.subjects import (
    require_artifact,
    require_evidence,
    require_packaged,
    require_report,
    require_revision,
)
from auditlib.release.trust import SIGNER, Trust, load_trust

_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class VerifiedVerdict:
    """A verdict that holds. It may still say no: a verified signature says who wrote it, not that the answer is yes.

    `compared` names what the verdict was held against beside its signatures.
    """

    statement: Statement
    signers: tuple[Signer, ...]
    age: timedelta
    compared: tuple[str, ...]

    @property
    def result(self) -> str:
        """Either PASSED or FAILED."""
        return self.statement.result

    @property
    def says_yes(self) -> bool:
        """Whether the release may go ahead."""
        return self.statement.result == "PASSED"


@dataclass(frozen=True, slots=True)
class SignedVerdict:
    """What was signed, and where it lies. `digest` names the statement, whoever else signs it later.

    `shortfalls` are sentences on the evidence that lacks checks, and so speaks against the release.
    """

    path: Path
    digest: str
    result: str
    sequence: int
    keyid: str
    signatures: int
    shortfalls: tuple[str, ...] = ()


def verify_verdict(
    source: Path | bytes,
    trust: Path | Mapping[str, Any],
    *,
    artifact: Path | None = None,
    revision: Path | None = None,
    report: Path | None = None,
    evidence: Sequence[Path] = (),
    max_age: timedelta | None = None,
    previous: Path | bytes | None = None,
    ledger: Path | None = None,
    now: datetime | None = None,
) -> VerifiedVerdict:
    """A verdict, after its signatures, then its age, its place in the line and the things in hand were found to fit.

    RefusedError says which of them does not; InputError and KeyFileError are for files that cannot be read.
    """
    trusted = load_trust(trust)
    statement, signers = open_verdict(source, trusted)
    age = _age(statement, now or datetime.now(UTC), max_age)
    if previous is not None:
        before, _ = open_verdict(previous, trusted)
        require_follows(statement, before.place.sequence, before.digest)
    if ledger is not None:
        require_next(read_ledger(ledger), statement)
    for path, require in ((artifact, require_artifact), (revision, require_revision), (report, require_report)):
        if path is not None:
            require(path, statement.subjects)
    for path in evidence:
        require_evidence(path, statement.subjects)
    asked = {
        "artifact": artifact, "revision": revision, "report": report, "evidence": evidence or None, "age": max_age,
        "previous": previous, "ledger": ledger,
    }  # fmt: skip
    return VerifiedVerdict(statement, signers, age, tuple(name for name, value in asked.items() if value is not None))


def sign_run(
    run_folder: Path,
    report: Mapping[str, Any],
    manifest: Mapping[str, Any],
    key: Path,
    passphrase: bytes,
    decision: str | None,
    comment: str,
    out: Path,
    append: bool = False,
    *,
    trust: Path | Mapping[str, Any] | None = None,
    artifact: Path | None = None,
    evidence: Sequence[Path] = (),
    previous: Path | None = None,
    ledger: Path | None = None,
    now: datetime | None = None,
) -> SignedVerdict:
    """Sign the verdict of a run into `out`, or with `append` add a reviewer's signature to the one that lies there.

    `decision` is "approve" or "refuse" (None: what the gate says); a reviewer may refuse what the gate let through and
    never the other way round. `evidence` are documents about `artifact`, signed with it. The verdict follows
    `previous`, or the newest of `ledger`, which then takes it up. With `trust` the key must be in it, and nobody signs
    twice under two keys. Nothing is written unless all of it holds.
    """
    private = load_key(key, passphrase)
    reviewer = key_id(private.public_key())
    facts = facts_of(run_folder, report, manifest, artifact, evidence)
    if artifact is not None:
        require_packaged(artifact, facts.bound.subjects, report, manifest)
    trusted, moment = None if trust is None else load_trust(trust), now or datetime.now(UTC)
    # Two reviewers at once would each read one signature and write two: one of the three would be gone.
    with _alone(out), held(ledger) if ledger else nullcontext():
        envelope = _existing(out, append)
        _require_new_person(envelope, trusted, reviewer, moment)
        if envelope is None:
            place = next_place(trusted, previous, ledger, moment)
            payload = draft(facts, decision, comment, reviewer, place)
        else:
            payload = agreed(envelope, facts, decision, comment)
        statement = parse_statement(payload)
        # a second reviewer may come when later verdicts have lines already: then there is nothing to take up
        new_line = ledger if ledger is not None and not holds(ledger, statement) else None
        if new_line is not None:
            require_next(read_ledger(new_line), statement)
        signed = sign(payload, private, envelope)
        write_whole(out, signed)
        if new_line is not None:
            take_up(new_line, statement)  # the verdict's file first, its line in the ledger last
    signatures = len(read_envelope(signed).signatures)
    said = (statement.digest, statement.result, statement.place.sequence, reviewer, signatures)
    return SignedVerdict(out, *said, facts.settled.shortfalls)


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Nobody else signs in the folder of `out` meanwhile."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(out.parent):
        yield


def _existing(out: Path, append: bool) -> bytes | None:
    """The envelope to add to, None for a new one; a verdict is never overwritten."""
    if append:
        return verdict_bytes(out)
    if out.exists():
        raise InputError(f"{out} is there already; add a signature to it with --append, or choose another name")
    return None


def _require_new_person(envelope: bytes | None, trust: Trust | None, reviewer: str, moment: datetime) -> None:
    """Where people are known, the key must be one whose signature counts now, of somebody who has not signed yet."""
    if trust is None:
        return
    if reviewer not in trust.keys:
        raise KeyFileError(f"key {reviewer} is not in the trust file; add it with `keys new`, or use a trusted key")
    person = trust.keys[reviewer]
    why = "was revoked" if person.revoked else "" if SIGNER in person.roles else f"has not the role {SIGNER}"
    why = why or ("" if person.valid_at(moment) else "is not valid at this time")
    if why:  # a verifier would not count it: better said before anything is written
        raise KeyFileError(f"the key of {person.person} {why}, so its signature counts for nobody; use another key")
    if envelope is None:
        return
    # One signature is enough to ask who has signed so far.
    if person.holder in {key.holder for key in open_envelope(envelope, replace(trust, threshold=1)).keys}:
        raise KeyFileError(f"{person.person} has signed this verdict already; another person must sign")


def _age(statement: Statement, now: datetime, max_age: timedelta | None) -> timedelta:
    age = now - statement.time
    if age < -_CLOCK_SKEW:
        raise RefusedError("stale", f"it is dated {stamp(statement.time)}, which is still to come; compare the clocks")
    if max_age is not None and age > max_age:
        raise RefusedError(
            "stale", f"it was signed {stamp(statement.time)}, longer ago than {max_age}; ask for a new one"
        )
    # A clock that is a little ahead makes no age below nothing.
    return max(age, timedelta())
