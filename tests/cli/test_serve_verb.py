"""`serve` refuses what makes no sense before it listens, with one message and exit code 2."""

from __future__ import annotations

import pytest

from auditlib.cli.main import build_parser, main
from auditlib.cli.serving import PORT


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--host", "0.0.0.0"], "--allow-host"),
        (["--host", "203.0.113.9", "--allow-host", "desk"], "cannot listen on 203.0.113.9"),
        (["--port", "70000"], "cannot listen on"),
        (["--share", "0.5"], "--stage"),
        (["--shadow"], "--stage"),
        (["--stage", "canary 5"], "--share"),
        (["--stage", "canary 5", "--share", "2"], "0 to 1"),
        (["--stage", "shadow", "--shadow", "--share", "0.5"], "0 in shadow"),
        (["--stage", "canary 5", "--share", "0.05"], "--log"),
        (["--compare", "7"], "--compare"),
        (["--timeout", "0"], "--timeout"),
        (["--threads", "0"], "--threads"),
        ([], "nowhere"),
    ],
)
def test_wrong_use_is_one_message(more, said, capsys):
    port = [] if "--port" in more else ["--port", "0"]
    assert main(["serve", "nowhere", *port, *more]) == 2
    found = capsys.readouterr()
    assert (found.out, found.err.count("\n")) == ("", 1)
    assert said in found.err


def test_by_default_only_this_machine_can_ask():
    options = build_parser().parse_args(["serve", "artifact"])
    assert (options.host, options.port, options.allow_host) == ("127.0.0.1", PORT, [])
