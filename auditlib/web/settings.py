"""What the dashboard was started with: `streamlit run app.py -- --store S …`, or PREFIXGATE_STORE=S and so on."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

_HELP = {
    "home": "folder for everything the dashboard writes (default: var)",
    "store": "session store; without one, a demo store is made under the home folder",
    "runs": "folder of runs",
    "artifacts": "folder of packaged artifacts, with the evidence on them beside (default: beside the runs)",
    "keys": "folder of reviewers' encrypted keys (*.pem)",
    "trust": "trust file: whose signatures count",
    "verdicts": "folder that signed verdicts are written to",
    "policy": "policy file for audits started in the browser",
}
_PERMISSIONS = {
    "allow_code": "load adapters that bring own code",
    "require_sign_in": "show nothing while no identity provider is configured",
}
_FRESH = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """Places and permissions. `store` and `runs` are None when the demo stands in for them.

    `require_sign_in` shuts the dashboard while no identity provider is configured; where one is, a login may be as old
    as `fresh_login` when its person signs.
    """

    home: Path
    store: Path | None
    runs: Path | None
    artifacts: Path
    keys: Path
    trust: Path
    verdicts: Path
    policy: Path | None
    allow_code: bool
    require_sign_in: bool
    fresh_login: timedelta

    @property
    def demo(self) -> bool:
        """Whether the dashboard shows the demo, because no store was named."""
        return self.store is None


def read_settings(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Settings from the command line or else the environment. Exits with a usage message on an unknown option."""
    parser = argparse.ArgumentParser(prog="streamlit run app.py --", allow_abbrev=False)
    for name, meaning in _HELP.items():
        parser.add_argument(f"--{name}", default=environment.get(f"PREFIXGATE_{name.upper()}"), help=meaning)
    for name, meaning in _PERMISSIONS.items():
        said = environment.get(f"PREFIXGATE_{name.upper()}", "").lower() in {"1", "true", "yes"}
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", default=said, help=meaning)
    fresh = environment.get("PREFIXGATE_FRESH_LOGIN", str(_FRESH))
    parser.add_argument(
        "--fresh-login", type=_minutes, default=fresh, metavar="MINUTES",
        help=f"how old a login may be when its person signs, where people sign in (default: {_FRESH})",
    )  # fmt: skip
    return _settings(vars(parser.parse_args(arguments)))


def own_arguments(argv: Sequence[str]) -> list[str]:
    """Arguments meant for the dashboard: none when another program, such as a test runner, runs it."""
    # A test runner puts its own options there.
    return list(argv[1:]) if argv and Path(argv[0]).name == "app.py" else []


def settings_now() -> Settings:
    """Settings of this process."""
    return read_settings(own_arguments(sys.argv), os.environ)


def _settings(options: Mapping[str, Any]) -> Settings:
    """Settings with every place that was not named put under the home folder."""
    named = {name: Path(str(options[name])).absolute() for name in _HELP if options[name]}
    home = named.get("home", Path("var").absolute())
    store = named.get("store")
    runs = named.get("runs", None if store is None else home / "runs")
    return Settings(
        home=home,
        store=store,
        runs=runs,
        artifacts=named.get("artifacts", (home if runs is None else runs.parent) / "artifacts"),
        keys=named.get("keys", home / "keys"),
        trust=named.get("trust", home / "trust.json"),
        verdicts=named.get("verdicts", home / "verdicts"),
        policy=named.get("policy"),
        allow_code=bool(options["allow_code"]),
        require_sign_in=bool(options["require_sign_in"]),
        fresh_login=timedelta(minutes=options["fresh_login"]),
    )


def _minutes(text: str) -> int:
    """Whole minutes, from one to an hour; a login that may be older than that is not fresh."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes from 1 to 60")
    return int(text)
