"""The inspector's cache trial: offer this prefix's cache to another request, and see it refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.event_map import EventMap
from auditlib.numbers import number
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, prefix_choice, sessions_facts, state
from auditlib.web.inspection import Seen, reused
from auditlib.web.prefix_choice import Prefix

if TYPE_CHECKING:
    from auditlib.audits.inspection_reuse import Reuse

_OFFERED = 500


def reuse(seen: Seen, mapping: EventMap, after_edit: tuple[int, ...] | None, tolerance: float | None) -> None:
    """Offer this prefix's cache to another request: the guard's answer, and what would have been said without it."""
    requests = _requests(seen.here, seen.prefix, mapping, after_edit)
    chosen = address.choose(
        st.container(),
        "other",
        "Request that the cache is offered to",
        list(requests),
        shown=lambda text: requests[text],
        default=_telling(requests, seen.prefix),
        help="The request's last event is to be appended; the cache should hold everything before it.",
    )
    if chosen is None:
        st.text("There is no other prefix to offer it to: split the store, or edit an event under What if.")
        return
    asked = prefix_choice.from_link(chosen, mapping)
    st.text("Request: " + " → ".join(safe(mapping.name(event), 40) for event in asked))
    try:
        found = reused(seen.here, seen.prefix, seen.compiled, asked)
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 1000))
        return
    _reuse_words(found, tolerance)
    _where_they_part(seen.prefix.ids, asked, mapping)
    if len(found.answers):
        st.dataframe(_answers(found.answers), key="reuse-table", hide_index=True, alt="Right answer beside the cache's")


def _requests(
    here: state.Selection, prefix: Prefix, mapping: EventMap, after_edit: tuple[int, ...] | None
) -> dict[str, str]:
    """Requests by their ids: the edited prefix, that of a link, and those of held-out sessions."""
    found: dict[str, str] = {}
    sessions: dict[str, str] = {}
    if after_edit is not None and len(after_edit) > 1:
        found[_text(after_edit)] = "the edited prefix"
    linked = address.value("other")
    if linked is not None and linked not in found:
        try:
            ids = prefix_choice.from_link(linked, mapping)
            found[linked] = f"the link's prefix of {plural(len(ids) - 1, 'event')}"
        except PrefixgateError as problem:
            st.warning(in_markdown(problem, 500))
    if here.snapshot is None:
        return found
    for session in sessions_facts.held_out(here.places.store, here.snapshot, _OFFERED):
        try:
            ids = prefix_choice.of_session(session, mapping)
        except PrefixgateError:  # a name that this revision does not know: it could not be asked for either
            continue
        if ids != prefix.ids and 1 < len(ids) <= prefix_choice.LONGEST:
            sessions.setdefault(_text(ids), f"session {safe(session.session_id, 40)} · {plural(len(ids) - 1, 'event')}")
    return {**found, **sessions} if after_edit is None else {**sessions, **found}


def _telling(requests: Mapping[str, str], prefix: Prefix) -> str | None:
    """The first request whose cache would be as long as this one: told apart by its events alone."""
    length = len(prefix.ids)
    same = (text for text in requests if text.count("-") == length and not text.startswith(f"{prefix.text}-"))
    return next(same, next(iter(requests), None))


def _reuse_words(found: Reuse, tolerance: float | None) -> None:
    """The guard's answer, and how wrong the other would have been."""
    if found.accepted:
        st.info("Accepted: the cache holds exactly what the request needs before its last event.")
    else:
        # The guard itself knows ids only; the caption below names the events.
        reason = "it holds other events than the request begins with" if found.field == "events" else found.reason
        st.success(f"Rejected by its {in_markdown(found.field)}: {in_markdown(reason, 600)}", icon=":material/block:")
    if found.problem:
        st.text(f"Without the guard the decoder itself would have refused: {safe(found.problem, 400)}")
        return
    right, wrong = found.answers.iloc[0], found.answers.loc[found.answers["from_cache"].idxmax()]
    allowed = f" where {number(tolerance)} is rounding" if tolerance is not None else ""
    without = "The cache's answer is" if found.accepted else "Without the guard, the answer would have been"
    st.text(
        f"{without} {number(found.gap)} logit away from the right one{allowed}. Right: {safe(right['event'], 60)} at "
        f"{right['right']:.1%}; from the cache: {safe(wrong['event'], 60)} at {wrong['from_cache']:.1%}."
    )


def _where_they_part(held: tuple[int, ...], asked: tuple[int, ...], mapping: EventMap) -> None:
    """The first event in which cache and request differ, by name."""
    pairs = zip(held, asked[:-1], strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    if place is not None:
        st.caption(
            f"They part at event {place}: the cache holds {in_markdown(mapping.name(held[place]), 60)}, "
            f"the request has {in_markdown(mapping.name(asked[place]), 60)}."
        )


def _answers(answers: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "next event": [safe(name) for name in answers["event"]],
            "right": [number(one) for one in answers["right"]],
            "from this cache": [number(one) for one in answers["from_cache"]],
        }
    )


def _text(ids: Sequence[int]) -> str:
    return "-".join(map(str, ids))
