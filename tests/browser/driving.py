"""A server of our own on a free loopback port, and Debian's Chromium to look at it. Nothing may leave 127.0.0.1."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_LOCAL = re.compile(r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:|about:")


@dataclass
class Watched:
    """What a browser did beside what it was told to: requests that left this machine, dialogs, errors in the page."""

    outgoing: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: _LOCAL.match(request.url) or self.outgoing.append(request.url))
        page.on("dialog", self._dismiss)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _dismiss(self, dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


def missing() -> str | None:
    """Why browser tests cannot run here, None when they can."""
    return None if shutil.which(CHROMIUM) else f"no Chromium at {CHROMIUM}: install Debian's package chromium"


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def server(
    home: Path, *options: str, log: Path | None = None, port: int | None = None, secrets: Path | None = None
) -> Iterator[str]:
    """Address of a fresh dashboard whose home is `home`; stopped at the end. It reads `secrets` when they are named."""
    port = port or free_port()
    home.mkdir(parents=True, exist_ok=True)
    own = ["--server.port", str(port), *(["--secrets.files", str(secrets)] if secrets else [])]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *own, "--"]
    with (log or home / "server.log").open("ab") as out:
        process = subprocess.Popen([*command, "--home", str(home), *options], cwd=ROOT, stdout=out, stderr=out)
        try:
            _wait_for(f"http://127.0.0.1:{port}/_stcore/health", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def browser(width: int = 1440, height: int = 1000, **options) -> Iterator[tuple[BrowserContext, Watched]]:
    """A browser window's context, and a watch over everything that is opened in it."""
    watched = Watched()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = chromium.new_context(viewport={"width": width, "height": height}, accept_downloads=True, **options)
        context.on("page", watched.watch)
        yield context, watched
        chromium.close()


def settled(page: Page, seconds: float = 60) -> Page:
    """The page, once Streamlit has finished its run."""
    page.wait_for_selector("[data-testid=stApp]", timeout=1000 * seconds)
    page.wait_for_function(
        "() => document.querySelector('[data-testid=stApp]')?.getAttribute('data-test-script-state') === 'notRunning'"
        " && document.querySelector('[data-testid=stMain] h1')",
        timeout=1000 * seconds,
    )
    return page


def sign(page: Page, key: str, passphrase: str, comment: str, button: str = "Sign") -> None:
    """Fill in the form of the page Verdict and press its button."""
    settled(page)
    box = page.get_by_role("combobox", name="Your key")
    if box.input_value() != key:
        box.click()
        box.fill(key)
        page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Comment").fill(comment)
    page.get_by_label("Passphrase of the key").fill(passphrase)
    page.get_by_role("button", name=button, exact=True).click()


def sections(page: Page) -> Iterator[str]:
    """Name of each section of an open page, while it is drawn; one without a name where the page has no tabs."""
    names = page.get_by_role("tab").all_inner_texts()
    yield names[0] if names else ""
    for name in names[1:]:
        page.get_by_role("tab", name=name, exact=True).click()
        page.wait_for_function(
            "name => document.querySelector('[role=tab][aria-selected=true]')?.innerText === name"
            " && [...document.querySelectorAll('[role=tabpanel]')].some(one => one.innerText.trim())",
            arg=name,
            timeout=60_000,
        )
        page.wait_for_timeout(150)  # a click's run begins a moment after it
        settled(page)
        yield name


def choose(page: Page, label: str, value: str) -> None:
    """Choose a value in a box that one can type into, and wait until the page has followed."""
    settled(page)
    page.wait_for_timeout(1000)  # figures that are still being drawn would close the list again
    box = page.get_by_role("combobox", name=label, exact=True)
    box.click()
    box.fill(value)
    page.keyboard.press("Enter")
    expect(box).to_have_value(value, timeout=60_000)
    page.wait_for_timeout(300)  # a choice's run begins a moment after it
    settled(page)


def _wait_for(url: str, process: subprocess.Popen) -> None:
    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"the dashboard ended with {process.returncode}")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=1).read()
            return
        time.sleep(0.2)
    raise RuntimeError("the dashboard did not become healthy within 60 s")
