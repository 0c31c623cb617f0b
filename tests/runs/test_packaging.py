"""From a run to an artifact: what the run blocks is off in it, and where nothing is allowed there is none."""

from __future__ import annotations

import json
import shutil

import pytest

from auditlib.decoders.revision import open_revision
from auditlib.decoders.rows import padded
from auditlib.errors import ArtifactError, IntegrityError, PolicyError, RevisionError, RunError
from auditlib.files import sha256_of
from auditlib.release.verdict import sign_run, verify_verdict
from auditlib.runs.folder import list_runs, open_run
from auditlib.runs.origins import note_origin, revision_of
from auditlib.runs.package import PackageRequest, package_run
from auditlib.runs.request import AuditRequest
from auditlib.serving.artifact import open_artifact
from auditlib.serving.fixed_batch import read_fixed_batch
from tests.packed import SEEN, failing, judged_run, policy_of, small_artifact
from tests.release.cases import NOW, PASSPHRASE, key_file, sound, trusted
from tests.small_adapters import MAKERS
from tests.small_gpt import write_small_revision

PARITY = "cache parity: single events: over limit"


@pytest.fixture(scope="module")
def revision(tmp_path_factory):
    return write_small_revision(tmp_path_factory.mktemp("small") / "revision")


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """An artifact that answers when another fails."""
    return small_artifact(tmp_path_factory.mktemp("older"))


def package(root, revision, measured=None, policy=None, **asked):
    run = judged_run(root / "runs", revision, measured, policy)
    return package_run(PackageRequest(run.folder, root / "artifact", revision.folder, **asked))


def test_what_nothing_blocks_is_served_as_asked_and_names_the_run_that_says_so(tmp_path, revision):
    packaged = package(tmp_path, revision, setting="beam", strategy="preallocated slots")
    artifact = packaged.artifact
    assert packaged.as_asked
    assert packaged.reasons == ()
    assert (artifact.setting.name, artifact.strategy) == ("beam", "preallocated slots")
    run = list_runs(tmp_path / "runs")[0]
    assert (artifact.document["run"], artifact.document["revision"]["digest"]) == (run.id, revision.digest)
    assert artifact.document["report"] == run.manifest["files"]["report.json"]
    assert artifact.document["snapshot"] == run.manifest["snapshot"]["digest"]
    assert artifact.document["policy"] == run.manifest["policy"]["digest"]


def test_the_first_setting_of_the_policy_is_served_where_nobody_says_which(tmp_path, revision):
    decoding = {name: {"kind": name} for name in ("sampled", "beam", "greedy")}
    assert package(tmp_path, revision, policy=policy_of(decoding=decoding)).artifact.setting.name == "sampled"


def test_the_policy_plans_what_is_served_and_the_caller_may_ask_for_something_else(tmp_path, revision):
    serving = {"setting": "beam", "strategy": "full prefix", "max_prefix_events": 7, "slots": 3}
    first = package(tmp_path / "first", revision, policy=policy_of(serving=serving)).artifact
    assert (first.setting.name, first.strategy) == ("beam", "full prefix")
    assert (first.bounds.max_prefix_events, first.bounds.slots) == (7, 3)
    assert max(len(prefix) for prefix in read_fixed_batch(first).prefixes) == 8
    second = package(tmp_path / "second", revision, policy=policy_of(serving=serving), setting="greedy").artifact
    assert (second.setting.name, second.strategy) == ("greedy", "full prefix")


@pytest.mark.parametrize("strategy", ["cached", "preallocated slots", None])
def test_a_parity_failure_leaves_the_full_prefix(tmp_path, revision, strategy):
    packaged = package(tmp_path, revision, failing("cache parity", "single events"), strategy=strategy)
    assert not packaged.as_asked
    assert packaged.reasons == (PARITY,)
    assert (packaged.artifact.strategy, packaged.artifact.setting.name) == ("full prefix", "greedy")
    assert packaged.artifact.document["strategy"] == {"asked": strategy or "cached", "served": "full prefix"}
    assert packaged.artifact.load().strategy == "full prefix"


def test_who_asks_for_the_full_prefix_is_served_as_asked_whatever_the_cache_does(tmp_path, revision):
    packaged = package(tmp_path, revision, failing("cache parity", "single events"), strategy="full prefix")
    assert packaged.as_asked
    assert packaged.artifact.blocked.cache_acceleration == (PARITY,)


