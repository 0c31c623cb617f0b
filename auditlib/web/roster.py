"""Who may sign a verdict, who has, and when. No Streamlit here: what matters is checked here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from auditlib.errors import PrefixgateError
from auditlib.release.envelope import read_envelope
from auditlib.release.reading import parse_statement
from auditlib.release.signing import open_envelope
from auditlib.release.trust import SIGNER, Trust, TrustedKey


@dataclass(frozen=True, slots=True)
class Place:
    """One key of the trust file: whose it is, why it does not count (empty when it does), whether it has signed.

    `holder` is the person as people are told apart; `when` is the moment of the signature, None where nobody noted it.
    """

    person: str
    holder: str
    keyid: str
    against: str
    signed: bool
    when: str | None = None


def roster(trust: Trust, verdict: Path, now: datetime) -> tuple[Place, ...]:
    """Everybody whose signature the trust file counts, and who of them has signed the verdict.

    An envelope in which anything was altered has no signer.
    """
    signed = _signed_by(verdict, trust)
    return tuple(
        Place(key.person, key.holder, key.keyid, standing(key, now), key.keyid in signed, signed.get(key.keyid))
        for key in sorted(trust.keys.values(), key=lambda key: (key.holder, key.keyid))
    )


def missing(places: Sequence[Place]) -> dict[str, str]:
    """People who may sign and have not: their names by `holder`."""
    have = {place.holder for place in places if place.signed and not place.against}
    return {place.holder: place.person for place in places if not place.against and place.holder not in have}


def note(verdict: Path, keyid: str, moment: datetime) -> None:
    """Put down when a key signed. A verdict holds only the moment of its first signature."""
    with _notes(verdict).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"keyid": keyid, "time": moment.isoformat(timespec="seconds")}) + "\n")


def standing(key: TrustedKey, now: datetime) -> str:
    """Why a key does not count, empty when it does."""
    if key.revoked:
        return "revoked"
    if SIGNER not in key.roles:
        return "may not sign releases"
    return "" if key.valid_at(now) else "outside its time"


def _signed_by(verdict: Path, trust: Trust) -> Mapping[str, str | None]:
    """Keys whose signatures hold, however many people are asked for, each with its moment."""
    try:
        envelope = verdict.read_bytes()
        keys = [key.keyid for key in open_envelope(envelope, replace(trust, threshold=1)).keys]
        said = parse_statement(read_envelope(envelope).payload)
    except (OSError, PrefixgateError):
        return {}
    # What was signed wins over what somebody may have written beside it.
    known = {**_noted(verdict), said.review.keyid: said.place.time}
    return {keyid: known.get(keyid) for keyid in keys}


def _noted(verdict: Path) -> dict[str, str]:
    try:
        lines = _notes(verdict).read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return {str(one["keyid"]): str(one["time"]) for one in found}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}  # a note tells a time and decides nothing


def _notes(verdict: Path) -> Path:
    return verdict.with_name(f"{verdict.name.partition('.')[0]}.signed.jsonl")
