"""Two people decide: who has signed, who is missing, and a refusal that is on record."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from auditlib.release.signing import new_key
from tests.browser.driving import server, sign
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PASSPHRASE = "correct horse"


def test_a_refusal_needs_two_people_and_the_page_says_whose_signature_is_missing(window, tmp_path, accessible):
    world, home = make_world(tmp_path / "world"), tmp_path / "home"
    for person in ("Ada", "Bea"):
        new_key(home / "keys" / f"{person.lower()}.pem", person, PASSPHRASE.encode(), home / "trust.json")
    trust = json.loads((home / "trust.json").read_text())
    (home / "trust.json").write_text(json.dumps({**trust, "threshold": 2}))
    with server(home, "--store", str(world.store), "--runs", str(world.runs)) as url:
        page = window.new_page()
        page.goto(f"{url}/verdict")
        expect(page.get_by_text("Signed by nobody; the trust file asks for 2 people.")).to_be_visible(timeout=60_000)
        expect(page.get_by_text("Still needed: Ada, Bea.")).to_be_visible()
        sign(page, "ada", "not hers", "gaps far over tolerance")
        expect(page.get_by_text(re.compile("The key ada: the passphrase is wrong"))).to_be_visible(timeout=60_000)
        expect(page.get_by_label("Passphrase of the key")).to_have_value("")
        expect(page.get_by_role("textbox", name="Comment")).to_have_value("gaps far over tolerance")
        page.get_by_label("Passphrase of the key").fill(PASSPHRASE)
        page.keyboard.press("Enter")
        expect(page.get_by_text("Still needed: Bea.")).to_be_visible(timeout=60_000)
        expect(page.get_by_text(re.compile("Not complete yet"))).to_be_visible()
        sign(page, "bea", PASSPHRASE, "gaps far over tolerance", "Add my signature")
        expect(page.get_by_text("Signed by 2 people; the trust file asks for 2 people.")).to_be_visible(timeout=60_000)
        expect(page.get_by_text(re.compile("Valid, signed by Ada, Bea. It says: do not release"))).to_be_visible()
        expect(page.get_by_text(re.compile("Decision: refuse. Comment: gaps far over tolerance"))).to_be_visible()
        expect(page.get_by_text("Everybody who may sign has signed this verdict.")).to_be_visible()
        accessible(page)
        ledger = (home / "verdicts" / "ledger.jsonl").read_text()
    assert len(ledger.splitlines()) == 1
