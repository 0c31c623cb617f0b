"""The form in which a reviewer signs: decision, comment and passphrase. Only a passphrase is never kept.

Its button stands for what is shown beside it, down to the digests: pressed for anything else it signs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import streamlit as st

from auditlib.release.verdict import SignedVerdict
from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown, plural, safe
from auditlib.web import parts_keys
from auditlib.web.desk import Desk
from auditlib.web.seen import Seen
from auditlib.web.shelf import Bound
from auditlib.web.text import short

_RUN_ALONE = "the revision and its run alone"
_DECISION = "sign-decision"
_ABOUT = "run that the form is about"
_EMPTY: Mapping[str, str | None] = {"sign-comment": "", _DECISION: None}
_PASSPHRASE, _SEEN = "sign-passphrase", "what was signed for"


@dataclass(frozen=True, slots=True)
class Sent:
    """A form as it was sent: the passphrase, and what its sender had before their eyes."""

    passphrase: str = field(repr=False)
    seen: Seen


def sent() -> Sent | None:
    """The form that was just sent, once; None where none was.

    For the top of the page: whatever ends the run below, no passphrase may lie about for the next one.
    """
    passphrase, seen = parts_keys.taken(_PASSPHRASE), st.session_state.pop(_SEEN, None)
    return None if passphrase is None or seen is None else Sent(passphrase, seen)


def sign_form(desk: Desk, run: Run, form: Sent | None) -> None:
    """A reviewer's decision, comment and passphrase, and what comes of a `form` that was sent.

    A refusal by the gate cannot be overruled.
    """
    parts_keys.say_once()
    if not parts_keys.may_sign(desk):
        return
    keys = list(desk.keys())
    if not keys:
        first = not desk.reviewer and not desk.settings.trust.exists()
        st.text(f"There is no key yet.{' The first one made here starts the trust file.' if first else ''}")
        parts_keys.key_form(desk)
        return
    if desk.all_signed(run, datetime.now(UTC)):
        if form is not None:
            st.error("Nothing was signed by this press: see the verdict on file.", icon=":material/error:")
        st.text("You have signed this verdict." if desk.reviewer else "Everybody who may sign has signed this verdict.")
    else:
        _form(desk, run, keys, form)
    with st.expander("New reviewer key"):
        parts_keys.key_form(desk)


def _form(desk: Desk, run: Run, keys: list[str], form: Sent | None) -> None:
    """What is signed for, the form, and what came of it."""
    again = desk.verdict_file(run).exists()
    offered = {} if again else {bound.artifact.folder.name: bound for bound in desk.offered(run)}
    names = [*reversed(offered), _RUN_ALONE]
    if st.session_state.setdefault(_ABOUT, run.id) != run.id:  # what was decided of another run is not said of this one
        st.session_state.update({_ABOUT: run.id, _PASSPHRASE: "", **_EMPTY})
    parts_keys.unpack(run, {"key": keys, "artifact": names if offered else []})
    bound = desk.bound(run) if again else offered.get(_choose_artifact(names))
    _say_bound(bound, again=again)
    notice = st.container()
    seen = desk.seen(run, bound)
    said, pressed = _fields(keys, seen, "Add my signature" if again else "Sign")
    about = {"run": run.id, "artifact": bound.artifact.folder.name if bound else _RUN_ALONE}
    with notice:
        if form is not None and not pressed:
            _say_not_signed(form.seen.changes(seen))
        fresh = parts_keys.is_fresh(desk, {**said, **about} if pressed else {})
    if form is None or not pressed or not fresh:
        return
    if not said["decision"]:
        st.error("Nothing was signed: choose whether to approve or to refuse.", icon=":material/error:")
        return
    sign = {"passphrase": form.passphrase, **said}
    parts_keys.attempt(lambda: _signed(desk.sign(run, bound=bound, seen=form.seen, **sign)), _EMPTY)


def _fields(keys: list[str], seen: Seen, button: str) -> tuple[dict[str, str], bool]:
    """The form itself: what stands in it beside the passphrase, and whether it was sent for what is `seen`."""
    decisions = seen.decisions
    only = decisions[0] if len(decisions) == 1 else None
    # Set only where it must be: a value that is set wins over one that is chosen and not sent yet.
    if _DECISION in st.session_state and st.session_state[_DECISION] not in (decisions if only else [None, *decisions]):
        st.session_state[_DECISION] = only
    with st.form("sign"):
        key = st.selectbox("Your key", keys, format_func=safe, key="sign-key")
        # Where there is a choice none is made beforehand: a signature stands for a decision.
        decision = st.radio("Your decision", decisions, 0 if only else None, key=_DECISION, horizontal=True)
        comment = st.text_area("Comment", key="sign-comment", max_chars=4000, help="Signed with the rest.")
        st.text_input("Passphrase of the key", type="password", key=_PASSPHRASE, autocomplete="off")
        # The browser names the button that it showed: where another stands now, that press is not this one's.
        name = f"sign {seen.digest}"
        pressed = st.form_submit_button(button, key=name, on_click=_send, args=(seen,))
    return {"key": key or "", "decision": decision or "", "comment": comment or ""}, pressed


def _send(seen: Seen) -> None:
    """Take the passphrase out of the form, with what was shown beside it."""
    st.session_state[_SEEN] = seen
    parts_keys.take(_PASSPHRASE)


def _say_not_signed(changed: str) -> None:
    """Why a press signed nothing."""
    why = f"Since the form was shown, these have changed: {changed}. Look again, then sign." if changed else _LATE
    st.error(f"Nothing was signed. {why}", icon=":material/error:")


_LATE = "The form did not arrive before the page was drawn anew; send it again."


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
