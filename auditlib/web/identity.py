"""Who looks at this page. With an `[auth]` section in the secrets nobody sees anything before they are signed in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitAuthError, StreamlitSecretNotFoundError
from streamlit.navigation.page import StreamlitPage

from auditlib.views.text import in_markdown, safe
from auditlib.web import state
from auditlib.web.ended_logins import EndedLogins
from auditlib.web.luggage import Bag, Luggage, browser_of
from auditlib.web.reviewer import OF_ONE_LOGIN, Reviewer, SignInError, reviewer_from

FORM = "form kept through the login"
"""Where the session holds a form that came back from a login."""

_ARRIVED = "luggage taken"
_TROUBLE = "login did not start"
# Whoever guesses this secret can sign a cookie that says they are anybody: 128 bits, as hexadecimal digits.
_SECRET = 32
_CLAIMS = ("is_logged_in", *OF_ONE_LOGIN, "name", "preferred_username", "email", "provider")

# Not st.cache_resource: that is emptied by whoever clears it, and takes people's forms with it. Nothing in here says
# who is signed in; that is asked of st.user at each run.
_luggage = Luggage()
_ended = EndedLogins()


def reviewer() -> Reviewer | None:
    """Who is signed in; None where nobody signs in because no provider is configured.

    SignInError when a provider is configured and nobody is signed in, or the login is of another day or was ended.
    """
    section = _section()
    if section is None and "is_logged_in" not in st.user:
        if state.settings().require_sign_in:
            raise SignInError("this dashboard asks people to sign in, and no [auth] section is in its secrets; add one")
        return None
    claims = {name: st.user[name] for name in _CLAIMS if name in st.user}
    found = reviewer_from(claims, asks_each_time=_asks_each_time(section or {}, str(claims.get("provider"))))
    found.require_recent(datetime.now(UTC))
    if found.login in _ended:
        raise SignInError("you logged out; log in again")
    return found


def is_open() -> bool:
    """Whether whoever looks may see the pages."""
    try:
        reviewer()
    except SignInError:
        return False
    return True


def door(pages: Sequence[StreamlitPage], page: StreamlitPage) -> None:
    """Let in who may look, and lead them on to where they were going; everybody else gets the login and no more."""
    try:
        who = reviewer()
    except SignInError as problem:
        _ask(page.url_path, problem)
        st.stop()
    if who is None:
        return
    _unpack(who, pages)
    _say_who(who)


def require() -> None:
    """Show nothing more unless whoever looks may see the pages; for code that the door may not stand before."""
    if not is_open():
        st.stop()


def leave(provider: str, page: str, form: Mapping[str, str] | None = None, who: Reviewer | None = None) -> None:
    """Go to the provider's login, and come back to the page with its link and its form; for callbacks of buttons."""
    bag = Bag(page, st.query_params.to_dict(), form or {}, who.identity if who else None)
    browser = _browser()
    # A login that was broken off comes back to the bare host: what was packed before it still stands.
    if browser and (bag.page or bag.query or bag.form):
        _luggage.keep(browser, bag)
    try:
        st.login(provider)
    except StreamlitAuthError as problem:  # the section lacks a key, or Authlib is not installed
        st.session_state[_TROUBLE] = str(problem)


def _ask(page: str, problem: SignInError) -> None:
    """The login: all that somebody sees who is not signed in."""
    st.title("Sign in")
    st.caption("Prefixgate: may this decoder be released?")
    trouble = st.session_state.pop(_TROUBLE, None)
    if trouble is not None:
        st.error(f"The login cannot start: {in_markdown(trouble, 600)}", icon=":material/error:")
    if st.user.get("is_logged_in") is not False:  # False is just somebody who comes new
        st.warning(in_markdown(_sentence(problem), 600), icon=":material/lock:")
    try:
        names = _providers(_section() or {})
    except SignInError:  # said above
        return
    if not names:
        st.error("No identity provider is configured; docs/access.md says how.", icon=":material/lock:")
        return
    st.text("Reviewers sign in before they see anything. Afterwards the link that you came by opens.")
    for name in names:
        label = "Log in" if len(names) == 1 else f"Log in with {in_markdown(name, 40)}"
        # not of type "primary": its white text could not be read on the light blue that dark mode needs elsewhere
        st.button(label, key=f"login-{name}", on_click=leave, args=(name, page))


def _say_who(who: Reviewer) -> None:
    """Who is signed in, in the sidebar, with the way out."""
    row = st.sidebar.container(horizontal=True, vertical_alignment="center")
    row.text(f"Signed in as {safe(who.name, 60)}")
    row.button("Log out", key="logout", on_click=_log_out, args=(who,))
    with st.sidebar.expander("Your account"):
        st.text(f"Issuer: {safe(who.identity.issuer)}\nSubject: {safe(who.identity.subject)}")


def _log_out(who: Reviewer) -> None:
    """End the login here and now, in every tab; then let the browser and the provider forget it too."""
    _ended.end(who.login)
    st.logout()


def _unpack(who: Reviewer, pages: Sequence[StreamlitPage]) -> None:
    """Once a session: take what the browser left before the login, and go where it was going."""
    if _ARRIVED in st.session_state:
        return
    st.session_state[_ARRIVED] = True
    browser = _browser()
    bag = _luggage.take(browser) if browser else None
    target = None if bag is None else next((page for page in pages if page.url_path == bag.page), None)
    if bag is None or target is None:
        return
    st.session_state[FORM] = dict(bag.form_for(who.identity))
    st.switch_page(target, query_params=dict(bag.query))


def _browser() -> str | None:
    return browser_of(st.context.cookies.get("_streamlit_xsrf", ""))


def _section() -> Mapping[str, Any] | None:
    """The `[auth]` section of the secrets; None where there is none. SignInError when the secrets cannot be read."""
    try:
        found: Any = st.secrets.to_dict().get("auth")
    except StreamlitSecretNotFoundError as problem:
        # Streamlit says the same of a file that is not there and of one that it cannot read.
        if any(Path(file).exists() for file in st.get_option("secrets.files")):
            raise SignInError("the secrets file cannot be read, so nobody is let in; mend it") from problem
        return None
    if found is not None and not isinstance(found, Mapping):
        raise SignInError('"auth" in the secrets is no section, so nobody is let in; write it as [auth]')
    if found and len(str(found.get("cookie_secret", ""))) < _SECRET:
        raise SignInError(f"cookie_secret has fewer than {_SECRET} characters, so anybody could be forged; mend it")
    return found


def _providers(section: Mapping[str, Any]) -> list[str]:
    """Names that st.login takes: one for each provider."""
    named = [name for name, part in section.items() if isinstance(part, Mapping) and "client_id" in part]
    return (["default"] if "client_id" in section else []) + named


def _asks_each_time(section: Mapping[str, Any], provider: str) -> bool:
    """Whether the provider is told to ask for the password at each login."""
    part = section if provider == "default" and "client_id" in section else section.get(provider)
    options = part.get("client_kwargs") if isinstance(part, Mapping) else None
    return isinstance(options, Mapping) and "login" in str(options.get("prompt", "")).split()


def _sentence(problem: SignInError) -> str:
    text = str(problem)
    return text[:1].upper() + text[1:]
