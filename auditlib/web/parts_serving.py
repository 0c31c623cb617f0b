"""Parts of the serving page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.numbers import number
from auditlib.serving.artifact import Artifact
from auditlib.serving.memory import GROWN, RESERVED, MemoryPlan
from auditlib.views import charts_serving
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import clock, serving_facts, tables
from auditlib.web.serving_facts import Measured
from auditlib.web.text import check_facts, check_row, short

_BADGES = {"passed": ("green", ":material/check:"), "failed": ("red", ":material/close:")}
_UNSURE = ("orange", ":material/question_mark:")
_LATENCY = ("load", "arm", "measure", "share", "value", "low", "high", "count")
_LOADS = ("load", "arm", "requests", "answered", "timed_out", "refused", "requests_per_s", "events_per_s")
_RATIOS = ("load", "measure", "ratio", "low", "high", "rounds")
_COMPOSITIONS = ("composition", "path", "slots", "requests", "compared", "differing", "ties", "unanswered")
_DIFFERENCES = ("path", "composition", "prefix", "step", "margin", "gap", "saved", "given", "saved_stop", "given_stop")
_GIGABYTE = 10**9
_ROWS = "A row for each hypothesis and each kept prefix, and the events that each of them may hold."


def head(artifact: Artifact) -> None:
    """What an artifact serves, within which bounds, and which name it has."""
    setting, bounds = artifact.setting, artifact.bounds
    if setting is None:
        st.error("It serves nothing itself: every setting is blocked.", icon=":material/block:")
    row = st.container(horizontal=True)
    row.metric("serves", "nothing" if setting is None else safe(setting.name, 40), width=190)
    row.metric("by", "–" if artifact.strategy is None else artifact.strategy, width=210)
    row.metric("longest prefix", f"{bounds.max_prefix_events:,}", help="Events a request may send.", width=150)
    row.metric("new events", f"{bounds.max_new_events:,}", help="Most events of one answer, end included.", width=150)
    row.metric("slots", f"{bounds.slots:,}", help="Requests decoded at once.", width=110)
    row.metric(
        "queue", f"{bounds.queue:,}", help="Requests that may wait beside them; more are turned away.", width=110
    )
    fallback = artifact.fallback
    words = "the same decoder by full prefixes" if fallback == "full-prefix" else f"artifact {short(fallback)}"
    st.text(
        f"Artifact {artifact.digest}\n"
        f"Revision {safe(artifact.revision.manifest.name)}, run {safe(artifact.document['run'])}\n"
        f"Tolerance {number(artifact.tolerance)} logits, studied in {artifact.dtype}\nWhere it fails: {words}"
    )


def blocked(artifact: Artifact) -> None:
    """What the run did not allow, each with its reasons; that nothing is blocked is said too."""
    told = {"cache acceleration": artifact.blocked.cache_acceleration, **artifact.blocked.decoding}
    off = {name: reasons for name, reasons in told.items() if reasons}
    if not off:
        st.text("Nothing is blocked: the run allows the cache and every setting.")
    for name, reasons in off.items():
        lines = "\n".join(f"- {in_markdown(reason)}" for reason in reasons)
        st.warning(f"Off: {in_markdown(name)}\n\n{lines}", icon=":material/block:")


def evidence_head(kind: str, found: Measured | None) -> bool:
    """Status of one kind of evidence, with every check; False, with the way to get it, where there is none."""
    if found is None:
        verb = "rehearse" if kind == "rehearsal" else kind
        st.info(
            "Not measured yet. Press the button above, or put beside the artifact's folder what "
            f"`python -m auditlib {verb} ARTIFACT --out {kind}.json` writes."
        )
        return False
    colour, icon = _BADGES.get(found.status, _UNSURE)
    st.badge(f"{kind}: {found.status}", color=colour, icon=icon)  # type: ignore[arg-type]
    device = found.document.get("device")
    processor = device.get("processor") if isinstance(device, Mapping) else None
    st.caption(in_markdown(f"{clock.when(str(found.document['created']))}, {processor or 'unknown device'}"))
    frame, whole = (
        pd.DataFrame([one(kind, check) for check in found.document["checks"]]).drop(columns="audit", errors="ignore")
        for one in (check_row, check_facts)
    )
    name, alt = f"{kind}-checks", f"Checks of the {kind}"
    tables.show(frame, name, name, alt, "It has no check.", whole=whole)
    return True


def bench(found: Measured) -> None:
    """Latency under every load, cached and full, and the table behind it."""
    latency = found.table("latency", _LATENCY)
    limits = found.document.get("stated")
    for measure in ("first event", "whole request"):
        limit = limits.get(f"{measure} p95") if isinstance(limits, Mapping) else None
        shown = float(limit) if isinstance(limit, int | float) else None
        st.plotly_chart(charts_serving.latency(latency, measure, shown), key=f"latency-{measure}")
    st.plotly_chart(charts_serving.ratios(found.table("ratios", _RATIOS)), key="ratios")
    tables.show(found.table("loads", _LOADS), "loads", "loads", "Loads of the bench", "No load was measured.")


def replay(found: Measured) -> None:
    """Who was decoded with whom, and each answer that is not the saved one."""
    own = found.table("compositions", _COMPOSITIONS)
    tables.show(own, "compositions", "compositions", "Compositions of the replay", "Nothing was replayed.")
    listed = found.table("differences", _DIFFERENCES)
    st.text(f"{plural(len(listed), 'answer')} not as saved, near ties included.")
    if len(listed):
        tables.show(listed, "differences", "differences", "Answers that are not the saved ones", "")


def rehearsal(found: Measured) -> None:
    """Which failure was planted, who answered then, and how."""
    trials = found.document.get("trials")
    rows = [
        {
            "failure": safe(one.get("failure", "")),
            "answered by": safe(", ".join(f"{path} {count:,}" for path, count in one.get("paths", {}).items())),
            **{name: one.get(name) for name in ("right", "wrong", "unanswered")},
        }
        for one in (trials if isinstance(trials, list) else [])
        if isinstance(one, Mapping)
    ]
    tables.show(pd.DataFrame(rows), "trials", "rehearsal", "Planted failures and who answered", "Nothing was planted.")


def planner(start: MemoryPlan) -> None:
    """Bytes of keys and values for whatever is chosen, with this machine's memory drawn in."""
    row = st.container(horizontal=True)
    strategy = row.selectbox(
        "Strategy", (GROWN, RESERVED), index=(GROWN, RESERVED).index(start.strategy), key="plan-strategy", width=200
    )
    itemsize = row.selectbox(
        "Bytes of one number", (2, 4, 8), index=(2, 4, 8).index(start.itemsize) if start.itemsize in (2, 4, 8) else 1,
        key="plan-itemsize", width=160,
    )  # fmt: skip
    memory = row.number_input(
        "Memory of the machine, GB", 0.1, 1e5, max(0.1, round(serving_facts.machine_memory() / _GIGABYTE, 1)),
        key="plan-memory", width=220, help="Of this machine to begin with; weights and the rest need some too.",
    )  # fmt: skip
    left, right = st.columns(2)
    chosen: dict[str, Any] = {
        "context": _slider(left, "Events a row may hold", 8192, start.context),
        "layers": _slider(left, "Layers", 128, start.layers),
        "heads": _slider(left, "Heads of keys and values", 128, start.heads),
        "head_size": _slider(left, "Head size", 256, start.head_size),
        "concurrency": _slider(right, "Requests at once", 4096, start.concurrency),
        "width": _slider(right, "Hypotheses a request (beam width)", 64, start.width),
        "residents": _slider(right, "Kept prefixes", 1024, start.residents, least=0),
    }
    plan = replace(start, **chosen, strategy=strategy, itemsize=itemsize)
    _planned(plan, memory * _GIGABYTE)


