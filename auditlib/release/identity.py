"""Who somebody is at an identity provider: issuer and subject, the one pair that OpenID Connect promises to be unique.

An e-mail address is no identity: it can be given to the next person, and a provider need not have checked it
(OpenID Connect Core 1.0, section 5.7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

_SUBJECT = re.compile(r"[\x20-\x7e]{1,255}")
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Identity:
    """A person's account: who vouches for it, and its name there. Both are compared letter by letter."""

    issuer: str
    subject: str

    def __post_init__(self) -> None:
        """Refuse what no provider may send: ValueError says which half."""
        if not _is_issuer(self.issuer):
            raise ValueError(f"{self.issuer!r} is no issuer: it is a https address without query or fragment")
        if not _SUBJECT.fullmatch(self.subject) or self.subject != self.subject.strip():
            raise ValueError("a subject is 1 to 255 characters of ASCII, as the provider sends it")

    def to_dict(self) -> dict[str, str]:
        """As it stands in a trust file."""
        return asdict(self)


def identity_from(document: object) -> Identity:
    """The identity in a trust file's entry; ValueError for anything doubtful."""
    if not isinstance(document, Mapping) or set(document) != {"issuer", "subject"}:
        raise ValueError('an identity has "issuer" and "subject", and nothing else')
    issuer, subject = document["issuer"], document["subject"]
    if not isinstance(issuer, str) or not isinstance(subject, str):
        raise ValueError("issuer and subject are texts")  # noqa: TRY004  one error for every fault of a trust file
    return Identity(issuer, subject)


def _is_issuer(text: str) -> bool:
    if not text.isascii() or not text.isprintable() or re.search(r"[\s?#]", text):
        return False
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    # plain http only where nothing can sit in between: a provider on this machine
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK))
