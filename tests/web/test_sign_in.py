"""The door where people sign in: nothing is shown before, on no page; and the desk, where only one's own key signs."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from auditlib.errors import InputError, KeyFileError
from auditlib.release.identity import Identity
from auditlib.release.signing import new_key
from auditlib.release.trust import add_entry, read_entry
from auditlib.web import identity
from auditlib.web.desk import Desk
from auditlib.web.ended_logins import EndedLogins
from auditlib.web.reviewer import LASTS, StaleLoginError, reviewer_from
from auditlib.web.settings import read_settings
from tests.web.opening import PAGES, ROOT, words

PASSPHRASE = "correct horse"
ISSUER = "https://login.example.test"
AUTH = {"redirect_uri": "x", "cookie_secret": "y" * 32, "client_id": "c", "client_kwargs": {"prompt": "login"}}


def claims(subject="u-ada", age=0, **more):
    now = int(time.time()) - age
    return {"is_logged_in": True, "iss": ISSUER, "sub": subject, "iat": now, "auth_time": now, "name": "Ada", **more}


def opened(user, page="board", auth=AUTH):
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.secrets = {} if auth is None else {"auth": auth}
    app.user = user
    app.run()
    if page != "board":
        app.switch_page(f"pages/{page}.py").run()
    return app


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("second_door", [False, True])
def test_who_is_not_signed_in_sees_the_login_and_nothing_else(page, second_door, world, monkeypatch):
    if second_door:  # what the page itself does when the first door does not stand
        monkeypatch.setattr(identity, "door", lambda *_: None)
    app = opened({"is_logged_in": False}, page)
    assert not app.exception
    said = words(app)
    assert [title.value for title in app.title] == ([] if second_door else ["Sign in"])
    for inside in (world.refused.id, "The gate says", "Held-out"):
        assert inside not in said
    assert not app.dataframe


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (None, "Nobody is signed in"),
        ({"age": 13 * 3600}, "older than 12 hours"),
        ({"iss": "login"}, "names no account"),
        ({"sub": None}, "names no account"),
        ({"iat": None}, "does not say when"),
        ({"is_logged_in": "yes"}, "Nobody is signed in"),
    ],
    ids=str,
)
def test_a_login_that_does_not_hold_is_told_so_and_asked_again(changed, why):
    app = opened({} if changed is None else claims(**changed))
    assert [title.value for title in app.title] == ["Sign in"]
    assert why in words(app)
    assert [(button.label, button.proto.type) for button in app.button] == [("Log in", "secondary")]  # white on light
    assert not app.sidebar.selectbox


@pytest.mark.usefixtures("place")
def test_who_is_signed_in_sees_the_pages_and_who_they_are():
    app = opened(claims())
    assert app.sidebar.selectbox(key="revision").value
    assert "Signed in as Ada" in [text.value for text in app.sidebar.text]
    assert any("Subject: u-ada" in text.value for text in app.sidebar.text)
    app.sidebar.button(key="logout").click().run()
    assert [title.value for title in app.title] == ["Sign in"]


@pytest.mark.usefixtures("place")
def test_a_login_that_was_ended_opens_nothing_anywhere_and_a_new_one_does():
    mine = claims(nonce="first")
    app, other_tab, elsewhere = opened(mine), opened(mine), opened(claims(nonce="other browser"))
    app.sidebar.button(key="logout").click().run()
    # Streamlit reads the cookie once a session: a tab that stands open, and a copy of the cookie, still present it.
    for late in (other_tab.run(), opened(mine, "verdict")):
        assert [title.value for title in late.title] == ["Sign in"]
        assert "You logged out" in words(late)
        assert not late.sidebar.selectbox
    for still in (elsewhere.run(), opened({**mine, "nonce": "second"})):
        assert still.sidebar.selectbox(key="revision").value


def test_an_ended_login_is_remembered_for_longer_than_its_token_opens_anything():
    now = [0.0]
    ended = EndedLogins(lambda: now[0])
    ended.end("first")
    now[0] = LASTS.total_seconds() + 120
    ended.end("second")
    assert "first" in ended
    now[0] = 3 * LASTS.total_seconds()
    ended.end("third")
    assert "first" not in ended
    assert "third" in ended


@pytest.mark.usefixtures("place")
def test_where_nobody_signs_in_nothing_speaks_of_it():
    app = opened({}, auth=None)
    assert app.sidebar.selectbox(key="revision").value
    assert not any("Signed in" in text.value for text in app.sidebar.text)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({}, "No identity provider is configured"),
        ("company", "is no section"),
        ([1], "is no section"),
        ({**AUTH, "cookie_secret": "xxx"}, "could be forged"),
        ({"client_id": "c"}, "could be forged"),
    ],
    ids=str,
)
def test_a_section_that_cannot_be_right_shuts_the_door(auth, why):
    app = opened({}, auth=auth)
    assert [title.value for title in app.title] == ["Sign in"]
    assert why in words(app)
    assert not app.sidebar.selectbox


@pytest.mark.usefixtures("place")
def test_secrets_that_cannot_be_read_let_nobody_in(tmp_path, monkeypatch):
    broken = tmp_path / "secrets.toml"
    broken.write_text("[auth\nredirect_uri = ")
    monkeypatch.setattr(st, "get_option", lambda name: [str(broken)] if name == "secrets.files" else None)
    app = opened({}, auth=None)
    assert [title.value for title in app.title] == ["Sign in"]
    assert "cannot be read" in words(app)


@pytest.mark.usefixtures("place")
def test_a_dashboard_that_requires_a_login_shows_nothing_without_a_provider(monkeypatch):
    monkeypatch.setenv("PREFIXGATE_REQUIRE_SIGN_IN", "1")
    app = opened({}, auth=None)
    assert [title.value for title in app.title] == ["Sign in"]
    assert "asks people to sign in" in words(app)


@pytest.mark.usefixtures("place")
def test_several_providers_are_offered_by_name():
    part = {"client_id": "c", "client_secret": "s", "server_metadata_url": "https://x.test"}
    app = opened(
        {"is_logged_in": False}, auth={"redirect_uri": "x", "cookie_secret": "y" * 32, "one": part, "two": part}
    )
    assert [button.label for button in app.button] == ["Log in with one", "Log in with two"]


@pytest.mark.usefixtures("place")
def test_a_login_that_cannot_start_says_why(monkeypatch):
    def refuse(provider):
        raise st.errors.StreamlitAuthError("client_secret is missing")

    monkeypatch.setattr(st, "login", refuse)
    app = opened({"is_logged_in": False})
    app.button(key="login-default").click().run()
    assert "client_secret is missing" in words(app)
    assert not app.exception


def test_the_page_hands_the_desk_whoever_is_signed_in():
    """A desk without a reviewer is the local one, so no page may forget to name theirs."""
    for path in [*(ROOT / "pages").glob("*.py"), *(ROOT / "auditlib" / "web").glob("*.py")]:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "= Desk(" not in line or "identity.reviewer()" in line, path


def test_nothing_that_all_sessions_share_holds_an_identity():
    source = (ROOT / "auditlib" / "web" / "identity.py").read_text(encoding="utf-8")
    assert "@st.cache" not in source


@pytest.fixture
def desk(tmp_path):
    return Desk(read_settings(["--home", str(tmp_path)], {}), reviewer_from(claims(), asks_each_time=True))


def give_key(desk, name, subject=None):
    account = Identity(ISSUER, subject) if subject else None
    path = desk.settings.keys / f"{name.lower()}.pem"
    return new_key(path, name, PASSPHRASE.encode(), desk.settings.trust, identity=account)


def test_whoever_is_signed_in_signs_with_their_own_key(desk, world):
    keyid = give_key(desk, "Ada", "u-ada")
    done = desk.sign(world.refused, "ada", PASSPHRASE, "refuse", "no")
    assert done.keyid == keyid
    assert desk.may_sign(datetime.now(UTC))


@pytest.mark.parametrize("owner", ["u-bea", None], ids=["somebody else's", "nobody's"])
def test_a_key_of_another_account_does_not_sign_even_with_its_passphrase(desk, world, owner):
    give_key(desk, "Bea", owner)
    assert not desk.may_sign(datetime.now(UTC))
    with pytest.raises(InputError, match="does not give this key to the account"):
        desk.sign(world.refused, "bea", PASSPHRASE, "refuse", "no")
    assert not desk.verdict_file(world.refused).exists()


def test_the_same_subject_at_another_issuer_is_somebody_else(desk, world):
    give_key(desk, "Ada", "u-ada")
    other = reviewer_from(claims(iss="https://other.example.test"), asks_each_time=True)
    with pytest.raises(InputError, match="does not give this key"):
        replace(desk, reviewer=other).sign(world.refused, "ada", PASSPHRASE, "refuse", "no")


def test_a_key_that_is_not_in_the_trust_file_does_not_sign(desk, world):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    with pytest.raises(InputError, match="does not give this key"):
        desk.sign(world.refused, "ada", PASSPHRASE, "refuse", "no")
    with pytest.raises(KeyFileError, match="passphrase"):
        desk.sign(world.refused, "ada", "wrong", "refuse", "no")


@pytest.mark.parametrize(("minutes", "limit", "fresh"), [(4, 5, True), (6, 5, False), (6, 10, True), (2, 1, False)])
def test_an_old_login_does_not_sign(desk, world, minutes, limit, fresh):
    give_key(desk, "Ada", "u-ada")
    settings = replace(desk.settings, fresh_login=timedelta(minutes=limit))
    old = reviewer_from(claims(age=60 * minutes), asks_each_time=True)
    at = Desk(settings, old)
    if fresh:
        assert at.sign(world.refused, "ada", PASSPHRASE, "refuse", "no").sequence == 1
        return
    with pytest.raises(StaleLoginError, match="log in again"):
        at.sign(world.refused, "ada", PASSPHRASE, "refuse", "no")
    assert not at.verdict_file(world.refused).exists()


def test_the_first_key_gives_nobody_a_say_where_people_sign_in(desk):
    desk.make_key("Eve", PASSPHRASE, PASSPHRASE)
    assert desk.trust() is None
    assert not desk.may_sign(datetime.now(UTC))
    (request,) = desk.requests()
    assert json.loads(request.read_text())["identity"] == {"issuer": ISSUER, "subject": "u-ada"}


def test_a_request_is_seen_by_its_owner_alone_and_counts_once_it_is_added(desk, world):
    desk.make_key("Ada", PASSPHRASE, PASSPHRASE)
    (desk.settings.keys / "odd.request.json").write_text("[")
    (desk.settings.keys / "odder.request.json").write_text("{}")
    bea = replace(desk, reviewer=reviewer_from(claims("u-bea"), asks_each_time=True))
    assert bea.requests() == ()
    (request,) = desk.requests()
    add_entry(desk.settings.trust, read_entry(request))
    assert desk.may_sign(datetime.now(UTC))
    assert not bea.may_sign(datetime.now(UTC))
    assert desk.sign(world.refused, "ada", PASSPHRASE, "refuse", "no").sequence == 1


def test_a_revoked_key_lets_its_owner_look_only(desk):
    give_key(desk, "Ada", "u-ada")
    document = json.loads(desk.settings.trust.read_text())
    document["keys"][0]["revoked"] = True
    desk.settings.trust.write_text(json.dumps(document))
    assert not desk.may_sign(datetime.now(UTC))


@pytest.mark.usefixtures("place")
def test_who_has_no_key_is_told_what_to_do_and_gets_no_form(world):
    app = opened(claims(), "verdict")
    assert not app.exception
    assert "You cannot sign yet" in words(app)
    assert not [field for field in app.text_input if field.key == "sign-passphrase"]


def test_a_form_that_comes_back_through_the_login_is_filled_in(place, world):
    give_key(Desk(read_settings(["--home", str(place)], {})), "Ada", "u-ada")
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    app.secrets, app.user = {"auth": AUTH}, claims()
    app.session_state[identity.FORM] = {
        "run": world.refused.id, "key": "ada", "decision": "approve", "comment": "kept", "artifact": "gone",
    }  # fmt: skip
    app.run()
    app.switch_page("pages/verdict.py").run()
    assert not app.exception
    assert app.text_area(key="sign-comment").value == "kept"
    assert app.radio(key="sign-decision").value == "refuse"  # the gate refused: what came back cannot overrule it
    assert identity.FORM not in app.session_state


@pytest.mark.parametrize("minutes", ["0", "61", "-5", "1.5", "soon", "", "٥"])
def test_a_login_that_may_be_of_any_age_is_wrong_use(minutes, capsys):
    with pytest.raises(SystemExit):
        read_settings([f"--fresh-login={minutes}"], {})
    with pytest.raises(SystemExit):
        read_settings([], {"PREFIXGATE_FRESH_LOGIN": minutes})
    assert "minutes from 1 to 60" in capsys.readouterr().err


def test_a_login_is_fresh_for_five_minutes_unless_somebody_says_otherwise():
    assert read_settings([], {}).fresh_login == timedelta(minutes=5)
    assert read_settings(["--fresh-login", "1"], {"PREFIXGATE_FRESH_LOGIN": "9"}).fresh_login == timedelta(minutes=1)
