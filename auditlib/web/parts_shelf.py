"""Which artifact the serving page shows: that of the run chosen in the sidebar, or another one that says so."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from auditlib.views.text import in_markdown, safe
from auditlib.web import address, clock, state
from auditlib.web.shelf import Shelved, artifacts
from auditlib.web.text import short

_FOLLOWED = "run that the artifact follows"


def choose(found: Mapping[str, Path], here: state.Selection) -> Path | None:
    """The folder of the artifact that is shown; None, with the next step in words, when there is none."""
    if not found:
        st.info("There is no artifact yet. Package one: `python -m auditlib package --run R --out FOLDER`")
        return None
    shelf = {one.folder.name: one for one in artifacts(next(iter(found.values())).parent)}
    run = here.run.id if here.run else ""
    own = [name for name in found if name in shelf and shelf[name].run == run]
    # Whoever turns to another run turns to its artifact; a choice in the box holds until then.
    if st.session_state.get(_FOLLOWED, run) != run and own:
        st.session_state["artifact"] = own[-1]
    st.session_state[_FOLLOWED] = run
    name = address.choose(
        st.container(), "artifact", "Artifact", list(found), default=own[-1] if own else None,
        shown=lambda name: _label(name, shelf.get(name)), help="A folder that `package` wrote.",
    )  # fmt: skip
    shown = name or next(iter(found))
    if shown in shelf and shown not in own:
        _say_other(shelf[shown], own)
    return found[shown]


def _say_other(shown: Shelved, own: list[str]) -> None:
    """That the artifact is not the chosen run's: its figures must not be taken for those of the chosen revision."""
    of = f"this one is of {in_markdown(shown.revision or shown.folder.name, 80)}"
    words = f"The chosen run has an artifact of its own; {of}" if own else f"The chosen run has no artifact; {of}"
    st.warning(f"{words}, run of {_made(shown.run)}.", icon=":material/info:")


def _label(name: str, found: Shelved | None) -> str:
    """An artifact as its revision, the moment of its run and its first digits; its folder where it says nothing."""
    if found is None or not found.revision:
        return safe(name)
    return f"{safe(found.revision, 60)} · {_made(found.run)} · {short(found.digest)[:8]}"


def _made(run: str) -> str:
    """When a run was made, as its name says; the name itself where that is no time."""
    try:
        return clock.when(datetime.strptime(run[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC).isoformat())
    except ValueError:
        return safe(run, 60)
