"""Verbs on runs: audit, report.

What loads torch or plotly is imported inside the verbs: the others should answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from auditlib.cli.output import ProgressLine, add_json_option, emit, require_targets, say, table, write_out
from auditlib.errors import InputError
from auditlib.numbers import number
from auditlib.runs.folder import Run, open_run
from auditlib.views.junit import to_junit
from auditlib.views.markdown import to_markdown
from auditlib.views.summary import headline

REFUSED = 1


def add_verbs(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `audit` and `report`."""
    audit = verbs.add_parser("audit", help="measure and judge a revision on the held-out sessions of a store")
    audit.add_argument("--store", type=Path, required=True, help="session store (a DuckDB file)")
    audit.add_argument("--revision", type=Path, required=True, metavar="FOLDER", help="revision folder")
    audit.add_argument("--snapshot", metavar="DIGEST", help="frozen snapshot to audit on (default: the latest)")
    audit.add_argument("--audits", metavar="A,B", help="names, separated by commas (default: all)")
    audit.add_argument("--policy", type=Path, metavar="FILE", help="decoding settings and limits (default: built in)")
    audit.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where run folders go")
    audit.add_argument("--device", default="cpu")
    audit.add_argument("--dtype", default="float32", help="float32, bfloat16 or float64")
    audit.add_argument("--seed", type=int, default=0)
    audit.add_argument("--engine", default="local", choices=["local"])
    audit.add_argument(
        "--allow-code", action="store_true", help="run the code that a revision names (package.module:factory)"
    )
    audit.add_argument("--no-self-check", action="store_true", help="do not plant faults to see that they are caught")
    audit.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit XML report there")
    audit.add_argument("--markdown", type=Path, metavar="FILE", help="write a Markdown summary there")
    add_json_option(audit)
    audit.set_defaults(run=_audit)
    report = verbs.add_parser("report", help="one self-contained HTML file of a run")
    report.add_argument("--run", type=Path, required=True, metavar="R", dest="run_folder", help="run folder")
    report.add_argument("--out", type=Path, required=True, metavar="FILE")
    add_json_option(report)
    report.set_defaults(run=_report)


def _audit(options: argparse.Namespace) -> int:
    """Run the audits; every kind of evidence is written before the exit code is decided."""
    from auditlib.audits.device import settle_threads  # noqa: PLC0415
    from auditlib.runs.execute import run_audits  # noqa: PLC0415
    from auditlib.runs.request import AuditRequest  # noqa: PLC0415

    require_targets(options.json, options.junit, options.markdown)
    settle_threads()
    names = (
        None if options.audits is None else tuple(name.strip() for name in options.audits.split(",") if name.strip())
    )
    request = AuditRequest(
        store=options.store,
        revision=options.revision,
        runs=options.runs,
        audits=names,
        policy=options.policy,
        snapshot=options.snapshot,
        device=options.device,
        dtype=options.dtype,
        allow_code=options.allow_code,
        seed=options.seed,
        self_check=not options.no_self_check,
    )
    progress = ProgressLine()
    try:
        run = run_audits(request, progress)
    finally:
        progress.close()
    _write_evidence(options, run)
    say(options, _for_people(run))
    return 0 if run.approved else REFUSED


def _for_people(run: Run) -> str:
    """The checks as a table, why audits were not measured, what may be switched on, and the one sentence at the end."""
    rows = [("audit", "check", "value", "limit", "unit", "n", "status")]
    problems = []
    for audit, result in run.report["audits"].items():
        rows += [
            (audit, c["name"], number(c["value"]), number(c["limit"]), c["unit"], str(c["count"]), c["status"])
            for c in result["checks"]
            if not c.get("comparison")
        ]
        problems += [f"{audit} not measured: {result['problem']}"] if result["problem"] else []
    decision = run.report["decision"]
    settings = ", ".join(f"{name} {decision['decoding'][name]}" for name in decision["proposed"])
    switches = f"cache acceleration {decision['cache_acceleration']}; {settings}; fallback {decision['fallback']}"
    return "\n".join([table(rows), *problems, switches, f"run: {run.folder}", headline(run.report)])


def _write_evidence(options: argparse.Namespace, run: Run) -> None:
    """JSON, JUnit and Markdown, where asked for; what cannot be written keeps none of the others back."""
    writers: list[Callable[[], None]] = [lambda: emit(options, run.report)]
    if options.junit is not None:
        writers.append(lambda: write_out(options.junit, to_junit(run.report).decode()))
    if options.markdown is not None:
        writers.append(lambda: write_out(options.markdown, to_markdown(run.report)))
    problems = []
    for write in writers:
        try:
            write()
        except InputError as problem:
            problems.append(str(problem))
    if problems:
        raise InputError(f"{'; '.join(problems)}. The run itself is whole, in {run.folder}")


def _report(options: argparse.Namespace) -> int:
    """Write the HTML report of a run."""
    from auditlib.views.report import to_html  # noqa: PLC0415

    require_targets(options.out, options.json)
    run = open_run(options.run_folder)
    run.verify()
    # A verdict may well be on file somewhere: nobody has told this verb of it, so it must not say that there is none.
    write_out(options.out, to_html(run, "not given here"))
    size = options.out.stat().st_size
    say(options, f"{options.out}: {size / 1e6:.1f} MB")
    emit(options, {"format": 1, "run": run.id, "out": str(options.out), "bytes": size})
    return 0
