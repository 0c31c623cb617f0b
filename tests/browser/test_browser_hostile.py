"""Names from a log that would like to run, to call out, or to pass for something else."""

from __future__ import annotations

import pytest

from tests.browser.driving import ROOT, sections, server, settled
from tests.web.world import make_world

pytestmark = [pytest.mark.browser, pytest.mark.slow]

BEACON = "http://127.0.0.2:9/beacon"
PAYLOADS = (
    "<script>alert('s')</script>",
    f"<img src={BEACON}1.png onerror=alert(1)>",
    f"![x]({BEACON}2.png)",
    f"[click]({BEACON}3)",
    "[js](javascript:alert(4))",
    f"<a href='{BEACON}5'>a</a>",
    f"<svg/onload=fetch('{BEACON}6')>",
    f"<iframe src={BEACON}7></iframe>",
    f"{BEACON}8.png",
    "www.evil.example",
    ":material/check_circle: :green[approved] :smile:",
    "$\\href{javascript:alert(9)}{x}$",
    "`code` **bold** # heading",
    "\u202egnp.lave\u202c",
    '=HYPERLINK("http://evil.example")',
    "{{7*7}} ${7*7} %{x}",
    "</script><script>alert(10)</script>",
    "<style>body{display:none}</style>",
)  # fmt: skip
PAGES = tuple(sorted(path.stem for path in (ROOT / "pages").glob("*.py")))
# Anything but text that came of a name: live markup, or a link that leaves the dashboard.
FOUND = """() => {
  const main = document.querySelector('[data-testid=stApp]');
  const bad = /evil|127\\.0\\.0\\.2|alert|beacon/;
  const own = a => new URL(a.href).origin === location.origin && !/javascript:/.test(a.href);
  const parts = [...main.querySelectorAll('script, iframe, svg[onload], style, img')].map(e => e.outerHTML);
  const links = [...main.querySelectorAll('a[href]')].filter(a => !own(a)).map(a => a.outerHTML);
  return [...parts.filter(h => bad.test(h)), ...links];
}"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    home = tmp_path_factory.mktemp("hostile")
    return make_world(home, names=PAYLOADS, session=f"<img src={BEACON}s.png>", revision=f"![r]({BEACON}r.png)")


def test_no_name_runs_calls_out_or_turns_into_a_link_on_any_page(hostile, window, tmp_path):
    events = "1-" + "-".join(str(number) for number in range(3, 3 + len(PAYLOADS)))
    with server(tmp_path, "--store", str(hostile.store), "--runs", str(hostile.runs)) as url:
        for name in PAGES:
            page = window.new_page()
            page.goto(f"{url}/{name}?revision={hostile.faulty.digest}&events={events}&session={PAYLOADS[1]}")
            settled(page)
            for section in sections(page):
                page.wait_for_timeout(1000)  # figures and fonts, and any beacon, come after the run
                assert page.evaluate(FOUND) == [], (name, section)
                assert page.locator("[data-testid=stException]").count() == 0, (name, section)
            page.close()


def test_the_report_that_is_downloaded_is_as_deaf(hostile, window, tmp_path):
    from auditlib.views.report import to_html  # noqa: PLC0415

    file = tmp_path / "report.html"
    file.write_text(to_html(hostile.refused), encoding="utf-8")
    outgoing = []
    page = window.browser.new_context(offline=True).new_page()
    page.on("request", lambda request: outgoing.append(request.url))
    page.on("dialog", lambda dialog: (outgoing.append(dialog.message), dialog.dismiss()))
    page.goto(file.as_uri())
    page.locator(".js-plotly-plot").first.wait_for(timeout=60_000)
    page.wait_for_timeout(1000)
    assert [request for request in outgoing if not request.startswith(("file:", "data:", "blob:"))] == []
    assert page.locator("main img, main svg[onload], main a[href]").count() == 0
