"""A run as one HTML file that needs nothing beside it: opens without a network, prints, and runs no text as markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from auditlib.numbers import number
from auditlib.runs.folder import Run
from auditlib.runs.noted import event_map_of
from auditlib.views import charts, charts_policies
from auditlib.views.event_names import named, with_names
from auditlib.views.summary import headline
from auditlib.views.text import in_html, plural

_ROWS = 20
_PREFIXES = {"events", "prefix"}
_TITLES = {"step": "events, start included"}

# Even if a text slipped through, the document may load nothing and send nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #bbb; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: 13px; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .5rem; text-align: left; vertical-align: top; }
td.events { min-width: 16rem; } td.status { min-width: 5.5rem; } td.long { min-width: 9rem; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.failed { color: #9b2d00; font-weight: 600; } .passed { color: #00614a; } .unknown { color: #5a5a5a; }
.verdict { padding: 1rem; border: 2px solid; border-radius: 4px; font-size: 17px; overflow-wrap: anywhere; }
h1, p { overflow-wrap: anywhere; } .scroll { overflow-x: auto; } figure { margin: 1rem 0; overflow: hidden; }
@media print {
  body { margin: 0; max-width: none; } table { font-size: 11px; }
  td.events { min-width: 0; } .scroll { overflow: visible; }
  h2, h3 { break-after: avoid; } figure, tr { break-inside: avoid; }
}
"""

_MARKS = {"passed": ("✓", "passed"), "failed": ("✗", "failed"), "not measured": ("–", "unknown")}


def to_html(run: Run, verdict: str | None = None) -> str:
    """The whole report of a run; `verdict` is the digest of its signed statement, when there is one."""
    report = run.report
    sections = [
        _head(run, verdict),
        _section("Decision", _decision(report["decision"])),
        *(_section(f"Audit: {audit}", _audit(run, audit, result)) for audit, result in report["audits"].items()),
        _section("What it was measured on", _pairs(_facts(run))),
    ]
    title = in_html(f"Prefixgate: {report['revision_name']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><script>{get_plotlyjs()}</script></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def _head(run: Run, verdict: str | None) -> str:
    """Title, the one sentence, and what names the run."""
    kind = "passed" if run.approved else "failed"
    names = {
        "run": run.id,
        "measured": run.manifest["created"],
        "revision digest": run.revision,
        "snapshot": run.manifest["snapshot"]["digest"],
        "verdict": verdict or "UNSIGNED",
    }
    sentence = f'<p class="verdict {kind}">{_MARKS[kind][0]} {in_html(headline(run.report), 2000)}</p>'
    return f"<h1>{in_html(run.report['revision_name'])}</h1>{sentence}{_pairs(names)}"


def _decision(decision: Mapping[str, Any]) -> str:
    """What may be switched on, and what answers instead; settings that nobody proposed come last, as comparisons."""
    proposed = decision.get("proposed", decision["decoding"])
    answers = {f"decoding, {name}": decision["decoding"][name] for name in proposed}
    others = {
        f"decoding, {name} (comparison, not proposed)": answer
        for name, answer in decision["decoding"].items()
        if name not in proposed
    }
    switch = {"cache acceleration": decision["cache_acceleration"]}
    return _pairs({**switch, **answers, "falls back to": decision["fallback"], **others})


def _audit(run: Run, audit: str, result: Mapping[str, Any]) -> str:
    """Status, checks, figures, the worst observations and the notes of one audit."""
    mark, kind = _MARKS[result["status"]]
    parts = [f'<p class="{kind}">{mark} {in_html(result["status"])}. {in_html(result.get("question") or "")}</p>']
    if result.get("problem"):
        parts.append(f'<p class="unknown">Not measured: {in_html(result["problem"], 2000)}</p>')
    if result["checks"]:
        parts.append(_checks(result["checks"]))
    parts += [_figure(figure) for figure in _figures(run, audit)]
    mapping = event_map_of(run)
    parts += [f"<p>{in_html(with_names(mapping, note), 2000)}</p>" for note in result.get("notes", ())]
    for probe, reason in result.get("not_applicable", {}).items():
        parts.append(f"<p>Not applicable: {in_html(probe)}: {in_html(reason, 500)}</p>")
    return "".join([*parts, _worst(run, audit)])


def _checks(checks: Iterable[Mapping[str, Any]]) -> str:
    """The checks of an audit as a table."""
    # The status stands where a phone still shows it.
    head = '<tr><th>check<th>status<th class="n">value<th class="n">limit<th>unit<th class="n">observations</tr>'
    rows = []
    for check in checks:
        mark, kind = _MARKS.get(check["status"], _MARKS["not measured"])
        why = "" if check["status"] == "passed" else f": {in_html(check.get('reason') or '')}"
        compared = " (comparison, does not count)" if check.get("comparison") else ""
        rows.append(
            f"<tr><td>{in_html(check['name'])}{compared}"
            f'<td class="status {kind}">{mark} {in_html(check["status"])}{why}'
            f'<td class="n">{number(check["value"])}<td class="n">{number(check["limit"])}'
            f'<td>{in_html(check["unit"])}<td class="n">{check["count"]:,}</tr>'
        )
    return f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>'


def _figures(run: Run, audit: str) -> list[go.Figure]:
    """Figures of an audit, none for tables that are empty."""
    numbers = {found["name"]: found["value"] for found in run.report["audits"][audit].get("information", ())}
    steps, rates = run.table("cache parity", "steps"), run.table("decoding policy", "rates")
    found: dict[str, list[tuple[pd.DataFrame, Any]]] = {
        "causality": [(run.table(audit, "probes"), charts.changes_by_position)],
        "cache parity": [
            (steps, lambda t: charts.gap_by_step(t, numbers.get("tolerance"), numbers.get("noise floor")))
        ],
        "decoding policy": [(rates, charts_policies.invalid_rates), (rates, charts_policies.stops)],
        "numerics": [(run.table(audit, "sessions"), lambda table: charts.ratio_by_session(table, 1.25))],
        "training": [(run.table(audit, "baselines"), charts.baselines)],
    }
    return [draw(table) for table, draw in found.get(audit, ()) if not table.empty]


def _figure(figure: go.Figure) -> str:
    """A figure as markup; plotly's own code stands once in the head."""
    figure.update_layout(template="plotly_white")
    # Each figure would bring plotly's five megabytes along; they stand once in the head.
    inner = figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False, "responsive": True})
    return f"<figure>{inner}</figure>"


