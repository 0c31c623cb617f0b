"""Parts of the comparison of two runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from auditlib.numbers import number
from auditlib.runs.folder import Run
from auditlib.views.paired import Pairing, Terms
from auditlib.views.summary import headline
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, clock, comparison, kept, state, tables
from auditlib.web.exports import downloads, named

_LINKED = 5
_SHOWN = 500
_ALL = "all"
_WRITTEN = ("before", "after", "difference", "p")


def choose_other(here: state.Selection) -> Run:
    """The run that the chosen one is held against; without any, words, and the page ends here."""
    found = comparison.others(here)
    chosen = address.choose(
        st.container(),
        "against",
        "Compared with (before)",
        list(found),
        shown=lambda run_id: _label(found[run_id]),
        help="The run chosen in the sidebar is the one after. The link holds both.",
    )
    if chosen is None:
        st.info("There is no second run yet. Audit another revision, or this one again, and come back.")
        st.stop()
    return found[chosen]


def head(before: Run, after: Run, agreed: Terms) -> None:
    """Which two runs stand here, what must be borne in mind, or why they are not compared; then the page ends."""
    left, right = st.columns(2)
    for place, words, run in ((left, "Before", before), (right, "After", after)):
        with place.container(border=True):
            st.subheader(f"{words}: {in_markdown(run.report['revision_name'], 60)}", anchor=False)
            st.caption(f"Run {in_markdown(run.id)}, {in_markdown(run.manifest['dtype'])}")
            st.text(_standing(run))
    if agreed.refusal:
        st.error(f"Not compared: {in_markdown(agreed.refusal)}.", icon=":material/block:")
        st.stop()
    for words in agreed.notes:
        st.warning(in_markdown(f"{words[:1].upper()}{words[1:]}."), icon=":material/info:")


def flips(here: state.Selection, before: Run, after: Run, pairing: Pairing) -> None:
    """Sessions that are good in one run and not in the other; each opens in the inspector under the run that fails."""
    found, paired = pairing.flips, len(pairing.gaps) + len(pairing.answers)
    if not paired:
        st.info("Nothing was paired: the two runs measured no session in common, so nothing can be said of flips.")
        return
    worse, better = (int((found["change"] == change).sum()) for change in ("worse", "better"))
    if found.empty:
        st.success(
            f"No session flips, in {plural(paired, 'comparison')}: whatever was good before is good after, and the "
            "reverse.",
            icon=":material/check:",
        )
        return
    st.text(f"{plural(worse, 'flip')} for the worse, {plural(better, 'flip')} for the better.")
    kinds = [_ALL, *dict.fromkeys(found["what"])]
    kind = address.choose(st.container(), "flip", "What flips", kinds, shown=safe)
    shown = found if kind == _ALL else found[found["what"] == kind]
    for row in _first_of_each(shown).to_dict("records"):
        _flip_link(here, before, after, row)
    st.caption("Select a row to open it in the inspector, under the revision that fails.")
    table = tables.shown(shown.head(_SHOWN)[["change", "session_id", "before", "after", "what"]])
    if len(shown) > _SHOWN:
        st.caption(f"The first {_SHOWN} of {len(shown):,} flips; the downloads hold all.")
    position = tables.selected(table, "flips", "Sessions that flip, those for the worse first")
    if position is not None:
        _flip_link(here, before, after, shown.iloc[position].to_dict())
    downloads(found, named(after, f"against-{before.id}-flips"), "flips")


def differences(before: Run, after: Run, pairing: Pairing, about: str) -> None:
    """Every paired difference with its interval, what flipped, and what it rests on; `about` names the pairing."""
    if pairing.differences.empty:
        st.text("The two runs measured nothing in common: audit both with cache parity, numerics and decoding policy.")
        return

    def draw() -> None:
        rows = pd.DataFrame([_difference(row) for row in pairing.differences.to_dict("records")])
        columns, alt = tables.number_columns(*_WRITTEN), "Paired differences with intervals"
        st.dataframe(rows, key="differences", hide_index=True, column_config=columns, alt=alt)

    kept.drawn(about, "differences", draw)
    st.caption(
        "Shares: interval by Newcombe 1998 (method 10), p by the exact McNemar test on the sessions that flipped. "
        "Next events and gaps: percentile bootstrap, 2,000 draws of whole sessions from one fixed seed. "
        "Sessions that went exactly the same way count once. Latency is measured by a bench: see the section Latency."
    )
    downloads(pairing.differences, named(after, f"against-{before.id}-differences"), "differences")


def rates(before: Run, after: Run) -> None:
    """Rates of every setting in both runs, with the counts and bounds they rest on."""
    found = [_rates(run, words) for words, run in (("before", before), ("after", after))]
    known = [one for one in found if len(one)]
    # Both rows of a setting beside each other: that is what is read.
    together = pd.concat(known).sort_index(kind="stable").reset_index(drop=True) if known else found[0]
    name, alt = named(after, f"against-{before.id}-rates"), "Rates before and after"
    if together.empty:
        st.text(_NO_RATES)
        return

    def draw() -> None:
        # As on the page Policies: one bound must not stand there as 1.16 % and here as 0.0116.
        shares = {name.replace("_", " "): st.column_config.NumberColumn(format="percent") for name in _SHARES}
        st.dataframe(tables.shown(together), key="paired-rates", hide_index=True, column_config=shares, alt=alt)

    kept.drawn(kept.of_run(before, after), "paired-rates", draw)
    downloads(together, name, "paired-rates")


def latency(before: Run, after: Run) -> None:
    """Latencies of the runs' artifacts beside each other, as far as they were benched."""
    found = comparison.latencies(state.settings().artifacts, {"before": before, "after": after})
    if len(set(found["run"])) < 2:
        lacking = " and ".join(words for words in ("before", "after") if words not in set(found["run"]))
        st.text(f"Nothing to compare: no artifact of the run {lacking} was benched. The page Verdict has the buttons.")
    if len(set(found["machine"])) > 1:
        st.warning("The benches ran on different machines; their times do not compare.", icon=":material/warning:")
    if found.empty:
        return
    st.caption(
        "Milliseconds on the path that serves. p95: 95 of 100 requests were faster; at most: so few requests allow "
        "it to be this."
    )
    # What is compared comes first, so that a narrow screen shows it without a scroll.
    first = ["load", "measure", "run", "p95", "at most", "p50", "requests"]
    shown = tables.shown(found[[*first, *(name for name in found if name not in first)]])
    columns = dict.fromkeys(("p50", "p95", "at most"), st.column_config.NumberColumn(format="%.1f"))
    st.dataframe(shown, key="paired-latency", hide_index=True, column_config=columns, alt="Latency before and after")
    downloads(found, named(after, f"against-{before.id}-latency"), "paired-latency")


