"""The inspector's what-if: edit one event, and see what changes behind it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.numbers import number
from auditlib.views import charts_whatif
from auditlib.views.text import in_markdown, safe
from auditlib.web import address
from auditlib.web.inspection import Change, Seen, edited
from auditlib.web.prefix_choice import flags_text

if TYPE_CHECKING:
    from auditlib.audits.inspection_edit import Downstream

_KINDS = {"none": "no edit", "replace": "replace", "delete": "delete", "insert": "insert before"}


def edit(seen: Seen, mapping: EventMap) -> None:
    """Edit one event and show what changes behind it."""
    change = _choose_change(seen, mapping)
    if change is None:
        return
    try:
        found = edited(seen.here, seen.prefix, seen.compiled, change)
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 1000))
        return
    _edit_words(found)
    st.plotly_chart(charts_whatif.downstream(found.steps), key="downstream")
    _edit_tables(found)
    st.button(
        "Go on from the edited prefix",
        key="take-edit",
        icon=":material/edit:",
        on_click=_take,
        args=(found.ids, seen.prefix.flags),
    )


def edited_ids(seen: Seen, mapping: EventMap) -> tuple[int, ...] | None:
    """Ids of the prefix after the edit that the address names; None without an edit, or where it does not fit."""
    kind, place, by = (address.value(name) for name in ("edit", "place", "by"))
    event = mapping.events.get(by or "")
    fits = re.fullmatch(r"[0-9]{1,5}", place or "") and (event is None) == (kind == "delete")
    if kind not in _KINDS or kind == "none" or not fits:
        return None
    try:
        return edited(seen.here, seen.prefix, seen.compiled, (kind, int(place or 0), event)).ids
    except PrefixgateError:  # the section that edits says what is wrong
        return None


def _choose_change(seen: Seen, mapping: EventMap) -> Change | None:
    """The edit that the address names."""
    last = len(seen.prefix.ids) - 1
    if not last:
        st.text("There is no event to edit yet.")
        return None
    row = st.container(horizontal=True)
    kind = address.choose(row, "edit", "Edit", list(_KINDS), shown=lambda one: _KINDS[one])
    if kind is None or kind == "none":
        address.put(place=None, by=None)
        return None
    places = [str(place) for place in range(1, last + 1)]
    place = address.choose(
        row, "place", "Event", places, shown=lambda one: f"{one}. {safe(seen.names[int(one)], 40)}", default=places[0]
    )
    if kind == "delete":
        address.put(by=None)
        return kind, int(place or 1), None
    by = address.choose(row, "by", "New event", list(mapping.events), shown=lambda name: safe(name, 60))
    return kind, int(place or 1), mapping.events[by or next(iter(mapping.events))]


def _edit_words(found: Downstream) -> None:
    """What the edit breaks, and where it is felt most."""
    if found.wrong is not None:
        place, name, rules = found.wrong
        st.warning(
            f"After the edit, event {place}, {in_markdown(name, 60)}, is illegal: {in_markdown(rules)}",
            icon=":material/block:",
        )
    else:
        st.success("The edited prefix keeps the event order.", icon=":material/check:")
    if len(found.steps):
        row = found.steps.loc[found.steps["moved"].fillna(1.0).idxmax()]
        st.text(
            f"Felt most after event {row['number']}, {safe(row['event'], 60)}: "
            f"{row['moved']:.1%} of the probability of what follows stands elsewhere."
        )


def _edit_tables(found: Downstream) -> None:
    """Every later step, and what comes next, before and after the edit."""
    steps = found.steps
    if len(steps):
        shown = pd.DataFrame(
            {
                "number": steps["number"],
                "event": [safe(name) for name in steps["event"]],
                "before": [number(one) for one in steps["before"]],
                "after": [number(one) for one in steps["after"]],
                "moved after it": [f"{one:.1%}" for one in steps["moved"]],
                "order before": _legal(steps["legal_before"]),
                "order after": _legal(steps["legal_after"]),
                "state": ["none" if one < 0 else str(one) for one in steps["state"]],
                "forbidden by": [safe(rules) for rules in steps["rules"]],
            }
        )
        st.dataframe(shown, key="downstream-table", hide_index=True, alt="Later events before and after the edit")
    st.caption("What comes next at the end of the prefix, before and after the edit, largest change first:")
    after = found.next_events
    shown = pd.DataFrame(
        {
            "next event": [safe(name) for name in after["event"]],
            "before": [number(one) for one in after["before"]],
            "after": [number(one) for one in after["after"]],
            "allowed before": _legal(after["legal_before"]),
            "allowed after": _legal(after["legal_after"]),
        }
    )
    st.dataframe(shown, key="edit-next", hide_index=True, alt="Next events before and after the edit")


def _legal(flags: pd.Series) -> list[str]:
    return ["✓ legal" if flag else "✗ illegal" for flag in flags]


def _take(ids: tuple[int, ...], flags: tuple[bool, ...]) -> None:
    """Make the edited prefix the one that is shown; it is no session any more, but goes by the same rules."""
    when = flags_text(flags)
    address.put(events="-".join(map(str, ids)), step=None, session=None, when=when, edit=None, place=None, by=None)
    st.session_state["edit"] = "none"
