"""Parts of the sessions page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from auditlib.sessions.split import LeakageReport
from auditlib.sessions.store import StoreSummary
from auditlib.sessions.store_times import BINS_A_DECADE
from auditlib.views import charts_sessions
from auditlib.views.text import duration, plural
from auditlib.web import clock, kept, revision_facts, sessions_facts, state, tables
from auditlib.web.exports import downloads

_SHOWN = 1_000
"""How many rejected rows a page carries."""
_LEAKS = {
    "shared_sessions": "Held-out sessions whose id stands in training too. Must be 0.",
    "prefix_in_training": "Held-out sessions of which training holds another part. Must be 0.",
    "shared_customers": "Held-out sessions of a customer in training. Must be 0 where the split is by customer.",
    "shared_assets": "Held-out sessions on an asset that training knows. Must be 0 where the split is by asset.",
    "duplicate_sequences": "Held-out sessions that went exactly the way of some training session. No leak: repetition.",
}


def numbers(summary: StoreSummary) -> None:
    """How much the store holds."""
    row = st.container(horizontal=True)
    row.metric("Sessions", f"{summary.sessions:,}", width=150)
    row.metric("Events", f"{summary.events:,}", width=150)
    row.metric("Event names", f"{len(summary.event_counts):,}", width=150)
    if summary.first_time and summary.last_time:
        row.metric("From", f"{summary.first_time:%Y-%m-%d}", help="Time of the first event.", width=150)
        row.metric("Until", f"{summary.last_time:%Y-%m-%d}", help="Time of the last event.", width=150)


def imports(store: Path) -> None:
    """Every import with its counts, and the rows that were left out."""
    found = sessions_facts.imports(store)
    if found.empty:
        st.text("No log has been imported yet.")
        return
    # The page shows the viewer's clock, the files keep UTC.
    moments = [clock.when(moment) for moment in found["imported UTC"]]
    own = found.drop(columns="imported UTC").assign(imported=moments)
    st.dataframe(tables.shown(own), key="imports", hide_index=True, alt="Imports")
    downloads(found, f"{store.stem}-imports", "imports")
    rejects = sessions_facts.rejects(store)
    if len(rejects):
        _rejected(rejects)
    else:
        st.text("No row was left out.")


def _rejected(rows: pd.DataFrame) -> None:
    """Rows that were left out: the first in sight, with how many there are; the downloads hold the rest."""
    most = sessions_facts.MOST_REJECTS
    if len(rows) > _SHOWN:
        of, hold = (f"{len(rows):,}", "all") if len(rows) <= most else (f"more than {most:,}", f"the first {most:,}")
        st.caption(f"The first {_SHOWN:,} of {of} rows that were left out; the downloads hold {hold}.")
    shown = tables.shown(rows.head(_SHOWN))
    st.dataframe(shown, key="rejects", hide_index=True, alt="Rows that were left out, with the reason")
    downloads(rows.head(most), "rejects", "rejects")


def split(here: state.Selection) -> None:
    """Sizes of the two sides, what they share, and the groups that had to stay together."""
    if here.snapshot is None:
        not_split()
        return
    report = sessions_facts.leakage(here.places.store, here.snapshot)
    row = st.container(horizontal=True)
    row.metric("Training", f"{report.training_sessions:,}", width=150)
    row.metric("Held out", f"{report.held_out_sessions:,}", width=150)
    row.metric(
        "Quarantined", f"{report.quarantined:,}", help="Left out of both sides because they join them.", width=150
    )
    st.text(f"Split by {', '.join(report.by)}: sessions that share one of these stay on one side.")
    _verdict_on_leaks(report)
    rows = [
        {"what": name.replace("_", " "), "held-out sessions": count, "share": report.share(count), "meaning": meaning}
        for name, meaning in _LEAKS.items()
        if (count := getattr(report, name)) is not None
    ]
    share = st.column_config.NumberColumn(format="percent")
    st.dataframe(pd.DataFrame(rows), key="leaks", hide_index=True, column_config={"share": share}, alt="Leakage report")
    if report.component_sizes:
        kept.chart(_about(here), "components", lambda: charts_sessions.components(report.component_sizes))


def not_split() -> None:
    """In words: without a snapshot there is nothing to show."""
    st.info("Not split yet: nothing can be audited before a held-out side is frozen.")


def variants(here: state.Selection) -> None:
    """The most frequent ways through, with how many held-out sessions went each."""
    counted = sessions_facts.lengths(here.places.store, str(here.snapshot))
    held_out = int(counted.loc[counted["side"] == "held-out", "sessions"].sum())
    frame = kept.made(_about(here), "variants", lambda: _variant_table(here.places.store, str(here.snapshot)))
    gone = int(frame["sessions"].sum()) if len(frame) else 0
    rest = f" The {len(frame):,} most frequent ways, which {gone:,} of them went." if gone < held_out else ""
    st.caption(f"Held-out sessions only ({held_out:,}).{rest}")
    tables.show(
        frame, "variants", "variants", "Held-out variants, most frequent first", "No held-out session.", _about(here)
    )


def transitions(here: state.Selection) -> None:
    """Heat map of steps, crossed where the chosen revision's rules never allow the step."""
    names, counts = sessions_facts.transitions(here.places.store, str(here.snapshot))
    compiled, mapping = revision_facts.order(here.entry), revision_facts.event_map(here.entry)
    about = f"{_about(here)} {here.entry.digest if here.entry else None} {compiled is not None}"

    def draw() -> None:
        # Rules belong to a revision: without one there is nothing to cross out.
        legal = revision_facts.possible_pairs(compiled, mapping, names) if compiled and mapping else None
        st.plotly_chart(charts_sessions.transitions(names, counts, legal), key="transitions")

    kept.drawn(about, "transitions", draw)
    if len(names) > charts_sessions.MOST_NAMES:
        st.caption(f"Drawn are the {charts_sessions.MOST_NAMES} most frequent of {len(names):,} names.")
    if compiled is None or mapping is None:
        st.text("No revision is chosen, or its folder is gone: forbidden steps are not marked.")
    else:
        st.caption(
            "A cross marks a step that the revision's event order never allows; a red one happened all the same."
        )


