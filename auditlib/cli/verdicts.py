"""Verbs on verdicts: keys, sign, verify."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from pathlib import Path

from auditlib.cli.output import add_json_option, emit, say
from auditlib.cli.passphrase import add_passphrase, passphrase
from auditlib.errors import InputError
from auditlib.release.bundles import write_bundles
from auditlib.release.identity import Identity
from auditlib.release.ledger import read_ledger
from auditlib.release.moments import stamp
from auditlib.release.signing import new_key
from auditlib.release.trust import add_entry, read_entry
from auditlib.release.verdict import sign_run, verify_verdict
from auditlib.runs.folder import open_run

SAYS_NO = 1

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `keys new`, `keys add`, `sign` and `verify`."""
    _add_keys(verbs)
    sign = verbs.add_parser("sign", help="sign the verdict of a run")
    sign.add_argument("--run", type=Path, required=True, metavar="R", dest="run_folder")
    sign.add_argument("--key", type=Path, required=True, metavar="K.pem")
    sign.add_argument("--out", type=Path, required=True, metavar="verdict.dsse.json")
    sign.add_argument("--append", action="store_true", help="add a reviewer's signature to an existing file")
    sign.add_argument(
        "--decision", choices=["approve", "refuse"], help="the reviewer's decision (default: what the gate says)"
    )
    sign.add_argument("--comment", default="", help="the reviewer's comment, signed with the rest")
    sign.add_argument("--trust", type=Path, metavar="trust.json", help="refuse a key that this file does not trust")
    sign.add_argument("--artifact", type=Path, metavar="FOLDER", help="packaged artifact to name in the verdict")
    sign.add_argument(
        "--evidence", type=Path, action="append", default=[], metavar="FILE",
        help="what bench, replay or rehearse wrote about the artifact, signed with it (repeatable)",
    )  # fmt: skip
    sign.add_argument("--previous", type=Path, metavar="FILE", help="the verdict that this one follows")
    sign.add_argument("--ledger", type=Path, metavar="FILE", help="list of verdicts that this one is added to")
    sign.add_argument("--bundles", type=Path, metavar="FOLDER", help="also write one Sigstore bundle a reviewer there")
    add_passphrase(sign)
    sign.set_defaults(run=_sign)
    verify = verbs.add_parser("verify", help="verify a verdict against a trust file")
    verify.add_argument("verdict", type=Path, metavar="verdict.dsse.json")
    verify.add_argument("--trust", type=Path, required=True, metavar="trust.json")
    verify.add_argument("--artifact", type=Path, metavar="FOLDER", help="packaged artifact that the verdict must name")
    verify.add_argument("--revision", type=Path, metavar="FOLDER", help="revision that the verdict must name")
    verify.add_argument(
        "--evidence", type=Path, action="append", default=[], metavar="FILE",
        help="evidence document that the verdict must name (repeatable)",
    )  # fmt: skip
    verify.add_argument("--report", type=Path, metavar="FILE", help="report.json that the verdict must name")
    verify.add_argument("--previous", type=Path, metavar="FILE", help="the verdict that this one must follow")
    verify.add_argument(
        "--ledger", type=Path, metavar="FILE", help="list of verdicts that this one must stand at the end of"
    )
    verify.add_argument("--max-age", metavar="30d", help="refuse a verdict older than this (s, m, h, d, w)")
    add_json_option(verify)
    verify.set_defaults(run=_verify)


