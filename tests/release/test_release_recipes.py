"""The recipes of docs/verify.md, run as they stand there: verifiers that hold none of our code agree with ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from auditlib.release.bundles import write_bundles
from auditlib.release.verdict import sign_run
from tests.release.cases import NOW, PASSPHRASE, changed, key_file, sound, write_run

ROOT = Path(__file__).parents[2]
GOLDEN = max((ROOT / "tests" / "golden").glob("verdict-*"))
NAMED = ("revision/revision.json", "report.json", "artifact/artifact.json", "evidence/bench.json")
PAGE = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
YES, NO, REFUSED = 0, 1, 3
WORDS = ("PASSED", "holds")


def recipe(language: str) -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return block


def public_keys(folder: Path) -> dict[str, Path]:
    """The golden signers' public keys as files, by first name."""
    keys = {}
    for entry in json.loads((GOLDEN / "trust.json").read_text())["keys"]:
        name = entry["person"].split()[0].casefold()
        keys[name] = folder / f"{name}.pub.pem"
        keys[name].write_text(entry["public_key"])
    return keys


def bundle_of(person: str) -> Path:
    for entry in json.loads((GOLDEN / "trust.json").read_text())["keys"]:
        if entry["person"].casefold().startswith(person):
            return GOLDEN / f"verdict.{entry['keyid'][:16]}.sigstore.json"
    raise AssertionError(person)


def refused_run(folder: Path) -> tuple[Path, Path]:
    """A verdict that says no, and its signer's public key."""
    run = write_run(folder / "no", changed(sound(), "causality", "jacobian", value=1.0))
    key = key_file(folder, "ada")
    verdict, public = folder / "no.dsse.json", folder / "signer.pub.pem"
    comment = '"result":"PASSED","review":{'  # what a naive search of the text would take for the answer
    sign_run(run.folder, run.report, run.manifest, key, PASSPHRASE, None, comment, verdict, now=NOW)
    openssl = ["openssl", "pkey", "-in", key, "-passin", f"pass:{PASSPHRASE.decode()}", "-pubout", "-out", public]
    subprocess.run(openssl, check=True)
    return verdict, public


def altered(path: Path, folder: Path) -> Path:
    """The same file with one character of its payload turned into another."""
    text = path.read_text()
    place = text.index('"payload":"') + 400
    other = folder / f"altered-{path.name}"
    other.write_text(text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :])
    return other


def check(command: list, wanted: int) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == wanted, done.stderr
    if wanted == REFUSED:
        assert done.stderr.splitlines()[-1].startswith("refused: ")
        assert not any(word in done.stdout for word in WORDS)
    else:
        assert f"the result is {'PASSED' if wanted == YES else 'FAILED'}" in done.stdout


@pytest.fixture
def with_openssl(tmp_path):
    (tmp_path / "verify.sh").write_text(recipe("sh"))
    keys, verdict = public_keys(tmp_path), GOLDEN / "verdict.dsse.json"
    return lambda *more: ["sh", tmp_path / "verify.sh", *more], keys, verdict


@pytest.mark.parametrize("person", ["ada", "grace"])
def test_openssl_accepts_each_reviewers_signature_and_the_files_named(with_openssl, person):
    run, keys, verdict = with_openssl
    check(run(verdict, keys[person], *(GOLDEN / name for name in NAMED)), YES)


def test_openssl_refuses_an_altered_verdict_a_foreign_key_and_another_file(with_openssl, tmp_path):
    run, keys, verdict = with_openssl
    _, foreign = refused_run(tmp_path)
    check(run(altered(verdict, tmp_path), keys["ada"]), REFUSED)
    check(run(verdict, foreign), REFUSED)
    check(run(verdict, keys["ada"], GOLDEN / "revision" / "model.safetensors"), REFUSED)
    (tmp_path / "empty.json").write_text("{}")
    check(run(tmp_path / "empty.json", keys["ada"]), REFUSED)
    check(run(tmp_path / "nowhere.json", keys["ada"]), REFUSED)
    check(run(verdict, keys["ada"], tmp_path / "nowhere"), REFUSED)
    check(run(verdict), REFUSED)


def test_openssl_tells_a_valid_no_from_a_yes_whatever_the_comment_says(with_openssl, tmp_path):
    run, _, _ = with_openssl
    verdict, public = refused_run(tmp_path)
    check(run(verdict, public), NO)


# What npm says when the network, and not the recipe, is at fault.
UNREACHABLE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "network")


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory):
    """A folder with the recipe's packages, installed by the recipe's own line."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed; the Node recipe needs both")
    folder = tmp_path_factory.mktemp("node")
    (install,) = re.findall(r"^    (npm install .*)$", PAGE, flags=re.MULTILINE)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    try:
        done = subprocess.run(
            [*install.split(), *quiet], cwd=folder, capture_output=True, text=True, timeout=180, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm cannot reach its registry: no answer in three minutes")
    if done.returncode != 0 and any(word in done.stderr for word in UNREACHABLE):
        pytest.skip(f"npm cannot reach its registry: {done.stderr.strip().splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    (folder / "verify.mjs").write_text(recipe("js"))
    return folder


@pytest.mark.parametrize("person", ["ada", "grace"])
def test_sigstore_accepts_each_reviewers_bundle_and_the_files_named(node_folder, tmp_path, person):
    run = ["node", node_folder / "verify.mjs", bundle_of(person), public_keys(tmp_path)[person]]
    check([*run, *(GOLDEN / name for name in NAMED)], YES)


def test_sigstore_refuses_an_altered_bundle_a_foreign_key_and_another_file(node_folder, tmp_path):
    keys, run = public_keys(tmp_path), ["node", node_folder / "verify.mjs"]
    check([*run, altered(bundle_of("ada"), tmp_path), keys["ada"]], REFUSED)
    check([*run, bundle_of("ada"), keys["grace"]], REFUSED)
    check([*run, bundle_of("ada"), keys["ada"], GOLDEN / "revision" / "model.safetensors"], REFUSED)


def test_sigstore_tells_a_valid_no_from_a_yes(node_folder, tmp_path):
    verdict, public = refused_run(tmp_path)
    (bundle,) = write_bundles(verdict, tmp_path / "bundles")
    check(["node", node_folder / "verify.mjs", bundle, public], NO)
