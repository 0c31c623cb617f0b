"""The verb that turns a run into what is served: package."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from auditlib.cli.output import ProgressLine, add_json_option, emit, say

if TYPE_CHECKING:
    from auditlib.runs.package import Packaged

BLOCKED = 1
# Written out because the module that defines them loads torch; a test holds the two together.
STRATEGIES = ("full prefix", "cached", "preallocated slots")


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `package`."""
    package = verbs.add_parser("package", help="write the artifact that a run allows to serve; 1 when it blocks some")
    package.add_argument("--run", type=Path, required=True, metavar="R", dest="run_folder", help="run folder")
    package.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder of the artifact")
    package.add_argument(
        "--revision", type=Path, metavar="FOLDER", help="the run's revision, where it has moved since the audit"
    )
    package.add_argument("--setting", metavar="NAME", help="decoding setting to serve (default: as the policy plans)")
    package.add_argument("--strategy", choices=STRATEGIES, help="how to serve it (default: as the policy plans)")
    package.add_argument(
        "--fallback", type=Path, metavar="ARTIFACT", help="earlier artifact that answers when this one fails"
    )
    package.add_argument(
        "--allow-code", action="store_true", help="run the code that a revision names (package.module:factory)"
    )
    add_json_option(package)
    package.set_defaults(run=_package)


def _package(options: argparse.Namespace) -> int:
    """Package, and say what is served of what was asked for."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415 - these load torch
    from auditlib.runs.package import PackageRequest, package_run  # noqa: PLC0415

    settle_threads()
    request = PackageRequest(
        options.run_folder,
        options.out,
        options.revision,
        options.setting,
        options.strategy,
        options.fallback,
        options.allow_code,
    )
    progress = ProgressLine()
    try:
        packaged = package_run(request, progress)
    finally:
        progress.close()
    say(options, _in_words(options.out, packaged))
    emit(options, _document(options.out, packaged))
    return 0 if packaged.as_asked else BLOCKED


def _in_words(out: Path, packaged: Packaged) -> str:
    """What is served, why not what was asked for, and what the artifact is called."""
    offer, artifact = packaged.offer, packaged.artifact
    reasons = [f"  {reason}" for reason in packaged.reasons]
    asked = f"{offer.asked.name}, {offer.asked_strategy}"
    if artifact is None:
        return "\n".join(
            [
                f"not packaged: asked for {asked}, and the run blocks every setting:",
                *reasons,
                "give an earlier artifact with --fallback to package one that leaves all requests to it",
            ]
        )
    name = f"artifact {artifact.digest} in {out}"
    if offer.setting is None:
        blocked = f"asked for {asked}; the run blocks every setting, so only the fallback serves:"
        return "\n".join([blocked, *reasons, f"fallback {artifact.fallback}", name])
    served = f"serves {offer.setting.name}, {offer.strategy}; fallback {artifact.fallback}"
    if packaged.as_asked:
        return f"{served}\n{name}"
    return "\n".join([f"asked for {asked}; blocked by the run:", *reasons, served, name])


def _document(out: Path, packaged: Packaged) -> dict[str, object]:
    """The verb's JSON."""
    offer, artifact = packaged.offer, packaged.artifact
    return {
        "format": 1,
        "artifact": None if artifact is None else artifact.digest,
        "out": None if artifact is None else str(out),
        "serves": artifact is not None and artifact.serves,
        "setting": {"asked": offer.asked.name, "served": None if offer.setting is None else offer.setting.name},
        "strategy": {"asked": offer.asked_strategy, "served": offer.strategy},
        "fallback": None if artifact is None else artifact.fallback,
        "blocked": packaged.blocked.to_json(),
        "reasons": list(packaged.reasons),
    }