_NO_RATES = "The decoding policy was not measured in either run."
_SHARES = ("invalid_upper", "accuracy", "similarity")
_RATES = ["setting", "run", "invalid_upper", "accuracy", "similarity", "capped", "invalid_sequences", "sequences"]


def _rates(run: Run, words: str) -> pd.DataFrame:
    found = tables.of_run(run, "decoding policy", "rates")
    if found.empty:
        return pd.DataFrame(columns=_RATES)
    return found.assign(run=words)[[name for name in _RATES if name in found or name == "run"]]


def _standing(run: Run) -> str:
    """What became of the run in a few words: why it was refused, or what it left out."""
    if run.approved or not run.report["failures"]:
        words = headline(run.report)
        return safe(words[:1].upper() + words[1:], 300)
    return f"Refused for {safe(', '.join(run.report['failures']))}"


def _difference(row: Mapping[str, Any]) -> dict[str, object]:
    """A difference in words: how large it is, of what, and how sure it is; a phone shows what stands first."""
    says = number if "logit" in row["what"] else _percent
    setting, _, what = str(row["what"]).rpartition(": ")
    return {
        "difference": says(row["difference"]),
        "what": safe(what),
        "setting": safe(setting),
        "before": says(row["before"]),
        "after": says(row["after"]),
        "95 % interval": f"{says(row['low'])} to {says(row['high'])}",
        "worse": row["worse"],
        "better": row["better"],
        "p": number(row["p"]),
        "distinct sessions": row["sessions"],
        "by": row["interval"],
    }


def _percent(share: float) -> str:
    return f"{share:.2%}"


def _flip_link(here: state.Selection, before: Run, after: Run, row: Mapping[Hashable, Any]) -> None:
    """A link to the prefix of a flip, under the revision that fails."""
    run = after if row["change"] == "worse" else before
    # What changed stands first: a narrow screen cuts off the end.
    words = f"{row['session_id']}, {row['before']} → {row['after']} ({row['change']}, {row['what']})"
    tables.inspector_link(_under(here, run), {str(name): cell for name, cell in row.items()}, words)


def _first_of_each(found: pd.DataFrame) -> pd.DataFrame:
    """The first flips of every kind, so that one kind with many does not hide the others."""
    return found.groupby(["change", "what"], sort=False).head(1).head(_LINKED)


def _under(here: state.Selection, run: Run) -> state.Selection:
    """What is shown, with another run and its revision in place of the chosen one."""
    entry = next((entry for entry in here.entries if entry.digest == run.revision), None)
    return replace(here, entry=entry, run=run)


def _label(run: Run) -> str:
    made = clock.when(str(run.manifest["created"]))
    return f"{safe(run.report['revision_name'], 60)} · {made} · {'approved' if run.approved else 'refused'}"
