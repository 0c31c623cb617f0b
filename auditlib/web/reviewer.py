"""A reviewer who signed in, as the identity provider's token tells. No Streamlit here: what matters is checked here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from auditlib.errors import InputError
from auditlib.release.identity import Identity

LASTS = timedelta(hours=12)
"""How long a login lets somebody look. Streamlit's cookie would last 30 days, and nobody asks the provider again."""

# The same leeway as Authlib's when it checks a token's times.
_SKEW = timedelta(minutes=2)
OF_ONE_LOGIN = ("iss", "sub", "iat", "auth_time", "nonce", "sid", "jti")
"""Claims that tell one login of an account from the next: OpenID Connect Core 1.0, section 2, and RFC 7519 (jti)."""


class SignInError(InputError):
    """Nobody is signed in, or the token does not say who."""


class StaleLoginError(SignInError):
    """A login that is too old to sign with; a fresh one cures it."""


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Who is signed in. `name` is for people and decides nothing.

    `proven` is when the person last showed the provider who they are, None where the token does not tell; `issued` is
    when the token was made, and `provider` the section of the secrets that it came by. `login` is a hash that marks
    this one login among all of this account.
    """

    identity: Identity
    name: str
    issued: datetime
    proven: datetime | None
    provider: str
    login: str

    def require_recent(self, now: datetime) -> None:
        """Refuse a login of another day: StaleLoginError."""
        if not -_SKEW <= now - self.issued <= LASTS:
            raise StaleLoginError(f"your login is older than {LASTS.total_seconds() / 3600:.0f} hours; log in again")

    def require_fresh(self, now: datetime, limit: timedelta) -> None:
        """Refuse a login too old to sign with, or of unknown age: StaleLoginError says what to do."""
        if self.proven is None:
            raise StaleLoginError(
                "the identity provider does not say when you logged in, so nobody can sign; whoever runs the dashboard "
                'must have it ask each time: client_kwargs = { prompt = "login" } in the [auth] section'
            )
        age = now - self.proven
        if age < -_SKEW:
            raise StaleLoginError("your login is dated in the future; compare this machine's clock with the provider's")
        if age > limit:
            raise StaleLoginError(
                f"a signature needs a login of the last {_minutes(limit)}, yours is {_minutes(age)} old; log in again"
            )


def reviewer_from(claims: Mapping[str, Any], *, asks_each_time: bool) -> Reviewer:
    """Who the claims of a verified token speak of; SignInError when they do not name one account.

    `asks_each_time` says that the provider was told to ask for the password at each login. Only then does the time at
    which the token was made (`iat`) stand in for the time of the login (`auth_time`): with a session at the provider,
    a new token is made without asking anybody.
    """
    if claims.get("is_logged_in") is not True:
        raise SignInError("nobody is signed in; log in")
    try:
        identity = Identity(_text(claims, "iss"), _text(claims, "sub"))
    except ValueError as error:
        raise SignInError(f"the identity provider's token names no account: {error}") from error
    issued = _moment(claims.get("iat"))
    if issued is None:
        raise SignInError("the identity provider's token does not say when it was made; it must have iat")
    proven = _moment(claims["auth_time"]) if "auth_time" in claims else issued if asks_each_time else None
    named = (str(claims.get(name) or "").strip() for name in ("name", "preferred_username", "email"))
    name = next(filter(None, named), identity.subject)
    return Reviewer(identity, name, issued, proven, str(claims.get("provider") or "default"), _mark(claims))


def _mark(claims: Mapping[str, Any]) -> str:
    told = [str(claims.get(name)) for name in OF_ONE_LOGIN]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _text(claims: Mapping[str, Any], name: str) -> str:
    found = claims.get(name)
    if not isinstance(found, str):
        raise ValueError(f"{name} is missing")  # noqa: TRY004  one error for every fault of a token
    return found


def _moment(seconds: object) -> datetime | None:
    """Seconds since 1970 as a moment; None for whatever is none."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def _minutes(span: timedelta) -> str:
    minutes = int(span.total_seconds() // 60)
    hours = minutes // 60
    return f"{hours} hours" if hours >= 2 else "1 minute" if minutes == 1 else f"{minutes} minutes"