def test_a_policy_failure_leaves_the_first_setting_that_is_allowed(tmp_path, revision):
    packaged = package(tmp_path, revision, failing("decoding policy", "greedy: invalid sequences"))
    assert not packaged.as_asked
    assert packaged.reasons == ("decoding policy: greedy: invalid sequences: over limit",)
    assert packaged.artifact.document["decoding"]["asked"] == "greedy"
    assert (packaged.artifact.setting.name, packaged.artifact.strategy) == ("sampled", "cached")
    assert json.loads((packaged.artifact.folder / "answers.json").read_bytes())["setting"] == "sampled"


def test_the_failure_of_a_setting_that_nobody_asked_for_is_written_down_and_changes_nothing(tmp_path, revision):
    packaged = package(tmp_path, revision, failing("decoding policy", "beam: padding emitted"))
    assert packaged.as_asked
    assert packaged.artifact.blocked.decoding["beam"] == ("decoding policy: beam: padding emitted: over limit",)


BLOCKS_ALL = [("causality", "exhaustive next event"), ("training", "target shift"), ("event grammar", "end not forced")]


@pytest.mark.parametrize(("audit", "check"), BLOCKS_ALL)
def test_where_every_setting_is_blocked_nothing_is_packaged(tmp_path, revision, audit, check):
    packaged = package(tmp_path, revision, failing(audit, check))
    assert packaged.artifact is None
    assert not packaged.as_asked
    assert f"{audit}: {check}: over limit" in packaged.reasons
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_what_was_not_measured_is_not_served_either(tmp_path, revision):
    measured = {name: found for name, found in sound().items() if name != "causality"}
    packaged = package(tmp_path, revision, measured)
    assert packaged.artifact is None
    assert "causality: exhaustive next event: the audit stopped: left out" in packaged.reasons


def test_with_a_fallback_an_artifact_is_written_that_leaves_all_to_it(tmp_path, revision, older):
    broken = failing("causality", "exhaustive next event")
    packaged = package(tmp_path, revision, broken, fallback=older.folder)
    artifact = open_artifact(packaged.artifact.folder)
    assert not packaged.as_asked
    assert (artifact.serves, artifact.setting, artifact.strategy) == (False, None, None)
    assert artifact.fallback == older.digest
    with pytest.raises(ArtifactError, match=older.digest):
        artifact.load()
    with pytest.raises(ArtifactError, match="serves nothing"):
        read_fixed_batch(artifact)
    assert not (artifact.folder / "answers.json").exists()


def test_a_fallback_is_named_by_its_digest_beside_what_is_served(tmp_path, revision, older):
    packaged = package(tmp_path, revision, fallback=older.folder)
    assert packaged.as_asked
    assert packaged.artifact.fallback == older.digest


def test_a_fallback_that_could_not_answer_every_request_is_refused(tmp_path, older):
    longer = write_small_revision(tmp_path / "longer", context_length=30)
    with pytest.raises(ArtifactError, match="max_prefix_events is 29, but the fallback takes 19"):
        package(tmp_path / "a", longer, fallback=older.folder)
    with pytest.raises(ArtifactError, match="max_new_events is 4, but the fallback takes 3"):
        package(tmp_path / "b", longer, policy=policy_of(max_new_events=4, serving={"max_prefix_events": 9}),
                fallback=older.folder)  # fmt: skip
    idle = package(tmp_path / "c", longer, failing("causality", "exhaustive next event"), fallback=older.folder)
    with pytest.raises(ArtifactError, match="serves nothing itself"):
        package(tmp_path / "d", longer, fallback=idle.artifact.folder)


def test_a_policy_that_falls_back_to_a_revision_needs_an_artifact_of_that_one(tmp_path, revision, older):
    named, other = policy_of(fallback="small"), policy_of(fallback="another")
    with pytest.raises(ArtifactError, match="--fallback"):
        package(tmp_path / "a", revision, policy=named)
    with pytest.raises(ArtifactError, match="another"):
        package(tmp_path / "b", revision, policy=other, fallback=older.folder)
    assert package(tmp_path / "c", revision, policy=named, fallback=older.folder).artifact.fallback == older.digest


def test_the_same_run_packs_to_the_same_bytes(tmp_path, revision):
    run = judged_run(tmp_path / "runs", revision)
    moved = tmp_path / "elsewhere" / "moved"
    shutil.copytree(revision.folder, moved)
    for out, folder in (("one", revision.folder), ("two", moved)):
        package_run(PackageRequest(run.folder, tmp_path / out, folder))
    one, two = ({path.relative_to(tmp_path / out): path.read_bytes() for path in (tmp_path / out).rglob("*")
                 if path.is_file()} for out in ("one", "two"))  # fmt: skip
    assert one == two
    assert len(one) == 9


