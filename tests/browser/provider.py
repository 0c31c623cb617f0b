"""An identity provider for tests, on a free loopback port: OpenID Connect's code flow with PKCE, and nothing else.

It asks who logs in each time, and keeps what the dashboard asked for. `age` makes later logins look older.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "prefixgate", "not secret at all"


class Provider:
    """People by subject, and the logins that are under way."""

    def __init__(self, people: dict[str, str]) -> None:
        self.people = people
        self.issuer = ""
        self.age = 0
        self.says_auth_time = True
        self.asked: list[dict[str, str]] = []
        self._key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
        self._codes: dict[str, tuple[str, dict[str, str]]] = {}

    def configuration(self) -> dict:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/end",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def login_page(self, asked: dict[str, str]) -> str:
        """A form with a button for each person."""
        self.asked.append(asked)
        people = "".join(
            f'<p><a href="/as?{urlencode({**asked, "person": subject})}">{name}</a></p>'
            for subject, name in self.people.items()
        )
        return f"<!doctype html><html lang='en'><title>Who are you?</title><h1>Who are you?</h1>{people}</html>"

    def let_in(self, asked: dict[str, str]) -> str:
        """Where a person goes who has logged in."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = (asked["person"], asked)
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}"

    def tokens(self, form: dict[str, str], caller: str) -> dict:
        """Tokens for a code, once, for the client that the code was made for."""
        subject, asked = self._codes.pop(form["code"])
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        assert caller == "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        assert form["redirect_uri"] == asked["redirect_uri"]
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "sub": subject, "name": self.people[subject]}
        claims |= {"iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        if self.says_auth_time:
            claims["auth_time"] = now - self.age
        signed = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self._key)
        return {"access_token": secrets.token_urlsafe(8), "token_type": "Bearer", "expires_in": 300, "id_token": signed}

    def keys(self) -> dict:
        return {"keys": [self._key.as_dict(private=False)]}


@contextlib.contextmanager
def provider(people: dict[str, str]) -> Iterator[Provider]:
    """A provider that listens; stopped at the end."""
    made = Provider(people)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if parts.path == "/authorize":
                self.answer(made.login_page(asked), "text/html")
            elif parts.path == "/as":
                self.go(made.let_in(asked))
            elif parts.path == "/end":
                self.go(asked["post_logout_redirect_uri"])
            elif parts.path == "/jwks":
                self.answer(json.dumps(made.keys()), "application/json")
            elif parts.path == "/.well-known/openid-configuration":
                self.answer(json.dumps(made.configuration()), "application/json")
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = {name: values[0] for name, values in parse_qs(body).items()}
            self.answer(json.dumps(made.tokens(form, self.headers["Authorization"])), "application/json")

        def answer(self, text: str, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(text.encode())

        def go(self, where: str) -> None:
            self.send_response(302)
            self.send_header("Location", where)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests print enough."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        made.issuer = f"http://127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            thread.join(5)
