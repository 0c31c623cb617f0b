"""What a newcomer does first: see the refusal, look at its worst prefix, audit the sound revision, sign, verify."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

from tests.browser.driving import ROOT, server, settled

pytestmark = [pytest.mark.browser, pytest.mark.slow]
PATIENCE = 1_800_000
PASSPHRASE = "correct horse"


def download(page, label):
    settled(page)  # while a page is being redrawn, a button may stand there twice
    with page.expect_download() as started:
        page.get_by_role("button", name=label).click()
    return started.value


def test_from_the_first_refusal_to_a_verified_verdict(window, tmp_path):
    home = tmp_path / "home"
    with server(home) as url:
        page = window.new_page()
        page.goto(url)

        # open: the demo is prepared, and the first thing to be seen is the refusal with its reason
        expect(page.get_by_role("heading", name="Release board")).to_be_visible(timeout=PATIENCE)
        settled(page)
        cards = page.get_by_role("heading", level=3)
        expect(cards.nth(0)).to_have_text("service-decoder-1.1")
        expect(page.get_by_text(re.compile("Refused for cache parity"))).to_be_visible()

        # the worst prefix: where the two paths part
        page.get_by_role("link", name=re.compile("Worst held-out prefix")).click()
        expect(page.get_by_role("heading", name="Prefix inspector")).to_be_visible()
        expect(page.get_by_text(re.compile("The paths part after event"))).to_be_visible(timeout=60_000)
        assert "events=" in page.url

        # an audit of the sound revision, watched from a second browser by its link
        page.get_by_role("link", name="Release board").click()
        settled(page)
        page.get_by_role("button", name="Run all audits").first.click()
        expect(page.get_by_text(re.compile(r"all audits of service-decoder-1\.0.*\d+ %"))).to_be_visible(timeout=60_000)
        second = window.new_page()
        second.goto(page.url)
        expect(second.get_by_text(re.compile(r"all audits of service-decoder-1\.0"))).to_be_visible(timeout=60_000)
        ended = page.get_by_text(re.compile("finished. This page shows its results|: failed|: cancelled|: interrupted"))
        expect(ended).to_be_visible(timeout=PATIENCE)
        expect(ended).to_contain_text("finished")
        second.close()
        expect(page.get_by_text(re.compile("Approved: "))).to_be_visible()

        # sign
        page.get_by_role("link", name="Verdict", exact=True).first.click()
        expect(page.get_by_text(re.compile("The gate says: approved"))).to_be_visible(timeout=60_000)
        expect(page.get_by_text(re.compile("UNSIGNED"))).to_be_visible()
        page.get_by_label("Name of the reviewer").fill("Ada Reviewer")
        page.get_by_label("New passphrase").fill(PASSPHRASE)
        page.get_by_label("The passphrase again").fill(PASSPHRASE)
        page.get_by_role("button", name="Make the key").click()
        expect(page.get_by_role("radio", checked=True)).to_have_count(0, timeout=60_000)
        page.get_by_text("approve", exact=True).click()
        page.get_by_role("textbox", name="Comment").fill("figures read, prefixes looked at")
        page.get_by_label("Passphrase of the key").fill(PASSPHRASE)
        page.get_by_role("button", name="Sign", exact=True).click()
        expect(page.get_by_text(re.compile("Valid, signed by Ada Reviewer. It says: release"))).to_be_visible(
            timeout=60_000
        )

        # download, and verify elsewhere: with the command line, then as an upload
        envelope = tmp_path / "verdict.dsse.json"
        download(page, re.compile("Verdict .DSSE")).save_as(envelope)
        assert verified(envelope, home / "trust.json") == 0
        page.locator("input[type=file]").set_input_files(envelope)
        expect(page.get_by_text(re.compile("Valid, signed by Ada Reviewer"))).to_have_count(2, timeout=30_000)

        # an altered verdict is refused, in words
        altered = tmp_path / "altered.json"
        altered.write_bytes(flipped(envelope.read_bytes()))
        assert verified(altered, home / "trust.json") == 3
        page.locator("input[type=file]").set_input_files(altered)
        expect(page.get_by_text(re.compile("Not valid"))).to_be_visible(timeout=30_000)

        # what to take along
        bundle = json.loads(download(page, re.compile("Sigstore bundle of Ada")).path().read_bytes())
        assert bundle["mediaType"].startswith("application/vnd.dev.sigstore.bundle")
        report = download(page, re.compile("Report .HTML"))
        assert report.suggested_filename.startswith("service-decoder-1.0-")
        assert report.suggested_filename.endswith("-report.html")
        assert b"service-decoder-1.0" in report.path().read_bytes()


def verified(envelope, trust):
    command = [sys.executable, "-m", "auditlib", "verify", str(envelope), "--trust", str(trust)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode


def flipped(envelope):
    """The envelope with one character of its payload changed."""
    document = json.loads(envelope)
    payload = document["payload"]
    document["payload"] = payload[:40] + ("A" if payload[40] != "A" else "B") + payload[41:]
    return json.dumps(document).encode()