ADAPTERS = (
    "event_gpt", "gpt2, dynamic, sdpa", "onnx", "paired, torch and onnx", "paired, two files", "examples.markov"
)  # fmt: skip


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_revision_of_every_adapter_can_be_packaged_and_loaded_again(tmp_path, name):
    revision = MAKERS[name](tmp_path / "revision")
    policy = policy_of(serving={"max_prefix_events": 8})
    artifact = package(tmp_path, revision, policy=policy, allow_code=True).artifact
    served = artifact.load(allow_code=True)
    assert served.decoder.revision
    assert read_fixed_batch(artifact).logits.shape == (256, served.decoder.vocabulary_size)


def test_code_that_a_revision_names_runs_only_where_it_is_allowed(tmp_path):
    revision = MAKERS["examples.markov"](tmp_path / "revision")
    with pytest.raises(RevisionError, match="--allow-code"):
        package(tmp_path, revision)
    artifact = package(tmp_path / "allowed", revision, policy=policy_of(serving={"max_prefix_events": 8}),
                       allow_code=True).artifact  # fmt: skip
    with pytest.raises(RevisionError, match="--allow-code"):
        artifact.load()


def test_bfloat16_is_packed_as_it_was_audited(tmp_path, revision):
    run = judged_run(tmp_path / "runs", revision, dtype="bfloat16")
    artifact = package_run(PackageRequest(run.folder, tmp_path / "artifact", revision.folder)).artifact
    assert artifact.dtype == "bfloat16"
    decoder, batch = artifact.load().decoder, read_fixed_batch(artifact)
    assert str(decoder.dtype) == "torch.bfloat16"
    for row in (0, 100, 255):
        logits = decoder.full(*padded([batch.prefixes[row]]))[0, -1]
        assert (logits.float() == batch.logits[row]).all()


def test_seen_prefixes_come_from_the_run_and_made_up_rows_of_probes_do_not_count_as_seen(tmp_path, revision):
    batch = read_fixed_batch(package(tmp_path, revision).artifact)
    seen = {prefix: stratum.seen for prefix, stratum in zip(batch.prefixes, batch.strata, strict=True)}
    assert {prefix: count for prefix, count in seen.items() if count} == SEEN


def test_a_tolerance_that_was_not_measured_is_none_and_lets_nothing_differ(tmp_path, revision):
    measured = {name: found for name, found in sound().items() if name != "cache parity"}
    artifact = package(tmp_path, revision, measured).artifact
    assert artifact.document["tolerance"]["value"] is None
    assert (artifact.tolerance, artifact.strategy) == (0.0, "full prefix")


def test_nothing_is_written_over(tmp_path, revision):
    package(tmp_path, revision)
    run = list_runs(tmp_path / "runs")[0]
    before = (tmp_path / "artifact" / "artifact.json").read_bytes()
    with pytest.raises(ArtifactError, match="is there already"):
        package_run(PackageRequest(run.folder, tmp_path / "artifact", revision.folder, "beam"))
    assert (tmp_path / "artifact" / "artifact.json").read_bytes() == before


@pytest.mark.parametrize(
    ("asked", "error"),
    [({"setting": "luck"}, ArtifactError), ({"setting": "greedy without order mask"}, ArtifactError)],
)
def test_a_setting_that_was_not_proposed_is_refused(tmp_path, revision, asked, error):
    with pytest.raises(error, match="not proposed"):
        package(tmp_path, revision, **asked)


def test_longer_prefixes_than_the_context_holds_are_refused(tmp_path, revision):
    with pytest.raises(PolicyError, match="at most 19"):
        package(tmp_path, revision, policy=policy_of(serving={"max_prefix_events": 20}))