def _add_keys(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = verbs.add_parser("keys", help="make a reviewer's key, or trust one").add_subparsers(
        dest="action", required=True
    )
    new = keys.add_parser("new", help="a new encrypted signing key, and its public half in a trust file")
    new.add_argument("--out", type=Path, required=True, metavar="K.pem")
    new.add_argument("--person", required=True, metavar="NAME")
    new.add_argument("--trust", type=Path, metavar="trust.json", help="trust file to add the public key to")
    new.add_argument(
        "--identity", nargs=2, metavar=("ISSUER", "SUBJECT"),
        help="account that the person signs in with at the dashboard, as it shows it",
    )  # fmt: skip
    new.add_argument("--request", type=Path, metavar="FILE", help="write the trust file's entry there, for its keeper")
    add_passphrase(new)
    new.set_defaults(run=_new_key)
    add = keys.add_parser("add", help="add a key that its owner asks for to a trust file")
    add.add_argument("request", type=Path, metavar="FILE", help="what `keys new --request` or the dashboard wrote")
    add.add_argument("--trust", type=Path, required=True, metavar="trust.json")
    add_json_option(add)
    add.set_defaults(run=_add_key)


def max_age(text: str | None) -> timedelta | None:
    """A span such as 30d or 12h; InputError for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,6})([smhdw])", text)
    if match is None:
        raise InputError(f"--max-age {text!r} is no span of time; write a number and s, m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _new_key(options: argparse.Namespace) -> int:
    """Make a key pair; the public half goes into the trust file."""
    account = _account(options.identity)
    keyid = new_key(
        options.out,
        options.person,
        passphrase(options, new=True),
        options.trust,
        identity=account,
        request=options.request,
    )
    where = f"; its public half is in {options.trust}" if options.trust else "; hand its public half out with --trust"
    if options.request:
        where = f"; hand {options.request} to whoever keeps the trust file, for `keys add`"
    say(options, f"{options.out}: encrypted key of {options.person}, id {keyid}{where}")
    emit(options, {"format": 1, "key": str(options.out), "keyid": keyid, "person": options.person})
    return 0


def _account(given: list[str] | None) -> Identity | None:
    """The account named on the command line; InputError for one that no provider could have sent."""
    try:
        return Identity(*given) if given else None
    except ValueError as error:
        raise InputError(f"--identity: {error}; copy both from the dashboard's sidebar") from error


def _add_key(options: argparse.Namespace) -> int:
    """Enter a key into the trust file, and say whose it is: the keeper must know that this person asked."""
    key = add_entry(options.trust, read_entry(options.request))
    account = f"signs in as {key.identity.subject} at {key.identity.issuer}" if key.identity else "signs in nowhere"
    until = stamp(key.not_after) if key.not_after else "for ever"
    say(
        options,
        f"{options.trust}: key {key.keyid} of {key.person}, who {account}; "
        f"roles {', '.join(key.roles) or 'none'}, until {until}",
    )
    emit(
        options,
        {
            "format": 1,
            "trust": str(options.trust),
            "keyid": key.keyid,
            "person": key.person,
            "identity": key.identity.to_dict() if key.identity else None,
        },
    )
    return 0


def _sign(options: argparse.Namespace) -> int:
    """Sign a run's verdict after checking every file of the run."""
    run = open_run(options.run_folder)
    run.verify()
    signed = sign_run(
        run.folder,
        run.report,
        run.manifest,
        options.key,
        passphrase(options),
        options.decision,
        options.comment,
        options.out,
        options.append,
        trust=options.trust,
        artifact=options.artifact,
        evidence=options.evidence,
        previous=options.previous,
        ledger=options.ledger,
    )
    bundles = () if options.bundles is None else write_bundles(signed.path, options.bundles)
    document = {"format": 1, "out": str(signed.path), "digest": signed.digest, "result": signed.result}
    document |= {"sequence": signed.sequence, "keyid": signed.keyid, "signatures": signed.signatures}
    said = f"{signed.path}: verdict {signed.result} on run {run.id}, {signed.signatures} signature(s)"
    say(options, "\n".join([said, *signed.shortfalls]))
    emit(options, {**document, "bundles": [str(path) for path in bundles]})
    return 0


def _verify(options: argparse.Namespace) -> int:
    """Verify; nothing is printed about the result before all of it holds."""
    if options.ledger is not None:
        read_ledger(options.ledger, begun=True)
    verified = verify_verdict(
        options.verdict,
        options.trust,
        artifact=options.artifact,
        revision=options.revision,
        report=options.report,
        evidence=options.evidence,
        max_age=max_age(options.max_age),
        previous=options.previous,
        ledger=options.ledger,
    )
    statement = verified.statement
    people = sorted(signer.person for signer in verified.signers)  # signatures stand in the order of key ids
    lines = [
        f"verified: signed by {', '.join(people)}, {verified.age.total_seconds() / 3600:.1f} hours ago",
        f"compared with: {', '.join(verified.compared) or 'nothing but the trust file; name --revision to compare it'}",
        f"run {statement.run}, decision {statement.review.decision}: {statement.review.comment or 'no comment'}",
        f"result: {verified.result}",
    ]
    say(options, "\n".join(lines))
    emit(
        options,
        {
            "format": 1,
            "result": verified.result,
            "run": statement.run,
            "signers": [{"person": s.person, "keyid": s.keyid} for s in verified.signers],
            "age_seconds": verified.age.total_seconds(),
            "compared": list(verified.compared),
            "digest": statement.digest,
            "decision": statement.review.decision,
            "comment": statement.review.comment,
        },
    )
    return 0 if verified.says_yes else SAYS_NO
