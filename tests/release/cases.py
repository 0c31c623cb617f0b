"""Runs, keys and people that the tests of this room stand on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from auditlib.files import sha256_of
from auditlib.release.checks import Measured
from auditlib.release.documents import canonical
from auditlib.release.judge import judge
from auditlib.release.keys import key_id, public_pem
from auditlib.release.limits import limits_from
from auditlib.release.serving_limits import LIMITS_OF
from auditlib.release.signing import sign
from auditlib.release.subjects import held_against

ROWS = limits_from(None).rows
SETTINGS = {"greedy": "greedy", "sampled": "sampled", "beam": "beam"}
COMPARISONS = {f"{name} without order mask": kind for name, kind in SETTINGS.items()}
PASSPHRASE = b"correct horse"
NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Number:
    name: str
    value: object
    unit: str = "unit"
    count: object = 40


def names_of(limit, settings=SETTINGS):
    """What the measurements of a limit are called."""
    if not limit.per_setting:
        return [limit.check]
    return [f"{name}: {limit.check}" for name, kind in settings.items() if not limit.kinds or kind in limit.kinds]


def sound():
    """What all audits measured on a decoder without a fault, every optional probe included."""
    found = {}
    for limit in ROWS:
        if limit.stand_in_for is None:
            names = [*names_of(limit), *(names_of(limit, COMPARISONS) if limit.per_setting else [])]
            found.setdefault(limit.audit, []).extend(Number(name, 0.0) for name in names)
    for audit in ("cache parity", "cache identity"):
        found[audit].append(Number("tolerance", 4e-5, "logit"))
    found["training"].append(Number("held-out accuracy", 0.71, "share"))
    return {audit: Measured(tuple(numbers)) for audit, numbers in found.items()}


def changed(measured, audit, name, **fields):
    """The same, with one measurement changed; without fields it is taken away."""
    old = measured[audit]
    numbers = [replace(one, **fields) if one.name == name else one for one in old.measurements]
    if not fields:
        numbers = [one for one in numbers if one.name != name]
    return {**measured, audit: replace(old, measurements=tuple(numbers))}


def judged(measured, limits=None, settings=SETTINGS, comparisons=COMPARISONS):
    return judge(measured, settings, comparisons, limits_from(limits)).to_report()


def self_checked(measured):
    """The same with what the self-check adds: two planted faults in each of two audits, none in the others."""
    seen = Number("planted faults missed", 0, "faults", 2)
    return {
        audit: replace(found, measurements=(*found.measurements, seen))
        if audit in ("causality", "cache parity") and found.problem is None
        else replace(found, not_applicable={**found.not_applicable, seen.name: "none can be planted"})
        for audit, found in measured.items()
    }


def planted():
    """Rows of a table of planted faults, as many as `self_checked` says, and one that cannot be planted."""
    rows = [
        ("a leak", "causality", "caught"), ("no mask", "causality", "caught"), ("rows swap", "cache parity", "caught"),
        ("rows copied twice", "cache parity", "equivalent"), ("16 bits", "numerics", "not applicable"),
    ]  # fmt: skip
    return [
        {
            "fault": fault, "audit": audit, "check": "a check", "outcome": outcome,
            "margin": 12.5 if outcome == "caught" else None, "reason": "" if outcome == "caught" else "for a reason",
        }
        for fault, audit, outcome in rows
    ]  # fmt: skip


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@dataclass(frozen=True)
class RunOnDisk:
    folder: Path
    revision: Path
    report: dict = field(repr=False)
    manifest: dict = field(repr=False)


def write_run(root: Path, measured=None, name="20261130T120000Z-0a1b2c3d", serving=None) -> RunOnDisk:
    """A run folder and the revision it is about; `serving` is what its policy asks of serving."""
    policy = {"format": 1, "max_new_events": 32, **({} if serving is None else {"serving": serving})}
    revision = root / "revision"
    if not revision.exists():
        write_revision(revision)
    revision_digest = f"sha256:{hashlib.sha256((revision / 'revision.json').read_bytes()).hexdigest()}"
    folder = root / "runs" / name
    folder.mkdir(parents=True)
    report = {
        "format": 1, "run": name, "created": "2026-11-30T12:00:00+00:00", "revision": revision_digest,
        "revision_name": "event-gpt-test", "snapshot": digest("rows"), "dtype": "float32",
        **judge(
            self_checked(sound() if measured is None else measured), SETTINGS, COMPARISONS,
            limits_from(None, self_check=True), awaited=() if serving is None else ("serving limits",),
        ).to_report(),
        "self_check": {"ran": True, "problem": None, "faults": planted()},
    }  # fmt: skip
    (folder / "report.json").write_bytes(canonical(report))
    (folder / "policy.json").write_bytes(canonical(policy))
    manifest = {
        "format": 1, "run": name, "created": report["created"],
        "revision": {"name": "event-gpt-test", "digest": revision_digest, "folder": "revision"},
        "snapshot": {"digest": digest("rows"), "file": "store.duckdb", "file_sha256": digest("file")},
        "policy": {"digest": digest("policy"), "document": policy},
        "event_map": {"version": "1", "digest": digest("map")},
        "event_order": {"version": "2", "digest": digest("order")},
        "device": {"device": "cpu", "processor": "test"}, "versions": {"python": "3.11"},
        "code": {"version": "0.1.0", "digest": digest("code")}, "seed": 0, "dtype": "float32",
        "files": {name: sha256_of(folder / name) for name in ("policy.json", "report.json")},
    }  # fmt: skip
    (folder / "manifest.json").write_bytes(canonical(manifest))
    return RunOnDisk(folder, revision, report, manifest)


def write_artifact(folder: Path, made: RunOnDisk, **changed) -> None:
    """What `package` would write of a run, as far as a verdict looks at it: one file, and the list of files."""
    (folder / "revision").mkdir(parents=True)
    (folder / "revision" / "event_order.json").write_text("{}")
    (folder / "policy.json").write_bytes((made.folder / "policy.json").read_bytes())
    report, manifest, said = (made.folder / "report.json").read_bytes(), made.manifest, made.report["decision"]
    blocked = {name: ["why"] if said["decoding"][name] == "blocked" else [] for name in said["proposed"]}
    document = {
        "run": made.report["run"], "report": f"sha256:{hashlib.sha256(report).hexdigest()}",
        "revision": {"digest": made.report["revision"]}, "policy": manifest["policy"]["digest"],
        "snapshot": manifest["snapshot"]["digest"], "code": manifest["code"], "dtype": manifest["dtype"],
        "tolerance": {"value": held_against(made.report), "device": manifest["device"]},
        "blocked": {"cache_acceleration": ["why"] * (said["cache_acceleration"] == "blocked"), "decoding": blocked},
        "files": {
            "revision/event_order.json": digest("{}"), "policy.json": manifest["files"]["policy.json"],
        },
        **changed,
    }  # fmt: skip
    (folder / "artifact.json").write_bytes(canonical(document))


def whole_checks(kind: str) -> list[dict]:
    """Every check that a document of this kind has, passed; in a bench after three limits that a policy states."""
    stated = [("serving limits", name, "ms", 40.0, 50) for name in ("first event p95", "whole request p95")]
    stated.append(("serving limits", "invalid sequences", "share", 0.0009, 0.001))
    own = [
        (limit.audit, limit.check, limit.unit, 0, 4e-5 if limit.at_most == "tolerance" else limit.at_most)
        for limit in LIMITS_OF.get(kind, LIMITS_OF["replay"])
    ]
    names = ("audit", "name", "unit", "value", "limit")
    return [
        {**dict(zip(names, one, strict=True)), "count": 3000, "status": "passed", "reason": "within limit"}
        for one in [*(stated if kind == "bench" else []), *own]
    ]


def evidence_document(about: Path, kind="bench", **changed) -> dict:
    """What a bench, a replay or a rehearsal of an artifact writes, with all checks passed."""
    digest_of_it = f"sha256:{hashlib.sha256((about / 'artifact.json').read_bytes()).hexdigest()}"
    stated = {"first event p95": 50, "whole request p95": 50, "invalid sequences": 0.001}
    own = {"stated": stated} if kind == "bench" else {}
    return {
        "format": 1, "kind": kind, "artifact": digest_of_it, "created": "2026-11-30T12:00:00+00:00",
        "device": {"device": "cpu"}, "status": "passed", "checks": whole_checks(kind), "not_applicable": {}, **own,
        **changed,
    }  # fmt: skip


def write_evidence(path: Path, document: dict) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def write_revision(folder: Path, weights: bytes = b"weights") -> None:
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(weights)
    files = {"model.safetensors": f"sha256:{hashlib.sha256(weights).hexdigest()}"}
    (folder / "revision.json").write_text(json.dumps({"format": 1, "name": "event-gpt-test", "files": files}))


@cache
def private_key(person: str) -> ec.EllipticCurvePrivateKey:
    """One key a person for the whole test run: making them costs more than using them."""
    return ec.generate_private_key(ec.SECP256R1())


def key_file(folder: Path, person: str, *, encrypted: bool = True) -> Path:
    path = folder / f"{person}.pem"
    protection = serialization.BestAvailableEncryption(PASSPHRASE) if encrypted else serialization.NoEncryption()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    path.write_bytes(private_key(person).private_bytes(*form, protection))
    path.chmod(0o600)
    return path


def trusted(*people: str, threshold: int = 1, **fields) -> dict:
    """A trust document; `fields` are put over every entry."""
    return {"format": 1, "threshold": threshold, "keys": [entry(person, **fields) for person in people]}


def entry(who: str, **fields) -> dict:
    public = private_key(who).public_key()
    return {
        "keyid": key_id(public), "public_key": public_pem(public), "person": who.title(),
        "roles": ["release-signer"], "not_before": "2026-01-01T00:00:00Z", "not_after": "2027-12-31T00:00:00Z",
        "revoked": False, **fields,
    }  # fmt: skip


def keyid(person: str) -> str:
    return key_id(private_key(person).public_key())


def signed(payload: bytes, *people: str) -> bytes:
    """An envelope around any payload, signed by these people."""
    envelope = None
    for person in people:
        envelope = sign(payload, private_key(person), envelope)
    return envelope
