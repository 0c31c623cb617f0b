"""The verb that turns a revision into what would be deployed: export-onnx."""

from __future__ import annotations

import argparse
from pathlib import Path

from auditlib.cli.output import add_json_option, emit, say


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `export-onnx`."""
    export = verbs.add_parser("export-onnx", help="write a revision whose cached path runs in ONNX Runtime")
    export.add_argument("--revision", type=Path, required=True, metavar="FOLDER", help="an event_gpt revision")
    export.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    export.add_argument("--name", help="name of the new revision (default: the folder's)")
    export.add_argument(
        "--full",
        choices=["torch", "onnx"],
        default="torch",
        help="what computes the full path: the torch model it came from (default), or the exported network",
    )
    add_json_option(export)
    export.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    """Export, and name the new revision."""
    from auditlib.decoders.onnx_revision import export_onnx  # noqa: PLC0415 - loads torch
    from auditlib.decoders.revision import open_revision  # noqa: PLC0415

    made = export_onnx(open_revision(options.revision), options.out, name=options.name, full=options.full)
    say(options, f"{made.manifest.name}: {made.digest} in {made.folder}; audit it with audit --revision {made.folder}")
    emit(options, {"format": 1, "name": made.manifest.name, "revision": made.digest, "folder": str(made.folder)})
    return 0
