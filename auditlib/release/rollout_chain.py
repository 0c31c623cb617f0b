"""The chain of a rollout: a file that only grows, one signed transition a line, verified whole each time it is read.

A chain that was cut at its end is sound as far as it goes. So a second file, `<chain>.head`, names the newest
transition that was written here; for stronger anchors, note the head elsewhere and give it when reading.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from auditlib.errors import InputError, KeyFileError
from auditlib.files import write_whole
from auditlib.release.documents import canonical, read_object
from auditlib.release.keys import key_id
from auditlib.release.ledger import held
from auditlib.release.refusals import RefusedError
from auditlib.release.rollout_course import follow
from auditlib.release.rollout_plan import Plan
from auditlib.release.rollout_standing import Standing
from auditlib.release.rollout_transition import Transition, digest_of, parse_transition, transition_bytes
from auditlib.release.signing import open_envelope, require_valid, sign
from auditlib.release.trust import Trust


@dataclass(frozen=True, slots=True)
class Chain:
    """A verified chain: its moves, its plan, where it stands, and the digest of its newest move."""

    moves: tuple[Transition, ...]
    people: tuple[str, ...]
    plan: Plan
    standing: Standing
    head: str


def read_chain(path: Path, trust: Trust, head: str | None = None) -> Chain:
    """The chain in a file. RefusedError when anything in it was changed, cut off, reordered or signed by others.

    `head`: digest of a transition that must be in it, noted when it was the newest. One trusted signer is enough for a
    move, whatever threshold verdicts need.
    """
    lines = _lines(path)
    opened = [_open(line, number, replace(trust, threshold=1)) for number, line in enumerate(lines, 1)]
    moves = tuple(move for move, _ in opened)
    plan, standing = follow(moves)
    digests = [digest_of(transition_bytes(move)) for move in moves]
    for known in (_written_head(path), head):
        # In it, not its newest: a head that was noted once stays good while the chain grows.
        if known is not None and known not in digests:
            raise RefusedError("replayed", f"{path.name} lacks a transition that was in it before; restore it whole")
    return Chain(moves, tuple(person for _, person in opened), plan, standing, digests[-1])


def begin_chain(path: Path, first: Transition, key: ec.EllipticCurvePrivateKey, trust: Trust) -> Chain:
    """Write a new chain with its first transition; InputError when the file is there already."""
    follow([first])
    with held(path):
        if path.exists() or _head_file(path).exists():
            raise InputError(f"{path} or its head is there already; a rollout starts a chain of its own, name another")
        _append(path, b"", first, key, trust)
    return read_chain(path, trust)


def extend_chain(
    path: Path, trust: Trust, key: ec.EllipticCurvePrivateKey, move: Callable[[Chain], Transition | None]
) -> Chain:
    """The chain with the transition that `move` makes of it, or as it was when that is None.

    Others wait meanwhile, so the move is made from the state that it is appended to.
    """
    with held(path):
        chain = read_chain(path, trust)
        made = move(chain)
        if made is None:
            return chain
        follow([*chain.moves, made])
        _append(path, path.read_bytes(), made, key, trust)
    return read_chain(path, trust)


def _append(path: Path, before: bytes, move: Transition, key: ec.EllipticCurvePrivateKey, trust: Trust) -> None:
    if move.keyid != key_id(key.public_key()):
        raise KeyFileError("the transition names another key than the one that signs it")
    line = sign(transition_bytes(move), key)
    _open(line.rstrip(b"\n"), move.sequence, replace(trust, threshold=1))  # what readers would refuse is not written
    write_whole(path, before + line)
    # last: a chain that is one move ahead of its head is sound, a head ahead of its chain is not
    write_whole(_head_file(path), canonical({"format": 1, "head": digest_of(transition_bytes(move))}) + b"\n")


def _lines(path: Path) -> list[bytes]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: the chain cannot be read: {error.strerror}; give the path of its file") from error
    if not data.endswith(b"\n"):
        raise RefusedError("malformed", f"{path.name} does not end with a whole line; restore it from a copy")
    return data[:-1].split(b"\n")


def _open(line: bytes, number: int, trust: Trust) -> tuple[Transition, str]:
    try:
        opened = open_envelope(line, trust)
        move = parse_transition(opened.payload)
        keys = require_valid(opened, trust, move.time)
    except RefusedError as error:
        raise RefusedError(error.reason, f"transition {number}: {error}") from error
    signers = {key.keyid: key.person for key in keys}
    if list(signers) != [move.keyid]:
        raise RefusedError("foreign key", f"transition {number} is not signed by the one who made it, and nobody else")
    return move, signers[move.keyid]


def _head_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _written_head(path: Path) -> str:
    try:
        return str(read_object(_head_file(path).read_bytes())["head"])
    except (OSError, ValueError, KeyError) as error:
        raise RefusedError(
            "replayed", f"{path.name}.head is missing or damaged, so a cut-off chain could not be told; restore both"
        ) from error
