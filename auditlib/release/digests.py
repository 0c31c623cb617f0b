"""Digests as they are written in documents: "sha256:" and 64 hexadecimal digits."""

from __future__ import annotations

import hashlib


def digest_of(data: bytes) -> str:
    """The digest of some bytes, as "sha256:<hex>"."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def hex_of(digest: object) -> str:
    """The 64 hexadecimal digits of "sha256:<hex>"; ValueError for anything else."""
    algorithm, _, digits = digest.partition(":") if isinstance(digest, str) else ("", "", "")
    if algorithm != "sha256" or len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise ValueError("not a digest of the form sha256:<64 hexadecimal digits>")
    return digits
