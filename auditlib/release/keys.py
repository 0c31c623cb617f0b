"""Reviewers' keys: ECDSA over P-256, private halves encrypted, ids derived from the public half.

A key id is the SHA-256 of the DER form of the public key (SubjectPublicKeyInfo, RFC 5280), so one key has one id.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from auditlib.errors import KeyFileError

_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PLAIN = b"-----BEGIN PRIVATE KEY-----"


def key_id(public_key: ec.EllipticCurvePublicKey) -> str:
    """64 hexadecimal digits that name a public key."""
    der = public_key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def public_pem(public_key: ec.EllipticCurvePublicKey) -> str:
    """A public key as PEM text."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return public_key.public_bytes(serialization.Encoding.PEM, form).decode()


def read_public_pem(text: str) -> ec.EllipticCurvePublicKey:
    """The P-256 public key in PEM text; ValueError for anything else."""
    try:
        key = serialization.load_pem_public_key(text.encode())
    except Exception as error:  # cryptography raises its own errors beside ValueError for keys it does not know
        raise ValueError("no readable public key") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ValueError("not an ECDSA key over P-256")  # noqa: TRY004  callers know one error for a bad key
    return key


def write_private_key(path: Path, passphrase: bytes) -> ec.EllipticCurvePrivateKey:
    """A new key, written to `path` as encrypted PKCS#8, readable by its owner only.

    KeyFileError, with nothing changed, for an empty passphrase and for a path that is taken.
    """
    if not passphrase:
        raise KeyFileError(f"{path}: a key needs a passphrase; give one that is not empty")
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = serialization.BestAvailableEncryption(passphrase)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Its mode from the first moment: a chmod afterwards would leave it readable in between.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path} is there already and a key is never overwritten; choose another name") from None
    except OSError as error:
        raise KeyFileError(f"{path}: the key cannot be written: {error.strerror}; choose another folder") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    return key


def load_key(path: Path, passphrase: bytes) -> ec.EllipticCurvePrivateKey:
    """The private key in a PKCS#8 file; KeyFileError says what is wrong with the file, its mode or the passphrase."""
    pem = _private_pem(path)
    encrypted = _ENCRYPTED in pem
    try:
        key = serialization.load_pem_private_key(pem, passphrase if encrypted else None)
    except Exception as error:  # a wrong passphrase and a damaged file are told apart by nobody, cryptography included
        cause = "the passphrase is wrong or the file is damaged" if encrypted else "the file is damaged"
        raise KeyFileError(f"{path}: {cause}; try again, or take another key") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        raise KeyFileError(f"{path} is not an ECDSA key over P-256; make one with `python -m auditlib keys new`")
    return key


def _private_pem(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            pem = file.read(1 << 16)
            # Of the file that was read, and not of what may have its name by now.
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise KeyFileError(f"{path}: the key cannot be read: {error.strerror}; give the path of a key file") from error
    if _ENCRYPTED not in pem and _PLAIN not in pem:
        raise KeyFileError(f"{path} is not a PKCS#8 key; convert it with `openssl pkcs8 -topk8`")
    if _ENCRYPTED not in pem and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise KeyFileError(f"{path} is not encrypted and others may read it; run `chmod 600` on it, or encrypt it")
    return pem