def _worst(run: Run, audit: str) -> str:
    """The worst observations of an audit as a table."""
    if audit == "cache parity":
        gaps = run.table(audit, "gaps")
        held_out = gaps[gaps["session_id"].fillna("") != ""] if len(gaps) else gaps  # what happened tells most
        return _frame(run, _top(held_out, "gap"), ("probe", "session_id", "events", "step", "gap"))
    if audit == "causality":
        return _frame(run, _top(run.table(audit, "probes"), "value"), ("probe", "path", "events", "position", "value"))
    sequences = run.table(audit, "sequences")
    if audit != "decoding policy" or sequences.empty:
        return ""
    return _wrong_sequences(run, sequences)


def _wrong_sequences(run: Run, sequences: pd.DataFrame) -> str:
    """Sequences that break a rule, those of proposed settings first: a refusal is explained by them."""
    wrong = sequences[sequences["first_wrong"].fillna(-1) >= 0]
    if wrong.empty:
        return ""
    counts = wrong["proposed"].astype(bool)
    marked = wrong["setting"].where(counts, wrong["setting"] + " (comparison)")
    first = wrong.assign(setting=marked).iloc[(~counts).to_numpy().argsort(kind="stable")[:_ROWS]]
    none = "" if counts.any() else "<p>No proposed setting decoded a wrong event; these are of comparisons.</p>"
    title = f"First {len(first)} of {plural(len(wrong), 'sequence')} with a wrong event"
    return none + _frame(run, first, ("setting", "session_id", "prefix", "events", "stop", "rules"), title)


def _top(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Rows with the largest values first; what is not a number counts as larger than any."""
    if frame.empty:
        return frame
    return frame.iloc[frame[column].fillna(float("inf")).to_numpy().argsort(kind="stable")[::-1][:_ROWS]]


def _frame(run: Run, frame: pd.DataFrame, columns: Sequence[str], title: str = "") -> str:
    """Some columns of a frame as a table, prefixes by their names; nothing for an empty frame."""
    if frame.empty:
        return ""
    mapping = event_map_of(run)
    named_too = frame.assign(
        **{name: [named(mapping, str(ids)) for ids in frame[name]] for name in _PREFIXES & {*columns}}
    )
    kinds = {name: ' class="n"' if frame[name].dtype.kind == "f" else "" for name in columns}
    head = "".join(f"<th{kinds[name]}>{in_html(_TITLES.get(name, name.replace('_', ' ')))}" for name in columns)
    rows = "".join(
        "<tr>" + "".join(_cell(name, cell) for name, cell in zip(columns, row, strict=True)) + "</tr>"
        for row in named_too[list(columns)].itertuples(index=False)
    )
    return f'<h3>{title or f"Worst {len(frame)}"}</h3><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'


def _cell(name: str, cell: Any) -> str:
    """A cell of a table; prefixes get room, since they are long."""
    if isinstance(cell, float):
        return f'<td class="n">{number(cell)}'
    return f"<td{' class=events' if name in _PREFIXES else ''}>{in_html(cell, 400)}"


def _facts(run: Run) -> dict[str, Any]:
    """What the run's numbers depend on."""
    manifest, mapping = run.manifest, event_map_of(run)
    device = ", ".join(f"{name} {value}" for name, value in manifest["device"].items() if value is not None)
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    names = "not known: the revision's folder is not where it was measured; prefixes are shown as ids"
    if mapping is not None:
        names = ", ".join(f"{event} {mapping.name(event)}" for event in mapping.domain)
    return {
        "device": device,
        "dtype": manifest["dtype"],
        "seed": manifest["seed"],
        "versions": versions,
        "policy": manifest["policy"]["digest"],
        "event map": f"version {manifest['event_map']['version']}, {manifest['event_map']['digest']}",
        "event names": names,
        "event order": f"version {manifest['event_order']['version']}, {manifest['event_order']['digest']}",
        "code": f"{manifest['code']['version']}, {manifest['code']['digest']}",
    }


def _pairs(pairs: Mapping[str, Any]) -> str:
    """Names and values as a two-column table."""
    rows = "".join(
        f'<tr><th scope="row">{in_html(name)}<td class="long">{in_html(value, 2000)}</tr>'
        for name, value in pairs.items()
    )
    return f"<table>{rows}</table>"


def _section(title: str, content: str) -> str:
    """A titled part of the document."""
    return f"<section><h2>{in_html(title)}</h2>{content}</section>"
