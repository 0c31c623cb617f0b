"""A verdict as Sigstore bundles, one a reviewer, for verifiers that hold none of our code.

Format: Sigstore bundle 0.3 (github.com/sigstore/protobuf-specs), which takes exactly one signature. The key is named
by its id and not enclosed: whoever verifies brings the key that they trust.
"""

from __future__ import annotations

from pathlib import Path

from auditlib.errors import InputError
from auditlib.files import write_whole
from auditlib.release.documents import canonical
from auditlib.release.envelope import read_envelope

_MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"


def bundles_of(envelope: bytes) -> dict[str, bytes]:
    """One bundle for each signature of an envelope, by key id; nothing is verified by this."""
    document = read_envelope(envelope).to_dict()
    return {
        signature["keyid"]: canonical(
            {
                "mediaType": _MEDIA_TYPE,
                "verificationMaterial": {
                    "publicKey": {"hint": signature["keyid"]},
                    "tlogEntries": [],
                    "timestampVerificationData": {"rfc3161Timestamps": []},
                },
                "dsseEnvelope": {**document, "signatures": [signature]},
            }
        )
        for signature in document["signatures"]
    }


def write_bundles(verdict: Path, folder: Path) -> tuple[Path, ...]:
    """Write a bundle for each reviewer of a verdict file into `folder`; gives their paths, in the order of signing."""
    try:
        envelope = verdict.read_bytes()
    except OSError as error:
        raise InputError(
            f"{verdict}: the verdict cannot be read: {error.strerror}; give the path of its file"
        ) from error
    paths = []
    for keyid, bundle in bundles_of(envelope).items():
        paths.append(folder / f"{verdict.name.partition('.')[0]}.{keyid[:16]}.sigstore.json")
        write_whole(paths[-1], bundle + b"\n")
    return tuple(paths)
