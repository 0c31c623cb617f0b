"""Trust files (contract 4): whose keys count, for what, from when to when, and how many people must sign."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from auditlib.errors import KeyFileError
from auditlib.files import write_whole
from auditlib.release.documents import is_format, read_object
from auditlib.release.identity import Identity, identity_from
from auditlib.release.keys import key_id, public_pem, read_public_pem
from auditlib.release.moments import moment_of, stamp

SIGNER = "release-signer"
"""The role whose signatures count on a verdict."""

_LIFETIME = timedelta(days=730)
_FIELDS = {"keyid", "public_key", "person", "roles", "not_before", "not_after", "revoked"}
_OPTIONAL = {"identity"}


# Characters that are printable and show nothing (Unicode's Default_Ignorable_Code_Point, in its blocks).
_UNSEEN = dict.fromkeys(
    (0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0x200B, 0x2010),
     *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0,
     *range(0xE0000, 0xE1000))
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """One entry: a public key, whose it is, what it may do and when. A bound of None is none.

    `identity` is the account that its person signs in with; None where nobody signs in.
    """

    keyid: str
    public_key: ec.EllipticCurvePublicKey
    person: str
    roles: tuple[str, ...]
    not_before: datetime | None = None
    not_after: datetime | None = None
    revoked: bool = False
    identity: Identity | None = None

    @property
    def holder(self) -> str:
        """The person as people are told apart: case, spacing, the form of letters and what has none make no second."""
        seen = unicodedata.normalize("NFKC", self.person).translate(_UNSEEN)
        return " ".join(seen.casefold().split())

    def valid_at(self, moment: datetime) -> bool:
        """Whether `moment` lies within the key's time."""
        early = self.not_before is not None and moment < self.not_before
        late = self.not_after is not None and moment > self.not_after
        return not early and not late


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust file as read: keys by id, and how many people must have signed."""

    threshold: int
    keys: Mapping[str, TrustedKey]


def load_trust(source: Path | Mapping[str, Any]) -> Trust:
    """The trust file at a path, or in a document at hand; KeyFileError names the entry and what is wrong with it."""
    where = str(source) if isinstance(source, Path) else "trust document"
    document = _read(source) if isinstance(source, Path) else source
    try:
        return _parse(document)
    except ValueError as error:
        raise KeyFileError(f"{where}: {error}; mend the trust file") from error


def new_entry(
    public_key: ec.EllipticCurvePublicKey, person: str, now: datetime, identity: Identity | None = None
) -> dict[str, Any]:
    """A trust file's entry for a signer's key, good for two years from `now`."""
    entry = {
        "keyid": key_id(public_key),
        "public_key": public_pem(public_key),
        "person": person,
        "roles": [SIGNER],
        "not_before": stamp(now),
        "not_after": stamp(now + _LIFETIME),
        "revoked": False,
    }
    return entry if identity is None else {**entry, "identity": identity.to_dict()}


def add_entry(path: Path, entry: Mapping[str, Any]) -> TrustedKey:
    """The key of an entry, now in the trust file at `path`, which is made with threshold 1 when it is not there.

    KeyFileError, with nothing changed, when the file or the entry is malformed, or the file cannot take the entry.
    """
    empty: dict[str, Any] = {"format": 1, "threshold": 1, "keys": []}
    document = _read(path) if path.exists() else empty
    load_trust(document)
    document["keys"] = [*document["keys"], dict(entry)]
    # what is written can be read: a key twice, or a person without a name, ends here
    added = load_trust(document).keys[str(entry.get("keyid"))]
    write_whole(path, json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n")
    return added


def read_entry(path: Path) -> dict[str, Any]:
    """The entry that somebody asks to have added to a trust file, as it was written beside the key."""
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path.read_bytes())
    except OSError as error:
        raise KeyFileError(f"{path}: the trust file cannot be read: {error.strerror}; give its path") from error
    except ValueError as error:
        raise KeyFileError(f"{path}: {error}; mend the trust file") from error


def _parse(document: Mapping[str, Any]) -> Trust:
    if set(document) != {"format", "threshold", "keys"} or not is_format(document["format"], 1):
        raise ValueError('a trust file has "format": 1, "threshold" and "keys", and nothing else')
    threshold, entries = document["threshold"], document["keys"]
    if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < 1:
        raise ValueError('"threshold" must be an integer from 1')
    if not isinstance(entries, list):
        raise ValueError('"keys" must be a list')  # noqa: TRY004  one error for every fault of a trust file
    keys = [_entry(number, entry) for number, entry in enumerate(entries, 1)]
    if len({key.keyid for key in keys}) != len(keys):
        raise ValueError("a key stands twice in it: one key is one signature, whoever it is listed under")
    _require_one_person_an_identity(keys)
    return Trust(threshold, {key.keyid: key for key in keys})


def _entry(number: int, entry: object) -> TrustedKey:
    # unknown names are refused: a misspelt "revoked" must not leave a key in force
    if not isinstance(entry, Mapping) or set(entry) - _OPTIONAL != _FIELDS:
        raise ValueError(f"key {number} must have exactly {', '.join(sorted(_FIELDS))}, and may have identity")
    person, roles, revoked = entry["person"], entry["roles"], entry["revoked"]
    if not isinstance(person, str) or not person.strip() or not person.isprintable():
        raise ValueError(f'"person" of key {number} must be a printable name')
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ValueError(f'"roles" of key {number} must be a list of names')
    if not isinstance(revoked, bool):
        raise ValueError(f'"revoked" of key {number} must be true or false')  # noqa: TRY004  as above
    public_key = _public_key(number, entry)
    not_before, not_after = (_bound(number, name, entry[name]) for name in ("not_before", "not_after"))
    identity = _identity(number, entry)
    return TrustedKey(key_id(public_key), public_key, person, tuple(roles), not_before, not_after, revoked, identity)


def _require_one_person_an_identity(keys: list[TrustedKey]) -> None:
    """One account under two names would let one person count as two."""
    holders: dict[Identity, str] = {}
    for key in keys:
        if key.identity is not None and holders.setdefault(key.identity, key.holder) != key.holder:
            raise ValueError(f"the account {key.identity.subject} of {key.identity.issuer} stands under two names")


def _identity(number: int, entry: Mapping[str, Any]) -> Identity | None:
    try:
        return identity_from(entry["identity"]) if "identity" in entry else None
    except ValueError as error:
        raise ValueError(f'"identity" of key {number}: {error}') from error


def _public_key(number: int, entry: Mapping[str, Any]) -> ec.EllipticCurvePublicKey:
    try:
        public_key = read_public_pem(str(entry["public_key"]))
    except ValueError as error:
        raise ValueError(f'"public_key" of key {number}: {error}') from error
    if entry["keyid"] != key_id(public_key):
        raise ValueError(f'"keyid" of key {number} is not the SHA-256 of its public key, {key_id(public_key)}')
    return public_key


def _bound(number: int, name: str, value: object) -> datetime | None:
    try:
        return None if value is None else moment_of(value)
    except ValueError as error:
        raise ValueError(f'"{name}" of key {number} must be a time such as 2026-11-30T00:00:00Z, or null') from error
