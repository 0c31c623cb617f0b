"""Rules for a store that has none: proposals with their support, to be accepted or struck out one by one."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.events.candidates import Proposal
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import address, rule_facts, state, tables
from auditlib.web.rule_facts import Mined

_MEANING = {
    "init": "Every session begins with it.",
    "end": "Every session ends with it.",
    "existence": "It happens in every session.",
    "exactly": "It happens exactly so many times.",
    "absence": "It happens fewer times than that.",
    "succession": "The first is followed by the second at some time, and the second never comes without it.",
    "precedence": "The second never comes before the first has happened.",
    "response": "Whenever the first happens, the second comes at some later time.",
    "chain precedence": "Directly before the second, always the first.",
    "chain response": "Directly after the first, always the second.",
    "not succession": "Once the first has happened, the second never comes.",
    "not co-existence": "Never both in one session.",
}
_LEAST = ("0.95", "0.98", "0.99", "0.995", "1")
_STRUCK, _ASKED = "struck", "support"


def mining(here: state.Selection) -> None:
    """Propose rules, tick those to accept, see which held-out sessions break each, and save the accepted ones."""
    if here.snapshot is None:
        return
    asked = address.value(_ASKED)
    row = st.container(horizontal=True, vertical_alignment="bottom")
    least = row.selectbox(
        "Kept by at least",
        _LEAST,
        index=_LEAST.index(asked) if asked in _LEAST else 3,
        key="rule-support",
        format_func=lambda share: f"{float(share):.1%} of the sessions that it applies to",
    )
    if row.button("Propose rules", key="propose", icon=":material/lightbulb:"):
        address.put(**{_ASKED: least, _STRUCK: None})
        asked = least
    if asked not in _LEAST:
        st.caption("Rules are mined from the training side only, and held against the held-out side.")
        return
    found = rule_facts.mined(here.places.store, here.snapshot, float(asked))
    if not found.proposals:
        st.text(f"No rule is kept by {float(asked):.1%} of the {found.training:,} training sessions. Ask for less.")
        return
    accepted = _ticked(found)
    _save(here, accepted)
    _breakers(here, found, accepted)


def _ticked(found: Mined) -> list[Proposal]:
    """The rules that are ticked; which are struck out stands in the address, by number."""
    struck = set((address.value(_STRUCK) or "").split("-"))
    st.text(
        f"{plural(len(found.proposals), 'rule')} from {plural(found.training, 'training session')}. "
        "Untick what is habit and not law."
    )
    accepted, out = [], []
    for number, one in enumerate(found.proposals):
        broken = found.counts[one.rule.name]
        words = (
            f"**{in_markdown(one.rule.name, 200)}** · holds in {one.holds:,} of {one.applies:,} ({one.support:.2%}), "
            f"broken by {plural(broken, 'held-out session')}"
        )
        # Keyed by the rule: with another support the same number would be another rule.
        if st.checkbox(
            words, value=str(number) not in struck, key=f"rule-{one.rule.name}", help=_MEANING.get(one.rule.template)
        ):
            accepted.append(one)
        else:
            out.append(str(number))
    address.put(**{_STRUCK: "-".join(out) or None})
    return accepted


def _save(here: state.Selection, accepted: list[Proposal]) -> None:
    """The accepted rules as a file, when they go together."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    version = row.text_input("Version of the rules", "1", key="rule-version", max_chars=40, width=200)
    try:
        order = rule_facts.order_of(accepted, version)
    except PrefixgateError as problem:
        st.error(in_markdown(problem, 600), icon=":material/error:")
        return
    problem_words = rule_facts.compiles(here.places.store, order)
    if problem_words:
        st.error(f"These rules do not go together: {in_markdown(problem_words, 1000)}", icon=":material/error:")
        return
    row.download_button(
        f"Save {plural(len(accepted), 'accepted rule')}",
        order.to_json(),
        file_name="event_order.json",
        mime="application/json",
        on_click="ignore",
        key="save-rules",
        icon=":material/download:",
    )
    # not a caption: a command in one is too faint to be read in dark mode
    st.markdown("They become a revision's rules in training: `python -m auditlib train --rules event_order.json …`")


def _breakers(here: state.Selection, found: Mined, accepted: list[Proposal]) -> None:
    """Held-out sessions that break one of the accepted rules."""
    broken = {one.rule.name: found.counts[one.rule.name] for one in accepted if found.counts[one.rule.name]}
    if not broken:
        st.success(f"None of {found.held_out:,} held-out sessions breaks an accepted rule.", icon=":material/check:")
        return
    name = address.choose(
        st.container(),
        "rule",
        "Held-out sessions that break",
        list(broken),
        shown=lambda one: f"{safe(one, 120)} · {plural(broken[one], 'session')}",
    )
    frame: pd.DataFrame = found.broken[name or next(iter(broken))].rename(columns={"number": "event number"})
    if broken[name or next(iter(broken))] > rule_facts.MOST_LISTED:
        st.caption(f"The first {rule_facts.MOST_LISTED:,} are listed.")
    tables.show(frame, f"{here.places.store.stem}-breaking-{safe(name, 60)}", "breakers", "Sessions that break it", "")
