"""DSSE envelopes as files: read strictly, so that a changed byte is a refusal or changes nothing that was signed.

Format: Dead Simple Signing Envelope, version 1 (github.com/secure-systems-lab/dsse), with one reading of each file:
base64 in the standard alphabet with its padding, every name exactly once, no other names.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from securesystemslib.dsse import Envelope
from securesystemslib.signer import Signature  # type: ignore[attr-defined]  # lacks __all__

from auditlib.release.documents import canonical, read_object
from auditlib.release.refusals import RefusedError

PAYLOAD_TYPE = "application/vnd.in-toto+json"

_MOST_SIGNATURES = 64
_KEY_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)


def envelope_bytes(envelope: Envelope) -> bytes:
    """The file that holds an envelope: one line of JSON."""
    return canonical(envelope.to_dict()) + b"\n"


def read_envelope(data: bytes) -> Envelope:
    """The envelope in a file, nothing of it verified; RefusedError ("malformed") for what is not exactly one."""
    try:
        document = read_object(data)
    except ValueError as error:
        raise RefusedError("malformed", f"the verdict is no envelope: {error}") from error
    if set(document) != {"payload", "payloadType", "signatures"}:
        raise RefusedError("malformed", "an envelope has payload, payloadType and signatures, and nothing else")
    if document["payloadType"] != PAYLOAD_TYPE:
        raise RefusedError("malformed", f"the payload type is not {PAYLOAD_TYPE}")
    return Envelope(_decoded("payload", document["payload"]), PAYLOAD_TYPE, _signatures(document["signatures"]))


def _signatures(listed: Any) -> dict[str, Signature]:
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MOST_SIGNATURES:
        raise RefusedError("malformed", f"an envelope needs 1 to {_MOST_SIGNATURES} signatures")
    signatures: dict[str, Signature] = {}
    for number, entry in enumerate(listed, 1):
        if not isinstance(entry, dict) or set(entry) != {"keyid", "sig"}:
            raise RefusedError("malformed", f"signature {number} has keyid and sig, and nothing else")
        keyid = entry["keyid"]
        if not isinstance(keyid, str) or not _KEY_ID.fullmatch(keyid):
            raise RefusedError("malformed", f"signature {number} has a key id that is not 64 hexadecimal digits")
        if keyid in signatures:
            raise RefusedError("malformed", f"signature {number} is a second one by key {keyid}")
        signatures[keyid] = Signature(keyid, _decoded(f"signature {number}", entry["sig"]).hex())
    return signatures


def _decoded(what: str, text: Any) -> bytes:
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        data = b""
    # the last character before the padding has bits that decode to nothing: encode again to see whether they are zero
    if not data or base64.b64encode(data).decode() != text:
        raise RefusedError("malformed", f"{what} is not base64 in its one standard form")
    return data
