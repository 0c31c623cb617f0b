"""The demo's sessions and revisions, for tests that go the whole way through the command line."""

from __future__ import annotations

import json
from pathlib import Path

from auditlib.cli.main import main
from auditlib.decoders.revision import Revision, open_revision, write_revision
from auditlib.demo.places import SHIPPED, SOUND

RULES = SHIPPED / "event_order.json"
SOUND_REVISION = SHIPPED / "revisions" / SOUND


def revision_with(folder: Path, factory: str) -> Path:
    """A revision like the demo's sound one whose decoder comes from `tests.faulty`."""
    sound: Revision = open_revision(SOUND_REVISION)
    write_revision(
        folder,
        name=factory,
        decoder=f"tests.faulty:{factory}",
        config={},
        event_map=sound.event_map,
        event_order=sound.event_order,
        files={"note.txt": b"the weights are the demo's"},
    )
    return folder


def audit(store: Path, revision: Path, folder: Path, *options: str) -> tuple[int, dict]:
    """Exit code and JSON of one audit on the command line."""
    report = folder / f"{revision.name}.json"
    arguments = ["audit", "--store", str(store), "--revision", str(revision), "--runs", str(folder / "runs")]
    # The self-check has tests of its own; here it would only cost time.
    code = main([*arguments, "--allow-code", "--no-self-check", "--json", str(report), *options])
    return code, json.loads(report.read_text()) if report.exists() else {}
