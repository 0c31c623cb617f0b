"""Prefix inspector: one prefix, event by event, by the full and the cached path."""

import streamlit as st

from auditlib.views import charts_inspector
from auditlib.web import (
    inspection,
    kept,
    parts,
    parts_attention,
    parts_edit,
    parts_inspector,
    parts_prefix,
    parts_reuse,
    revision_facts,
    shell,
)
from auditlib.web.text import TERMS

here = shell.enter()
st.title("Prefix inspector", help=TERMS["prefix"])
st.caption("What does either path expect after each event, and which events do the rules allow? The link is the state.")
mapping, compiled = revision_facts.event_map(here.entry), revision_facts.order(here.entry)
if mapping is None or compiled is None:
    st.info("Choose a revision whose folder is there: without its weights and event map there is nothing to inspect.")
    st.stop()
parts_prefix.begin_with_the_worst(here)
prefix = parts_prefix.choose_prefix(here, mapping, compiled)
seen = inspection.look(here, prefix, compiled)
tolerance, floor = (
    parts.information(here.run, "cache parity", name) if here.run else None for name in ("tolerance", "noise floor")
)

parts_inspector.describe(prefix, seen)
parts_inspector.verdict_on(seen, tolerance)
shown, place = parts_inspector.section()
with place:
    if shown == "Gaps":
        about = f"{seen.about} {tolerance} {floor}"
        kept.chart(about, "gap-along", lambda: charts_inspector.gap_along(seen.steps, tolerance, floor))
        parts_inspector.steps_table(seen, tolerance)
    elif shown == "What comes next":
        step = parts_inspector.choose_step(prefix, seen.names)
        follows = seen.next_events(step)
        parts_inspector.order_words(follows, mapping)
        kept.chart(f"{seen.about} {step}", "next-events", lambda: charts_inspector.next_events(follows))
        parts_inspector.append_buttons(prefix, seen.next_events(len(prefix.ids)), mapping)
        parts_inspector.next_table(follows, f"{seen.about} {step}")
    elif shown == "What if":
        st.caption("Replace, delete or insert one event, and see what the decoder then expects behind it.")
        parts_edit.edit(seen, mapping)
    elif shown == "Whose cache":
        st.caption(TERMS["cache identity"])
        parts_reuse.reuse(seen, mapping, parts_edit.edited_ids(seen, mapping), tolerance)
    else:
        st.caption(
            "Share of its attention that each event (row) gives to each earlier one (column); each row sums to 100 %."
        )
        parts_attention.attended(seen)
