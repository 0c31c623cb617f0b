"""Signatures over bytes: exact bytes in, exact bytes out. Knows keys and envelopes, and nothing of verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import UnverifiedSignatureError
from securesystemslib.signer import CryptoSigner, SSlibKey  # type: ignore[attr-defined]  # lacks __all__

from auditlib.errors import KeyFileError
from auditlib.files import write_whole
from auditlib.release.envelope import PAYLOAD_TYPE, envelope_bytes, read_envelope
from auditlib.release.identity import Identity
from auditlib.release.keys import key_id, write_private_key
from auditlib.release.moments import stamp
from auditlib.release.refusals import RefusedError
from auditlib.release.trust import SIGNER, Trust, TrustedKey, add_entry, load_trust, new_entry


@dataclass(frozen=True, slots=True)
class Opened:
    """The payload of an envelope whose signatures all hold, and the keys that count on it."""

    payload: bytes
    keys: tuple[TrustedKey, ...]


def new_key(
    out: Path,
    person: str,
    passphrase: bytes,
    trust: Path | None = None,
    *,
    identity: Identity | None = None,
    request: Path | None = None,
) -> str:
    """Id of a new key, written encrypted to `out`; its public half goes into the trust file when one is named.

    With `request` the entry is written there instead, for whoever keeps the trust file. `identity` is the account that
    the person signs in with. KeyFileError when a file is taken, the passphrase is empty, or the trust file cannot take
    the key.
    """
    if not person.strip() or not person.isprintable():
        raise KeyFileError(f"{out}: a key needs the name of the person it belongs to; give --person NAME")
    if trust is not None and trust.exists():
        load_trust(trust)  # before a key is made that could not be entered
    if request is not None and request.exists():
        raise KeyFileError(f"{request} is there already and is not overwritten; choose another name")
    key = write_private_key(out, passphrase)
    entry = new_entry(key.public_key(), person, datetime.now(UTC), identity)
    if trust is not None:
        add_entry(trust, entry)
    if request is not None:
        write_whole(request, json.dumps(entry, indent=1, ensure_ascii=False).encode() + b"\n")
    return key_id(key.public_key())


def sign(payload: bytes, key: ec.EllipticCurvePrivateKey, envelope: bytes | None = None) -> bytes:
    """An envelope around `payload` with one more signature than `envelope` has, which must hold the same payload.

    KeyFileError when the key has signed it already.
    """
    signer = CryptoSigner(key, SSlibKey.from_crypto(key.public_key(), keyid=key_id(key.public_key())))
    signed = Envelope(payload, PAYLOAD_TYPE, {}) if envelope is None else read_envelope(envelope)
    if signed.payload != payload:
        raise RefusedError("altered", "the envelope holds another statement than the one to be signed")
    if signer.public_key.keyid in signed.signatures:
        raise KeyFileError(f"key {signer.public_key.keyid} has signed this verdict already; another reviewer must sign")
    signed.sign(signer)
    return envelope_bytes(signed)


def open_envelope(data: bytes, trust: Trust) -> Opened:
    """The payload of an envelope, after every one of its signatures was found to hold under a trusted key.

    All must hold, not just enough of them: an envelope in which anything was changed is refused as a whole. Revoked
    keys and keys without the signer's role do not count; RefusedError when too few people remain.
    """
    envelope = read_envelope(data)
    for keyid in envelope.signatures:
        if keyid not in trust.keys:
            raise RefusedError("foreign key", f"key {keyid} signed it, which is not in the trust file")
    keys = [trust.keys[keyid] for keyid in envelope.signatures]
    pae = envelope.pae()
    for key in keys:
        try:
            SSlibKey.from_crypto(key.public_key, keyid=key.keyid).verify_signature(envelope.signatures[key.keyid], pae)
        except UnverifiedSignatureError as error:
            raise RefusedError("altered", f"the signature of {_shown(key)} does not fit the content") from error
    return Opened(envelope.payload, _counted(keys, trust.threshold))


def require_valid(opened: Opened, trust: Trust, at: datetime) -> tuple[TrustedKey, ...]:
    """Keys of an opened envelope that were valid at a time; RefusedError ("threshold") when too few people remain."""
    keys = tuple(key for key in opened.keys if key.valid_at(at))
    outside = [key for key in opened.keys if key not in keys]
    if len(_people(keys)) < trust.threshold:
        named = ", ".join(map(_shown, outside)) or "nobody"
        raise RefusedError(
            "threshold", f"{_of(keys, trust.threshold)}; on {stamp(at)}, when it was signed, not valid: {named}"
        )
    return keys


def _counted(keys: list[TrustedKey], threshold: int) -> tuple[TrustedKey, ...]:
    counted = tuple(key for key in keys if not key.revoked and SIGNER in key.roles)
    if len(_people(counted)) >= threshold:
        return counted
    revoked = [key for key in keys if key.revoked]
    if revoked:
        raise RefusedError("revoked", f"{', '.join(map(_shown, revoked))} no longer counts; ask for a new verdict")
    raise RefusedError("threshold", f"{_of(counted, threshold)}; ask for another reviewer's signature")


def _people(keys: Iterable[TrustedKey]) -> set[str]:
    # keys are distinct by construction of the trust file, so people are what is left to count
    return {key.holder for key in keys}


def _of(keys: Iterable[TrustedKey], threshold: int) -> str:
    return f"signed by {len(_people(keys))} of the {threshold} people that the trust file asks for"


def _shown(key: TrustedKey) -> str:
    return f"{key.person} (key {key.keyid[:16]})"
