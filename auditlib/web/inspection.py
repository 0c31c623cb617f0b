"""A prefix run by both paths of a revision. What loads torch is imported inside, so that other pages open fast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import streamlit as st

from auditlib.errors import IntegrityError, PrefixgateError
from auditlib.events.order import CompiledOrder
from auditlib.views.text import in_markdown
from auditlib.web import state
from auditlib.web.prefix_choice import Prefix

if TYPE_CHECKING:
    from auditlib.audits.inspection import Inspection
    from auditlib.audits.inspection_edit import Downstream
    from auditlib.audits.inspection_reuse import Reuse

Change = tuple[str, int, int | None]
"""An edit of a prefix: kind, place, id of the new event."""


@dataclass(frozen=True)
class Seen:
    """A prefix by both paths, with what either expects after any of its events."""

    here: state.Selection
    prefix: Prefix
    compiled: CompiledOrder
    whole: Inspection

    @property
    def about(self) -> str:
        """What names this look: the revision, the prefix, and the conditions that hold."""
        return f"{self.here.entry.digest if self.here.entry else None} {self.prefix.text} {self.prefix.flags}"

    @property
    def steps(self) -> pd.DataFrame:
        """One row an event: step, event, full_probability, cached_probability, gap, legal."""
        return self.whole.steps

    @property
    def names(self) -> list[str]:
        """Names of the prefix's events, start included."""
        return list(self.whole.steps["event"])

    def next_events(self, step: int) -> pd.DataFrame:
        """What may come after the first `step` events: event, id, full, cached, legal, rules."""
        if step == len(self.prefix.ids):
            return self.whole.next_events
        shorter = Prefix(self.prefix.ids[:step], self.prefix.flags)
        return _look(self.here, shorter, self.compiled).next_events


def look(here: state.Selection, prefix: Prefix, compiled: CompiledOrder) -> Seen:
    """The prefix run by both paths; where the decoder cannot, its reason in words, and the page ends here."""
    try:
        return Seen(here, prefix, compiled, _look(here, prefix, compiled))
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 1000))
        st.stop()


def edited(here: state.Selection, prefix: Prefix, compiled: CompiledOrder, change: Change) -> Downstream:
    """What an edit of the prefix changes behind it; PrefixgateError where the decoder cannot read either prefix."""
    folder, digest = _revision(here)
    return _edited(folder, digest, prefix.ids, prefix.flags, change, compiled)


def reused(here: state.Selection, prefix: Prefix, compiled: CompiledOrder, asked: tuple[int, ...]) -> Reuse:
    """The prefix's cache offered to a request for `asked`; PrefixgateError where the decoder cannot read either."""
    folder, digest = _revision(here)
    return _reused(folder, digest, prefix.ids, asked, compiled)


def attention(here: state.Selection, prefix: Prefix) -> np.ndarray | None:
    """Attention in the prefix, float32 [layers, heads, T, T]; None where the decoder does not offer it."""
    folder, digest = _revision(here)
    return _attention(folder, digest, prefix.ids)


def _revision(here: state.Selection) -> tuple[Path, str]:
    if here.entry is None or here.entry.folder is None:
        raise IntegrityError("the revision's folder is gone")
    return here.entry.folder, here.entry.digest


def _look(here: state.Selection, prefix: Prefix, compiled: CompiledOrder) -> Inspection:
    folder, digest = _revision(here)
    return _inspected(folder, digest, prefix.ids, prefix.flags, compiled)


@st.cache_resource(max_entries=200, show_spinner=False)
def _inspected(
    folder: Path, digest: str, ids: tuple[int, ...], flags: tuple[bool, ...], _compiled: CompiledOrder
) -> Inspection:
    from auditlib.audits.inspection import inspect  # noqa: PLC0415

    # The underscore keeps the compiled order out of the key: the digest and the flags name it already.
    automaton = _compiled.automata()[flags]
    allow_code = state.settings().allow_code
    return inspect(decoder(folder, digest, allow_code=allow_code), _compiled.event_map, automaton, ids)


@st.cache_resource(max_entries=200, show_spinner=False)
def _edited(
    folder: Path,
    digest: str,
    ids: tuple[int, ...],
    flags: tuple[bool, ...],
    change: Change,
    _compiled: CompiledOrder,
) -> Downstream:
    from auditlib.audits.inspection_edit import Edit, downstream  # noqa: PLC0415

    edit = Edit(*change)  # type: ignore[arg-type]  # a kind that is none is refused there
    loaded = decoder(folder, digest, allow_code=state.settings().allow_code)
    return downstream(loaded, _compiled.event_map, _compiled.automata()[flags], ids, edit)


@st.cache_resource(max_entries=200, show_spinner=False)
def _reused(folder: Path, digest: str, ids: tuple[int, ...], asked: tuple[int, ...], _compiled: CompiledOrder) -> Reuse:
    from auditlib.audits.inspection_reuse import try_reuse  # noqa: PLC0415

    loaded = decoder(folder, digest, allow_code=state.settings().allow_code)
    return try_reuse(loaded, _compiled.event_map, _compiled.order.digest, ids, asked)


@st.cache_resource(max_entries=8, show_spinner=False)
def _attention(folder: Path, digest: str, ids: tuple[int, ...]) -> np.ndarray | None:
    from auditlib.audits.inspection_reuse import attention_of  # noqa: PLC0415

    found = attention_of(decoder(folder, digest, allow_code=state.settings().allow_code), ids)
    return None if found is None else found.numpy()


@st.cache_resource(max_entries=2, show_spinner="Loading the decoder")
def decoder(folder: Path, digest: str, *, allow_code: bool) -> Any:
    """The revision's decoder in float32, shared by everybody: its weights never change, and caches are values.

    IntegrityError when the folder no longer holds the revision of that digest.
    """
    from auditlib.audits.device import settle_threads  # noqa: PLC0415
    from auditlib.audits.subject import Loading, load_decoder  # noqa: PLC0415
    from auditlib.decoders.revision import open_revision  # noqa: PLC0415

    settle_threads()
    revision = open_revision(folder)
    if revision.digest != digest:
        raise IntegrityError(
            f"the folder {folder.name} no longer holds the revision that was chosen; register and audit it anew"
        )
    return load_decoder(revision, Loading(allow_code=allow_code))
