"""What a reviewer is about to sign: their decision, its place in the line of verdicts, or what another signed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from auditlib.errors import InputError
from auditlib.release.envelope import read_envelope
from auditlib.release.facts import RunFacts
from auditlib.release.ledger import read_ledger
from auditlib.release.moments import stamp
from auditlib.release.opening import open_verdict, verdict_bytes
from auditlib.release.reading import parse_statement
from auditlib.release.refusals import RefusedError
from auditlib.release.settling import Settled
from auditlib.release.statement import Place, Review
from auditlib.release.trust import Trust

_LONGEST_COMMENT = 4000


def draft(facts: RunFacts, decision: str | None, comment: str, keyid: str, place: Place) -> bytes:
    """The bytes of a new statement; InputError for a decision that the gate does not leave to the reviewer."""
    if len(comment) > _LONGEST_COMMENT:
        raise InputError(f"the comment has {len(comment)} characters; at most {_LONGEST_COMMENT} are signed")
    return facts.statement(Review(_decided(facts.settled, decision), comment, keyid), place)


def agreed(envelope: bytes, facts: RunFacts, decision: str | None, comment: str) -> bytes:
    """The payload of an envelope, when it is what the run in hand gives and what this reviewer wants to say.

    Nothing in it is believed: the statement is built again from the run, and only equal bytes are signed.
    """
    payload = read_envelope(envelope).payload
    said = parse_statement(payload)
    if facts.statement(said.review, said.place) != payload:
        raise RefusedError("altered", "the verdict to add to does not say what the run in hand says")
    if decision not in (None, said.review.decision):
        raise InputError(f"the verdict says {said.review.decision}; who decides otherwise signs a verdict of their own")
    if comment not in ("", said.review.comment):
        raise InputError("a signature is added to the words that stand there; leave out the comment or sign anew")
    return payload


def next_place(trust: Trust | None, previous: Path | None, ledger: Path | None, now: datetime) -> Place:
    """The place after the newest verdict known: of `previous`, of the ledger, or the first of a new line.

    Without a trust file `previous` is taken as it is: the new verdict names its digest, so a false one binds nobody.
    """
    # A set, as file and ledger may both name the newest verdict: then it must be the same one.
    heads = {(entry.sequence, entry.verdict) for entry in read_ledger(ledger)[-1:]} if ledger else set()
    if previous is not None:
        data = verdict_bytes(previous)
        before = open_verdict(data, trust)[0] if trust else parse_statement(read_envelope(data).payload)
        heads.add((before.place.sequence, before.digest))
    if len(heads) > 1:
        raise InputError(f"{previous} is not the newest verdict of {ledger}; name that one, or leave it out")
    for sequence, digest in heads:
        return Place(stamp(now), sequence + 1, digest)
    return Place(stamp(now))


def _decided(settled: Settled, decision: str | None) -> str:
    """The decision to sign: a refusal by the gate cannot be overruled."""
    if decision is None:
        return "approve" if settled.approved else "refuse"
    if decision not in ("approve", "refuse"):
        raise InputError(f"a decision is approve or refuse, not {decision!r}")
    if decision == "approve" and not settled.approved:
        raise InputError(f"the gate refused this run ({settled.wrong}); a reviewer can only refuse it too")
    return decision
