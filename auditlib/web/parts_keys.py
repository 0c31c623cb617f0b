"""Parts of the verdict page about who signs: keys, their keeper's requests, and a login fresh enough to sign with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import streamlit as st

from auditlib.errors import PrefixgateError
from auditlib.runs.folder import Run
from auditlib.views.text import in_markdown, safe
from auditlib.web import identity
from auditlib.web.desk import Desk, explain
from auditlib.web.reviewer import Reviewer, StaleLoginError

_DONE = "said once"
_EMPTIED = "fields to be emptied"
_PAGE = "verdict"
_FIELDS = ("artifact", "key", "decision", "comment")


def may_sign(desk: Desk) -> bool:
    """Whether whoever is here may sign; who may not is told what to do, and can make a key."""
    who = desk.reviewer
    if who is None or desk.may_sign(datetime.now(UTC)):
        return True
    st.info(
        f"You are signed in as {in_markdown(who.name, 80)} and can look. You cannot sign yet: no key in the trust file "
        "that counts now belongs to your account. Make a key, which only your passphrase opens, and ask whoever keeps "
        "the trust file to add it.",
        icon=":material/key_off:",
    )
    _requests(desk)
    key_form(desk)
    return False


def key_form(desk: Desk) -> None:
    """Make an encrypted key for a reviewer."""
    name = safe(desk.reviewer.name, 80) if desk.reviewer else ""
    passphrase, again = taken("key-passphrase") or "", taken("key-again") or ""
    st.session_state.setdefault("key-person", name)
    with st.form("new-key"):
        person = st.text_input("Name of the reviewer", key="key-person", autocomplete="name")
        st.text_input("New passphrase", type="password", key="key-passphrase", autocomplete="new-password")
        st.text_input("The passphrase again", type="password", key="key-again", autocomplete="new-password")
        pressed = st.form_submit_button("Make the key", on_click=take, args=("key-passphrase", "key-again"))
    # The press of this very run: passphrases may have been left by one that another page broke off.
    if pressed:
        attempt(lambda: _made(desk, person or "", passphrase, again), {"key-person": name})
    if desk.reviewer is not None or desk.settings.trust.exists():
        # not a caption: a command in one is too faint to be read in dark mode
        st.markdown(
            "A key made here counts once whoever keeps the trust file has added it, with "
            "`python -m auditlib keys add` and the file that lies beside the key."
        )


def is_fresh(desk: Desk, form: Mapping[str, str]) -> bool:
    """Whether the login is fresh enough to sign with; if not, the way to a fresh one, which keeps a form that was sent.

    With an empty form that is said before anybody has typed anything.
    """
    try:
        desk.require_fresh(datetime.now(UTC))
    except StaleLoginError as problem:
        _ask_again(desk.reviewer, problem, form)
        return False
    return True


def unpack(run: Run, choices: Mapping[str, list[str]]) -> None:
    """Fill the form with what it held before a fresh login, once, before it is drawn.

    Values that are not among a field's `choices` any more are left out.
    """
    kept = st.session_state.get(identity.FORM, {})
    if kept.get("run") != run.id:
        return
    for name in _FIELDS:
        if name in kept and kept[name] in choices.get(name, [kept[name]]):
            st.session_state[f"sign-{name}"] = kept[name]
    del st.session_state[identity.FORM]


def take(*names: str) -> None:
    """Take passphrases out of a form that was sent, for the run that follows; for callbacks of its button.

    The rest of the form stays as it was typed, for whoever has to send it again.
    """
    for name in names:
        st.session_state[f"taken {name}"] = st.session_state.get(name) or ""
        st.session_state[name] = ""


def taken(name: str) -> str | None:
    """A passphrase as it was sent, once; None where no form was sent."""
    text: str | None = st.session_state.pop(f"taken {name}", None)
    return text


def attempt(action: Callable[[], str], empty: Mapping[str, str | None]) -> None:
    """Do what a form asks; what came of it is said after a rerun, or the refusal at once.

    After a refusal the form keeps what was typed. `empty` is what stands in its fields once it was done.
    """
    try:
        st.session_state[_DONE] = action()
    except PrefixgateError as problem:
        st.error(in_markdown(explain(problem), 1000), icon=":material/error:")
        return
    st.session_state[_EMPTIED] = empty
    # The signatures above the form must show the new one.
    st.rerun()


def say_once() -> None:
    """What the last form did, once."""
    words = st.session_state.pop(_DONE, None)
    # Streamlit lets a field be set before it is drawn, and not after.
    for name, value in st.session_state.pop(_EMPTIED, {}).items():
        st.session_state[name] = value
    if words:
        st.success(in_markdown(words, 300), icon=":material/check:")


def _ask_again(who: Reviewer | None, problem: StaleLoginError, form: Mapping[str, str]) -> None:
    st.warning(in_markdown(explain(problem), 600), icon=":material/lock_clock:")
    if who is not None:
        arguments = (who.provider, _PAGE, form, who)
        st.button("Log in again", key="login-again", on_click=identity.leave, args=arguments)
    if form:
        st.caption("The form comes back as you sent it, without the passphrase.")


def _requests(desk: Desk) -> None:
    """Keys that whoever is signed in has made and nobody has added yet, as files for the trust file's keeper."""
    for path in desk.requests():
        st.download_button(
            f"Request for the key {in_markdown(path.name.split('.')[0], 60)}",
            path.read_bytes(),
            file_name=path.name,
            mime="application/json",
            on_click="ignore",
            key=f"request-{path.name}",
            icon=":material/download:",
        )


def _made(desk: Desk, person: str, passphrase: str, again: str) -> str:
    key = desk.make_key(person, passphrase, again)[:16]
    if desk.may_sign(datetime.now(UTC)):
        return f"The key {key} is made. You can sign now."
    return f"The key {key} is made. Hand its request to whoever keeps the trust file."
