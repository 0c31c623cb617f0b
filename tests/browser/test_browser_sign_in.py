"""Reviewers sign in: nothing is seen before, the link survives, and only a fresh login with one's own key signs."""

from __future__ import annotations

import json
import re
import secrets

import pytest
from playwright.sync_api import expect

from auditlib.release.identity import Identity
from auditlib.release.signing import new_key
from auditlib.release.verdict import verify_verdict
from tests.browser.driving import free_port, server, settled, sign
from tests.browser.provider import CLIENT, SECRET, provider
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSPHRASE = "correct horse"
PEOPLE = {"u-ada": "Ada", "u-bea": "Bea", "u-eve": "Eve"}
SLOW = 60_000


@pytest.fixture(scope="module")
def idp():
    with provider(PEOPLE) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory, idp):
    """Address and home of a dashboard where Ada and Bea may sign and Eve may not."""
    folder = tmp_path_factory.mktemp("sign-in")
    world, home, port = make_world(folder / "world"), folder / "home", free_port()
    for subject in ("u-ada", "u-bea"):
        name = PEOPLE[subject]
        key = home / "keys" / f"{name.lower()}.pem"
        new_key(key, name, PASSPHRASE.encode(), home / "trust.json", identity=Identity(idp.issuer, subject))
    secrets_file = folder / "secrets.toml"
    secrets_file.write_text(secrets_for(idp, port))
    options = ("--store", str(world.store), "--runs", str(world.runs))
    with server(home, *options, port=port, secrets=secrets_file) as url:
        yield url, home, world


def secrets_for(idp, port):
    return f"""
[auth]
redirect_uri = "http://127.0.0.1:{port}/oauth2callback"
cookie_secret = "{secrets.token_hex(32)}"

[auth.company]
client_id = "{CLIENT}"
client_secret = "{SECRET}"
server_metadata_url = "{idp.issuer}/.well-known/openid-configuration"
client_kwargs = {{ scope = "openid profile", prompt = "login" }}
authorize_params = {{ max_age = "300" }}
"""


def log_in(page, name, button="Log in"):
    page.get_by_role("button", name=button, exact=True).click(timeout=SLOW)
    page.get_by_role("link", name=name, exact=True).click(timeout=SLOW)


def test_a_link_survives_the_login_and_only_ones_own_key_and_a_fresh_login_sign(window, place, idp, accessible):
    url, home, world = place
    page = window.new_page()
    # The very first request to this server: pages/verdict.py would answer it if the door did not stand before it.
    page.goto(f"{url}/verdict?run={world.refused.id}&revision={world.faulty.digest}")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SLOW)
    seen = page.content()
    for secret in (world.refused.id, "faulty", "The gate says", "Ada"):
        assert secret not in seen
    accessible(page)
    idp.age = 3600
    log_in(page, "Ada")
    expect(page.get_by_role("heading", name="Verdict", exact=True)).to_be_visible(timeout=SLOW)
    assert "/verdict?" in page.url
    assert world.refused.id in page.url
    assert idp.asked[-1]["prompt"] == "login"
    assert idp.asked[-1]["max_age"] == "300"
    expect(page.get_by_text("Signed in as Ada")).to_be_visible()

    # A login of an hour ago does not sign; the form comes back after a fresh one.
    sign(page, "ada", PASSPHRASE, "gaps far over tolerance")
    expect(
        page.get_by_text(re.compile("a signature needs a login of the last 5 minutes", re.IGNORECASE))
    ).to_be_visible(timeout=SLOW)
    assert not (home / "verdicts").exists()
    idp.age = 0
    expect(page.get_by_text("The form comes back as you sent it")).to_be_visible(timeout=SLOW)
    log_in(page, "Ada", "Log in again")
    box = page.get_by_role("textbox", name="Comment")
    expect(box).to_have_value("gaps far over tolerance", timeout=SLOW)
    expect(page.get_by_role("combobox", name="Your key")).to_have_value("ada")
    assert page.get_by_label("Passphrase of the key").input_value() == ""
    settled(page)

    # Somebody else's key, even with its passphrase, does not.
    sign(page, "bea", PASSPHRASE, "as if I were Bea")
    expect(page.get_by_text(re.compile("does not give this key to the account"))).to_be_visible(timeout=SLOW)
    assert not (home / "verdicts").exists()
    sign(page, "ada", PASSPHRASE, "gaps far over tolerance")
    expect(page.get_by_text(re.compile("Valid, signed by Ada"))).to_be_visible(timeout=SLOW)
    (verdict,) = (home / "verdicts").glob("*.dsse.json")
    signed = verify_verdict(verdict, home / "trust.json")
    assert signed.statement.review.decision == "refuse"
    assert [signer.person for signer in signed.signers] == ["Ada"]

    tab = window.new_page()
    tab.goto(f"{url}/causality")
    expect(tab.get_by_text("Signed in as Ada")).to_be_visible(timeout=SLOW)
    # A browser that does not follow the redirect keeps the cookie; the server knows by itself that the login is over.
    window.route("**/auth/logout", lambda route: route.fulfill(status=204))
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SLOW)
    page.goto(f"{url}/board")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text("You logged out")).to_be_visible()
    settled(tab).get_by_role("link", name="Sessions", exact=True).click()
    expect(tab.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SLOW)
    window.unroute("**/auth/logout")
    log_in(page, "Ada")
    expect(page.get_by_role("heading", name="Release board")).to_be_visible(timeout=SLOW)
    with page.expect_response("**/auth/logout"):
        page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=SLOW)


def test_two_browsers_never_take_each_other_for_somebody_and_a_stranger_may_only_look(window, place, idp):
    url, home, _ = place
    idp.age = 0
    trust = (home / "trust.json").read_bytes()
    other = window.browser.new_context()
    pages = {"Eve": window.new_page(), "Bea": other.new_page()}
    for name, page in pages.items():
        page.goto(f"{url}/verdict")
        log_in(page, name)
    for name, page in pages.items():
        expect(page.get_by_text(f"Signed in as {name}", exact=True)).to_be_visible(timeout=SLOW)
        settled(page).reload()
        expect(page.get_by_text(f"Signed in as {name}", exact=True)).to_be_visible(timeout=SLOW)
    expect(pages["Bea"].get_by_label("Passphrase of the key")).to_be_visible(timeout=SLOW)
    page = settled(pages["Eve"])
    expect(page.get_by_text(re.compile("You cannot sign yet"))).to_be_visible()
    assert page.get_by_label("Passphrase of the key").count() == 0
    page.get_by_label("New passphrase", exact=True).fill(PASSPHRASE)
    page.get_by_label("The passphrase again", exact=True).fill(PASSPHRASE)
    page.get_by_role("button", name="Make the key").click()
    expect(page.get_by_role("button", name="Request for the key eve")).to_be_visible(timeout=SLOW)
    expect(page.get_by_text(re.compile("You cannot sign yet"))).to_be_visible()
    assert (home / "trust.json").read_bytes() == trust
    asked = json.loads((home / "keys" / "eve.request.json").read_text())
    assert asked["identity"] == {"issuer": idp.issuer, "subject": "u-eve"}
    other.close()