def _slider(place: Any, label: str, most: int, value: int, least: int = 1) -> int:
    """A slider over powers of two, and the value that it starts from: sizes are thought of in doublings."""
    start = min(most, max(least, value))
    steps = sorted({least, start, most, *(1 << power for power in range(most.bit_length()))})
    chosen: int = place.select_slider(label, steps, start, key=f"plan-{label}")
    return chosen


def _planned(plan: MemoryPlan, memory: float) -> None:
    """What the chosen numbers take, in words and as a figure."""
    most = plan.most_at_once(int(memory))
    row = st.container(horizontal=True)
    row.metric(
        "held", _gigabytes(plan.held), help="2 · layers · rows · events a row · heads · head size · bytes", width=180
    )
    row.metric(
        "at the peak", _gigabytes(plan.peak), help="While rows move, the old cache and the new are there.", width=180
    )
    row.metric("rows × events", f"{plan.rows:,} × {plan.slots:,}", help=_ROWS, width=190)
    row.metric("most at once", f"{most:,}", help="Requests whose peak fits into the machine's memory.", width=160)
    if plan.peak > memory:
        st.error(f"It does not fit: at most {most:,} requests at once do.", icon=":material/memory:")
    places = sorted({1 << power for power in range(13)} | {plan.concurrency})
    widths = dict.fromkeys((plan.width, 1, 8))
    lines = {
        f"{plural(width, 'hypothesis').replace('hypothesiss', 'hypotheses')} a request": [
            replace(plan, concurrency=count, width=width) for count in places
        ]
        for width in widths
    }
    st.plotly_chart(charts_serving.memory(lines, memory / _GIGABYTE), key="memory")


def _gigabytes(size: float) -> str:
    return f"{size / _GIGABYTE:,.2f} GB" if size >= _GIGABYTE / 100 else f"{size / 1e6:,.2f} MB"
