"""Counterexamples in a run folder: each as JSON, beside a script of a few lines that plays it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from auditlib.audits.counterexample import Case
from auditlib.audits.counterexample_replay import read_case
from auditlib.errors import IntegrityError
from auditlib.files import sha256_of
from auditlib.runs.folder import Run

FOLDER = "counterexamples"

_SCRIPT = '''"""Plays the case beside it: python THIS_FILE REVISION_FOLDER [--allow-code]; 1 while it still fails."""
import sys
from pathlib import Path

from auditlib.audits.counterexample_replay import read_case, replay
from auditlib.audits.device import NAMES_OF_DTYPES
from auditlib.decoders.revision import open_revision

case = read_case(Path(__file__).with_suffix(".json"))
code = "--allow-code" in sys.argv
decoder = open_revision(Path(sys.argv[1])).decoder(dtype=NAMES_OF_DTYPES[case.dtype], allow_code=code)
gap = replay(case, decoder)
print(f"{case.sentence()}\\ngap {gap:.6g}, limit {case.limit:.6g}")
sys.exit(0 if gap <= case.limit else 1)
'''


def files_of(cases: Mapping[str, Case]) -> dict[str, bytes]:
    """Files of a run folder for `cases`, by their path in it: what `write_run` takes as further files."""
    files = {}
    for place, (name, case) in enumerate(cases.items(), start=1):
        stem = f"{FOLDER}/{place:02d}_{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}"
        files[f"{stem}.json"] = case.to_json().encode()
        files[f"{stem}.py"] = _SCRIPT.encode()
    return files


def read_cases(run: Run) -> dict[str, Case]:
    """Cases of a run by `audit: check`; empty when it has none. IntegrityError for a file altered since."""
    cases = {}
    for name, digest in run.manifest["files"].items():
        if not name.startswith(f"{FOLDER}/") or not name.endswith(".json"):
            continue
        path = run.folder / name
        if path.is_symlink() or not path.is_file() or sha256_of(path) != digest:
            raise IntegrityError(f"{path} is missing or differs from what the run's manifest recorded; audit again")
        case = read_case(path)
        cases[f"{case.audit}: {case.check}"] = case
    return cases
