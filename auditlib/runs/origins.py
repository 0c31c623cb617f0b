"""Where the revision and the store of a run lay: a note for this machine, beside the runs and no part of any.

Nothing in it is signed or believed: a revision that is found by it counts only when its digest is the run's.
"""

from __future__ import annotations

import json
from pathlib import Path

from auditlib.decoders.revision import Revision, open_revision
from auditlib.errors import IntegrityError, RevisionError, RunError
from auditlib.files import write_whole
from auditlib.runs.folder import Run
from auditlib.runs.noted import note_of, noted_folder
from auditlib.runs.request import AuditRequest


def note_origin(run: Run, request: AuditRequest) -> None:
    """Note where the inputs of a run lie, so that what needs them later need not be told."""
    paths = {"revision": str(request.revision.absolute()), "store": str(request.store.absolute())}
    write_whole(note_of(run), json.dumps({"format": 1, **paths}, indent=1).encode())


def revision_of(run: Run, given: Path | None = None) -> Revision:
    """The revision that a run is about, opened: from the folder `given`, else from where it lay.

    RunError when it is not known or not there any more, IntegrityError when another one is there now.
    """
    folder = given or noted_folder(run)
    if folder is None:
        raise RunError(f"{run.folder}: where its revision lies was not noted here; give it with --revision FOLDER")
    try:
        revision = open_revision(folder)
    except RevisionError as problem:
        if given is not None:
            raise
        raise RunError(
            f"the revision of run {run.id} is not at {folder} any more ({problem}); give it with --revision FOLDER"
        ) from problem
    if revision.digest != run.revision:
        raise IntegrityError(
            f"{folder}: is revision {revision.digest}, but run {run.id} is about {run.revision}; "
            "give the folder of that one with --revision FOLDER"
        )
    return revision
