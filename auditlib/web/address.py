"""The address bar as the record of what is shown: every choice stands in it, so a copied link shows the same thing.

A value in the address that we did not put there ourselves came from a link, and wins over what the session remembers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

_WRITTEN = "address written"


def value(name: str) -> str | None:
    """What the address says, None when it says nothing."""
    text: str | None = st.query_params.get(name)
    return text or None


def put(**values: str | None) -> None:
    """Write values into the address; None takes one out."""
    written = st.session_state.setdefault(_WRITTEN, {})
    for name, text in values.items():
        if text is None:
            st.query_params.pop(name, None)
        # Every write is an entry in the browser's history, so an equal value is not written again.
        elif st.query_params.get(name) != text:
            st.query_params[name] = text
        written[name] = text


def choose(
    place: DeltaGenerator,
    name: str,
    label: str,
    options: Sequence[str],
    *,
    shown: Callable[[str], str] = str,
    default: str | None = None,
    help: str | None = None,  # noqa: A002  (as Streamlit calls it)
) -> str | None:
    """A select box whose value stands in the address under `name`; None when there is nothing to choose.

    A link that names something which is not among `options` is answered with a warning and the default.
    """
    # Streamlit lets a widget's value be set before it is drawn, and not after.
    _follow(name, options, default)
    if not options:
        return None
    chosen: str = place.selectbox(label, options, key=name, format_func=told_apart(options, shown), help=help)
    put(**{name: chosen})
    return chosen


def told_apart(options: Sequence[str], shown: Callable[[str], str]) -> Callable[[str], str]:
    """`shown`, with the end of the option itself where two look the same: the browser answers with what it showed."""
    seen = Counter(shown(option) for option in options)
    return lambda option: shown(option) if seen[shown(option)] < 2 else f"{shown(option)} · {option[-8:]}"


def section(*names: str, default: str | None = None) -> tuple[str, DeltaGenerator]:
    """Tabs of the page's sections: the name of the open one, and where to draw it; the others are not drawn at all.

    The open section stands in the address under `section`, unless it is the one that opens by itself: the first, or
    `default`.
    """
    by_itself = default or names[0]
    _follow("section", names, by_itself)
    tabs = st.tabs(names, key="section", on_change="rerun")
    shown = next((name for name, tab in zip(names, tabs, strict=True) if tab.open), by_itself)
    put(section=None if shown == by_itself else shown)
    return shown, tabs[names.index(shown)]


def _follow(name: str, options: Sequence[str], default: str | None) -> None:
    """Set the widget's value from a link, or keep the session's, or fall back to the default."""
    linked, written = value(name), st.session_state.setdefault(_WRITTEN, {})
    foreign = linked is not None and linked != written.get(name)
    if foreign and linked in options:
        st.session_state[name] = linked
    elif st.session_state.get(name) not in options and options:
        # Streamlit forgets a widget that was not drawn for a run; the address does not.
        first = default if default in options else options[0]
        st.session_state[name] = linked if linked in options else first
    if foreign and linked not in options:
        st.warning(
            f"The link asks for a {name} that is not here; it may have been removed, or belong to another store."
        )
        put(**{name: None})


def visit(**values: str) -> None:
    """Put values into the address as a link would, so that the next run follows them; for callbacks of buttons.

    A page link cannot do this on the page that it leads to: Streamlit makes such a link inert.
    """
    for name, text in values.items():
        st.query_params[name] = text
