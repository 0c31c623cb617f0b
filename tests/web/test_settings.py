"""What the dashboard is started with, and that its doors stay shut."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from auditlib.web.settings import own_arguments, read_settings

ROOT = Path(__file__).parents[2]


def test_without_anything_it_is_the_demo_under_var():
    found = read_settings([], {})
    assert found.demo
    assert found.home == Path("var").absolute()
    assert found.runs is None
    assert not found.allow_code


def test_options_win_over_the_environment_and_the_rest_goes_under_home(tmp_path):
    environment = {"PREFIXGATE_STORE": "/x/from-env.duckdb", "PREFIXGATE_TRUST": "/x/trust.json"}
    found = read_settings(["--home", str(tmp_path), "--store", "/x/s.duckdb", "--allow-code"], environment)
    assert found.store == Path("/x/s.duckdb")
    assert found.trust == Path("/x/trust.json")
    assert found.runs == tmp_path / "runs"
    assert found.keys == tmp_path / "keys"
    assert found.allow_code


@pytest.mark.parametrize(("text", "allowed"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)])
def test_code_of_a_revision_is_allowed_only_when_said_so(text, allowed):
    assert read_settings([], {"PREFIXGATE_ALLOW_CODE": text}).allow_code is allowed


def test_a_misspelt_option_is_refused_not_ignored(capsys):
    with pytest.raises(SystemExit):
        read_settings(["--alow-code"], {})
    assert "--alow-code" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "own"),
    [(["app.py", "--store", "s"], ["--store", "s"]), (["/a/b/app.py"], []), (["pytest", "-x"], []), ([], [])],
)
def test_arguments_of_another_program_are_not_taken(argv, own):
    assert own_arguments(argv) == own


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("server", "address", "127.0.0.1"),
        ("server", "allowedHosts", ["localhost", "127.0.0.1"]),
        ("server", "enableXsrfProtection", True),
        ("server", "enableCORS", True),
        ("server", "enableStaticServing", False),
        ("server", "enableAgentApi", False),
        ("server", "fileWatcherType", "none"),
        ("browser", "gatherUsageStats", False),
        ("client", "showErrorDetails", "type"),
        ("client", "showErrorLinks", False),
        ("client", "disableDataExport", True),
        ("client", "toolbarMode", "viewer"),
        ("runner", "magicEnabled", False),
    ],
)
def test_a_setting_that_keeps_a_door_shut_is_still_there(section, name, value):
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config[section][name] == value


def test_uploads_are_small():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))
    assert config["server"]["maxUploadSize"] <= 64
