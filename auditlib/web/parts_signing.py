"""The form in which a reviewer signs: decision, comment and passphrase. Only a passphrase is never kept."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import streamlit as st

from auditlib.release.verdict import SignedVerdict
from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import parts_keys
from auditlib.web.desk import Desk
from auditlib.web.shelf import Bound
from auditlib.web.text import short

_RUN_ALONE = "the revision and its run alone"
_DECISION = "sign-decision"
_ABOUT = "run that the form is about"
_EMPTY: Mapping[str, str | None] = {"sign-comment": "", _DECISION: None}


def sign_form(desk: Desk, run: Run) -> None:
    """A reviewer's decision, comment and passphrase; a refusal by the gate cannot be overruled."""
    parts_keys.say_once()
    if not parts_keys.may_sign(desk):
        return
    keys = list(desk.keys())
    if not keys:
        st.text(f"There is no key yet.{'' if desk.reviewer else ' The first one made here starts the trust file.'}")
        parts_keys.key_form(desk)
        return
    if desk.all_signed(run, datetime.now(UTC)):
        st.text("You have signed this verdict." if desk.reviewer else "Everybody who may sign has signed this verdict.")
    else:
        _form(desk, run, keys)
    with st.expander("New reviewer key"):
        parts_keys.key_form(desk)


def _form(desk: Desk, run: Run, keys: list[str]) -> None:
    """What is signed for, the form, and what came of it."""
    again = desk.verdict_file(run).exists()
    offered = {} if again else {bound.artifact.folder.name: bound for bound in desk.offered(run)}
    names = [*reversed(offered), _RUN_ALONE]
    if st.session_state.setdefault(_ABOUT, run.id) != run.id:  # what was decided of another run is not said of this one
        st.session_state.update({_ABOUT: run.id, **_EMPTY})
    parts_keys.unpack(run, {"key": keys, "artifact": names if offered else []})
    bound = desk.bound(run) if again else offered.get(_choose_artifact(names))
    _say_bound(bound, again=again)
    notice = st.container()
    passphrase = parts_keys.taken("sign-passphrase")
    decisions = ["approve", "refuse"] if desk.may_approve(run, bound) else ["refuse"]
    said = _fields(keys, decisions, "Add my signature" if again else "Sign")
    pressed = passphrase is not None
    about = {"run": run.id, "artifact": bound.artifact.folder.name if bound else _RUN_ALONE}
    with notice:
        fresh = parts_keys.is_fresh(desk, {**said, **about} if pressed else {})
    if not pressed or not fresh:
        return
    if not said["decision"]:
        st.error("Nothing was signed: choose whether to approve or to refuse.", icon=":material/error:")
        return
    parts_keys.attempt(lambda: _signed(desk.sign(run, passphrase=passphrase or "", bound=bound, **said)), _EMPTY)


def _fields(keys: list[str], decisions: list[str], button: str) -> dict[str, str]:
    """The form itself, and what stands in it beside the passphrase."""
    only = decisions[0] if len(decisions) == 1 else None
    # Set only where it must be: a value that is set wins over one that is chosen and not sent yet.
    if _DECISION in st.session_state and st.session_state[_DECISION] not in (decisions if only else [None, *decisions]):
        st.session_state[_DECISION] = only
    with st.form("sign"):
        key = st.selectbox("Your key", keys, format_func=safe, key="sign-key")
        # Where there is a choice none is made beforehand: a signature stands for a decision.
        decision = st.radio("Your decision", decisions, 0 if only else None, key=_DECISION, horizontal=True)
        comment = st.text_area("Comment", key="sign-comment", max_chars=4000, help="Signed with the rest.")
        st.text_input("Passphrase of the key", type="password", key="sign-passphrase", autocomplete="off")
        st.form_submit_button(button, on_click=parts_keys.take, args=("sign-passphrase",))
    return {"key": key or "", "decision": decision or "", "comment": comment or ""}


def _choose_artifact(names: list[str]) -> str:
    """What a new verdict will name beside the run; the newest artifact unless the reviewer says otherwise."""
    if len(names) == 1:
        return names[0]
    return st.selectbox("The verdict is about", names, format_func=safe, key="sign-artifact") or names[0]


def _say_bound(bound: Bound | None, *, again: bool) -> None:
    """Which artifact and evidence are signed for."""
    if bound is None:
        words = "The verdict on file names no artifact." if again else "No artifact is named in the verdict."
        st.caption(f"{words} It is about the revision and its run.")
        return
    found = [f"{one.kind} ({one.status})" for one in bound.evidence.values()]
    st.caption(
        in_markdown(
            f"It names artifact {bound.artifact.folder.name} ({short(bound.artifact.digest)}) with "
            f"{', '.join(found) or 'no evidence'}. Evidence that did not pass refuses the release.",
            600,
        )
    )


def _signed(done: SignedVerdict) -> str:
    return f"Signed. The verdict is number {done.sequence} and carries {plural(done.signatures, 'signature')}."