def lengths(here: state.Selection) -> None:
    """How many sessions have how many events, on either side."""
    store, snapshot = here.places.store, str(here.snapshot)
    kept.chart(_about(here), "lengths", lambda: charts_sessions.lengths(sessions_facts.lengths(store, snapshot)))


def times(here: state.Selection) -> None:
    """How long sessions take and when they began, on either side; in words what the bars cannot show."""
    found = sessions_facts.times(here.places.store, str(here.snapshot))
    took = pd.DataFrame(found.durations, columns=["side", "bin", "sessions"])
    kept.chart(_about(here), "durations", lambda: charts_sessions.durations(took, BINS_A_DECADE))
    for side, (median, high) in found.spread.items():
        none = int(took.loc[(took["side"] == side) & took["bin"].isna(), "sessions"].sum())
        st.caption(
            f"{side.capitalize()} sessions: half take at most {duration(median)}, 95 % at most {duration(high)}"
            + (f"; {plural(none, 'session')} no time at all (one event, or all at one moment)." if none else ".")
        )
    began = pd.DataFrame(found.starts, columns=["side", "start", "sessions"])
    kept.chart(_about(here), "starts", lambda: charts_sessions.starts(began, found.period))


def _about(here: state.Selection) -> str:
    """What names the chosen snapshot, whose sessions never change."""
    return f"{here.places.store} {here.snapshot}"


def _variant_table(store: Path, snapshot: str) -> pd.DataFrame:
    found = sessions_facts.variants(store, snapshot)
    return pd.DataFrame(
        [{"sessions": one.sessions, "events": len(one.events), "sequence": " → ".join(one.events)} for one in found]
    )


def _verdict_on_leaks(report: LeakageReport) -> None:
    """In words whether anything crosses the split that must not."""
    crossing = {key: count for key, count in report.crossing_keys.items() if count}
    if report.shared_sessions or crossing:
        named = ", ".join(f"{count} values of {key}" for key, count in crossing.items())
        st.error(
            f"{report.shared_sessions} sessions and {named or 'no key'} stand on both sides.", icon=":material/close:"
        )
    else:
        st.success("No session and no key of the split stands on both sides.", icon=":material/check:")
