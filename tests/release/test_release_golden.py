"""Verdicts signed long ago verify for ever, and not with one byte changed.

`tests/golden/verdict-N` holds a verdict of version N with what it is about and the public halves of its signers' keys;
the private halves were thrown away, so it can never be made again. A new version of the statement gets a new folder
beside the old ones.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from auditlib.release.bundles import bundles_of
from auditlib.release.envelope import envelope_bytes, read_envelope
from auditlib.release.opening import open_verdict
from auditlib.release.refusals import RefusedError
from auditlib.release.statement import VERSION
from auditlib.release.trust import load_trust
from auditlib.release.verdict import verify_verdict
from tests.release import independent

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = sorted(GOLDEN.glob("verdict-*"))
NOW = datetime(2026, 12, 1, tzinfo=UTC)
WHITE_SPACE = b" \t\r\n"


def test_every_version_of_the_statement_has_its_golden_verdict():
    assert [folder.name for folder in FOLDERS] == [f"verdict-{number}" for number in range(1, VERSION + 1)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_golden_verdict_verifies_with_everything_it_names(folder):
    trust = folder / "trust.json"
    hand = {"revision": folder / "revision", "report": folder / "report.json"}
    if (folder / "artifact").exists():  # since version 2
        hand |= {"artifact": folder / "artifact", "evidence": sorted((folder / "evidence").iterdir())}
    found = verify_verdict(folder / "verdict.dsse.json", trust, now=NOW, **hand)
    said = independent.verify((folder / "verdict.dsse.json").read_bytes(), json.loads(trust.read_text()), NOW, **hand)
    assert (found.result, set(found.compared)) == ("PASSED", set(hand))
    assert found.statement.predicate == said
    assert {signer.person for signer in found.signers} == {"Ada Example", "Grace Example"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_envelope_and_bundles_are_written_as_they_were(folder):
    data = (folder / "verdict.dsse.json").read_bytes()
    assert envelope_bytes(read_envelope(data)) == data
    bundles = {keyid: bundle + b"\n" for keyid, bundle in bundles_of(data).items()}
    assert len(bundles) == 2
    for keyid, bundle in bundles.items():
        assert (folder / f"verdict.{keyid[:16]}.sigstore.json").read_bytes() == bundle


def survives(data: bytes, trust) -> bool:
    try:
        open_verdict(data, trust)
    except RefusedError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_verdict_with_any_single_byte_flipped_is_refused(folder):
    """In turns the lowest bit, and the one between small letters and capitals."""
    data = (folder / "verdict.dsse.json").read_bytes()
    trust = load_trust(folder / "trust.json")
    assert survives(data, trust)
    flipped = bytearray(data)
    for place, bit in zip(range(len(data)), itertools.cycle((0x01, 0x20)), strict=False):
        flipped[place] ^= bit
        assert not survives(bytes(flipped), trust), place
        flipped[place] ^= bit


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_only_change_that_survives_is_white_space_which_changes_nothing_signed(folder):
    """The line end after the closing brace stands outside every token: one kind of JSON white space for another."""
    data = (folder / "verdict.dsse.json").read_bytes()
    trust = load_trust(folder / "trust.json")
    surviving = {byte for byte in range(256) if survives(data[:-1] + bytes([byte]), trust)}
    assert surviving == set(WHITE_SPACE)
    for byte in surviving:
        assert read_envelope(data[:-1] + bytes([byte])) == read_envelope(data)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_verdict_cut_anywhere_is_refused(folder):
    data = (folder / "verdict.dsse.json").read_bytes()
    trust = load_trust(folder / "trust.json")
    assert not any(survives(data[:length], trust) for length in range(len(data) - 1))
