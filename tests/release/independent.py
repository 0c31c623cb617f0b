"""A second verifier of contract 4, from its text, with `cryptography` and none of our code: ninety lines to read.

It gives the predicate of a verdict that holds. Any exception is a no.
"""
# ruff: noqa: E401, E731, I001, PT018  the ninety lines are the point

import base64, hashlib, json
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import hashes, serialization as form
from cryptography.hazmat.primitives.asymmetric import ec

TYPES = ("https://in-toto.io/Statement/v1", "https://in-toto.io/attestation/test-result/v0.1")
MISSED, CHECK = "planted faults missed", {"audit", "name", "unit", "status", "value", "limit", "count"}
KIND, SPKI = "application/vnd.in-toto+json", (form.Encoding.DER, form.PublicFormat.SubjectPublicKeyInfo)
sha = lambda data: hashlib.sha256(data).hexdigest()


def strict(data):
    unique = {"object_pairs_hook": lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else 1 / 0}
    finite = {"parse_constant": lambda _: 1 / 0, "parse_float": lambda x: float(x) if abs(float(x)) < 1e308 else 1 / 0}
    return json.loads(data.decode(), **unique, **finite)


def unbase64(text):
    data = base64.b64decode(text, validate=True)
    return data if data and base64.b64encode(data).decode() == text else 1 / 0


def opened(data, trust):
    """The payload, after all signatures were found to hold, and the trusted keys that count on it."""
    env, keys = strict(data), {one["keyid"]: one for one in trust["keys"] if len(one) == 7 and "revoked" in one}
    payload, sigs = unbase64(env["payload"]), {one["keyid"]: unbase64(one["sig"]) for one in env["signatures"]}
    assert set(env) == {"payload", "payloadType", "signatures"} and env["payloadType"] == KIND and len(data) <= 2**23
    assert 0 < len(sigs) == len(env["signatures"]) and all(len(one) == 2 for one in env["signatures"])
    for one in trust["keys"]:
        public = form.load_pem_public_key(one["public_key"].encode())
        assert sha(public.public_bytes(*SPKI)) == one["keyid"] and len(keys) == len(trust["keys"])
        if one["keyid"] in sigs:
            pae = b"DSSEv1 %d %s %d %s" % (len(KIND), KIND.encode(), len(payload), payload)
            public.verify(sigs[one["keyid"]], pae, ec.ECDSA(hashes.SHA256()))
    return payload, [one for one in map(keys.get, sigs) if not one["revoked"] and "release-signer" in one["roles"]]


def require_yes(said, mine, decision):
    assert [*said["failedTests"], *said["failures"], *said["not_measured"]] == [] != said["passedTests"] and mine
    assert all(one["status"] == "passed" and one["value"] <= one["limit"] and one["count"] > 0 for one in mine)
    assert said["passedTests"] == [f"{one['audit']}: {one['name']}" for one in mine]
    answers = {decision["decoding"][name] for name in decision["proposed"]}
    assert answers == {decision["cache_acceleration"]} == {"allowed"}


def require_version_2(said, subjects, rows, serving):
    files = {name: f"sha256:{digest}" for name, digest in subjects.items() if name.startswith("evidence/")}
    assert files == {f"evidence/{one['kind']}.json": one["digest"] for one in said["evidence"]}
    for one in said["evidence"]:
        assert one["artifact"] == f"sha256:{subjects['artifact/artifact.json']}" and one["checks"] and len(one) == 6
        assert one["kind"] in ("bench", "replay") and one["name"] == f"evidence/{one['kind']}.json"
        assert all(set(check) == CHECK for check in one["checks"])
        assert said["result"] == "FAILED" or one["status"] == "passed"
    if said["result"] == "PASSED" and serving is not None:
        (bench,) = [one["checks"] for one in said["evidence"] if one["kind"] == "bench"]
        limits = {check["name"]: check["limit"] for check in bench}
        assert all(limits[name] <= most for name, most in serving.get("limits", {}).items())
    ends = {audit: dict.fromkeys(counts, 0) for audit, counts in said["planted_faults"]["audits"].items()}
    for row in rows:
        ends[row["audit"]][row["outcome"]] += 1
    assert ends == said["planted_faults"]["audits"] and len({row["fault"] for row in rows}) == len(rows)
    missed = {one["audit"]: one["value"] for one in said["checks"] if one["name"] == MISSED and one["count"]}
    assert all(ends[audit]["missed"] + ends[audit]["false alarm"] == value for audit, value in missed.items())
    assert said["planted_faults"]["ran"] or not rows


def require_same(folder, wanted):
    assert wanted and not any(path.is_symlink() for path in folder.rglob("*"))
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {path.relative_to(folder).as_posix(): sha(path.read_bytes()) for path in files} == wanted


def verify(
    data, trust, now, max_age=timedelta(9999), revision=None, artifact=None, report=None, evidence=(), previous=None
):
    payload, keys = opened(data, trust)
    document, said, at = strict(payload), strict(payload)["predicate"], datetime.fromisoformat
    time, number = at(said["time"]), said["sequence"]
    keys = [one for one in keys if at(one["not_before"]) <= time <= at(one["not_after"])]
    assert len({" ".join(one["person"].casefold().split()) for one in keys}) >= trust["threshold"] >= 1
    assert said["review"]["keyid"] in [one["keyid"] for one in keys]
    assert (document["_type"], document["predicateType"], time.tzinfo) == (*TYPES, UTC) and said["version"] in (1, 2)
    assert type(number) is int and number >= 1 and (number == 1) == (said["previous"] is None)
    subjects = {one["name"]: bytes.fromhex(one["digest"]["sha256"]).hex() for one in document["subject"]}
    assert len(subjects) == len(document["subject"]) and "report.json" in subjects
    assert said["revision"]["digest"] == f"sha256:{subjects['revision.json']}"
    assert said["result"] == {"approve": "PASSED", "refuse": "FAILED"}[said["review"]["decision"]]
    if said["result"] == "PASSED":
        mine = [one for one in said["checks"] if not one.get("comparison")]
        mine += [check for one in said.get("evidence", []) for check in one["checks"]]
        require_yes(said, mine, said["decision"])
    if said["version"] is not True and said["version"] == 2:
        (policy,) = [one["annotations"]["document"] for one in said["configuration"] if one["name"] == "policy"]
        require_version_2(said, subjects, said["planted_faults"]["faults"], policy.get("serving"))
    else:
        assert said["version"] is not True and not {"evidence", "planted_faults"} & set(said)
        assert not any(name.startswith("evidence/") for name in subjects)
    assert (said["result"] == "PASSED" or said["failedTests"]) and -timedelta(minutes=5) <= now - time <= max_age
    if revision is not None:
        listed = {name: one[7:] for name, one in strict((revision / "revision.json").read_bytes())["files"].items()}
        require_same(revision, {**listed, "revision.json": subjects["revision.json"]})
    if artifact is not None:
        require_same(artifact, {name[9:]: one for name, one in subjects.items() if name.startswith("artifact/")})
    files = {one for name, one in subjects.items() if name.startswith("evidence/")}
    assert {sha(path.read_bytes()) for path in evidence} <= files
    assert report is None or sha(report.read_bytes()) == subjects["report.json"]
    if previous is not None:
        before = opened(previous, trust)[0]
        assert said["previous"] == f"sha256:{sha(before)}" and number == strict(before)["predicate"]["sequence"] + 1
    return said
