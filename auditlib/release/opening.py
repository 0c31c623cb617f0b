"""A verdict file opened: signatures first, and only then what was signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from auditlib.errors import InputError
from auditlib.release.reading import Statement, parse_statement
from auditlib.release.refusals import RefusedError
from auditlib.release.signing import open_envelope, require_valid
from auditlib.release.trust import Trust


@dataclass(frozen=True, slots=True)
class Signer:
    """Somebody whose signature counts."""

    person: str
    keyid: str


def open_verdict(source: Path | bytes, trust: Trust) -> tuple[Statement, tuple[Signer, ...]]:
    """The statement of a verdict and who signed it; RefusedError unless the trust file is satisfied.

    Keys must have been valid at the time that the statement gives, and the reviewer whose decision it states must be
    one of those who count.
    """
    opened = open_envelope(source if isinstance(source, bytes) else verdict_bytes(source), trust)
    statement = parse_statement(opened.payload)
    keys = require_valid(opened, trust, statement.time)
    _require_reviewer(statement, trust, {key.keyid for key in keys})
    return statement, tuple(Signer(key.person, key.keyid) for key in keys)


def verdict_bytes(path: Path) -> bytes:
    """Content of a verdict file; InputError when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the verdict cannot be read: {error.strerror}; give the path of its file") from error


def _require_reviewer(statement: Statement, trust: Trust, counted: set[str]) -> None:
    keyid = statement.review.keyid
    if keyid in counted:
        return
    if keyid in trust.keys and trust.keys[keyid].revoked:
        raise RefusedError("revoked", f"the decision is by {trust.keys[keyid].person}, whose key was revoked")
    raise RefusedError("threshold", "the reviewer whose decision it states is none of those whose signatures count")