def test_an_altered_run_is_not_packaged(tmp_path, revision):
    run = judged_run(tmp_path / "runs", revision)
    (run.folder / "policy.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError):
        package_run(PackageRequest(run.folder, tmp_path / "artifact", revision.folder))


@pytest.mark.parametrize("part", ["because", "decoding", "proposed", "cache_acceleration"])
@pytest.mark.parametrize("value", [None, {}, []])
def test_a_report_that_does_not_say_what_is_allowed_allows_nothing(tmp_path, revision, part, value):
    run = judged_run(tmp_path / "runs", revision)
    report = {**run.report, "decision": {**run.report["decision"], part: value}}
    (run.folder / "report.json").write_text(json.dumps(report))
    files = {**run.manifest["files"], "report.json": sha256_of(run.folder / "report.json")}
    (run.folder / "manifest.json").write_text(json.dumps({**run.manifest, "files": files}))
    try:
        packaged = package_run(PackageRequest(run.folder, tmp_path / "artifact", revision.folder))
    except RunError:
        return
    assert part == "cache_acceleration"
    assert packaged.artifact.strategy == "full prefix"


def test_a_revision_is_found_where_it_lay_and_only_when_it_is_still_the_same(tmp_path):
    revision = write_small_revision(tmp_path / "revision")
    run = judged_run(tmp_path / "runs", revision)
    with pytest.raises(RunError, match="--revision"):
        revision_of(run)
    note_origin(run, AuditRequest(tmp_path / "store.duckdb", revision.folder, tmp_path / "runs"))
    assert revision_of(run).digest == revision.digest
    assert [one.id for one in list_runs(tmp_path / "runs")] == [run.id]
    open_run(run.folder).verify()
    revision.folder.rename(tmp_path / "moved")
    with pytest.raises(RunError, match=r"not at .*--revision"):
        revision_of(run)
    assert revision_of(run, tmp_path / "moved").digest == revision.digest
    other = write_small_revision(tmp_path / "revision", seed=1)
    assert other.digest != run.revision
    for given in (None, other.folder):
        with pytest.raises(IntegrityError, match="is about"):
            revision_of(run, given)


@pytest.mark.parametrize(
    "note", [b"", b"[]", b"{}", b'{"revision": 7}', b'{"revision": "a\\u0000b"}', b"[" * 60_000, b"\xff"]
)
def test_a_note_without_sense_is_no_note(tmp_path, note):
    run = judged_run(tmp_path / "runs", write_small_revision(tmp_path / "revision"))
    (tmp_path / "runs" / ".origins").mkdir()
    (tmp_path / "runs" / ".origins" / f"{run.id}.json").write_bytes(note)
    with pytest.raises(RunError, match="--revision"):
        revision_of(run)


def test_a_revision_that_changes_while_it_is_copied_is_not_packaged(tmp_path, monkeypatch):
    revision = write_small_revision(tmp_path / "revision")
    run = judged_run(tmp_path / "runs", revision)

    def change(*_):
        (tmp_path / "revision" / "event_map.json").write_bytes(b"{}")
        return open_revision_before(tmp_path / "kept")

    shutil.copytree(revision.folder, tmp_path / "kept")
    open_revision_before = open_revision
    monkeypatch.setattr("auditlib.runs.package.load_decoder", lambda *_: change().decoder())
    with pytest.raises(IntegrityError, match="event_map"):
        package_run(PackageRequest(run.folder, tmp_path / "artifact", revision.folder))
    assert not (tmp_path / "artifact").exists()


def test_an_artifact_is_signed_with_its_run_and_verified_file_by_file(tmp_path, revision):
    artifact = package(tmp_path, revision).artifact
    run = list_runs(tmp_path / "runs")[0]
    signing = (run.folder, run.report, run.manifest, key_file(tmp_path, "ada"), PASSPHRASE, "approve", "")
    sign_run(*signing, tmp_path / "verdict.json", artifact=artifact.folder, now=NOW)
    found = verify_verdict(tmp_path / "verdict.json", trusted("ada"), artifact=artifact.folder, now=NOW)
    assert "artifact" in found.compared
    assert f"sha256:{found.statement.subjects['artifact/artifact.json']}" == artifact.digest
    another = judged_run(tmp_path / "runs", revision, name="20261130T130000000Z-0a1b2c3d")
    other = package_run(PackageRequest(another.folder, tmp_path / "other", revision.folder)).artifact
    with pytest.raises(IntegrityError, match="another run"):
        sign_run(*signing, tmp_path / "second.json", artifact=other.folder, now=NOW)
    with pytest.raises(IntegrityError, match="wrong artifact"):
        verify_verdict(tmp_path / "verdict.json", trusted("ada"), artifact=other.folder, now=NOW)
    weights = artifact.folder / "revision" / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    for refused in (
        lambda: verify_verdict(tmp_path / "verdict.json", trusted("ada"), artifact=artifact.folder, now=NOW),
        lambda: sign_run(*signing, tmp_path / "third.json", artifact=artifact.folder, now=NOW),
    ):
        with pytest.raises(IntegrityError, match="was changed"):
            refused()
    assert not (tmp_path / "third.json").exists()
