"""Connections that say nothing, little or too much are let go, and nobody else waits for them."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import threading
import time

import pytest

from auditlib.errors import InputError
from auditlib.serving.server import bind, serve
from tests.serving.asking import opened
from tests.serving.test_serving_engine import toy

ASK = b"POST /v1/next HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 30\r\n\r\n"
BODY = b'{"session":"s","events":["c"]}'


def served_to(client, monkeypatch, patience=0.4):
    """What `client(port)` gives, from a thread beside a server; the server ends by SIGTERM."""
    monkeypatch.setattr("auditlib.serving.server._PATIENCE", patience)
    found = []

    def run(port):
        try:
            found.append(client(port))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with bind("127.0.0.1", 0) as bound:
        thread = threading.Thread(target=run, args=(bound.getsockname()[1],))
        serve(opened(toy()), bound, listening=thread.start, grace=2.0)
        thread.join(10)
    assert found, "the client failed"
    return found[0]


def until_closed(connection, say=b"", pause=0.05):
    """Seconds until the server hangs up while `say` is sent byte after byte, and what it said before."""
    began, heard = time.monotonic(), b""
    connection.settimeout(pause)
    for number in range(2000):
        try:
            if say:
                connection.sendall(say[number % len(say) :][:1])
            piece = connection.recv(4096)
        except TimeoutError:
            continue
        except OSError:
            break
        if not piece:
            break
        heard += piece
    else:
        pytest.fail("the server waits for ever")
    return time.monotonic() - began, heard


@pytest.mark.parametrize("say", [b"", b"X", b"X-Y: z\r\n"])
def test_who_never_says_what_is_wanted_is_let_go(say, monkeypatch):
    def client(port):
        silent = socket.create_connection(("127.0.0.1", port))
        silent.sendall(b"GET /ready HTTP/1.1\r\n" if say else b"")
        beside = socket.create_connection(("127.0.0.1", port))
        beside.sendall(ASK + BODY)
        answered = beside.recv(4096)
        waited, heard = until_closed(silent, say)
        beside.close()
        silent.close()
        return answered, waited, heard

    answered, waited, heard = served_to(client, monkeypatch)
    assert answered.startswith(b"HTTP/1.1 200")
    assert waited > 0.2
    assert heard == b""


def test_one_connection_asks_again_and_is_let_go_when_its_last_question_never_ends(monkeypatch):
    def client(port):
        kept = http.client.HTTPConnection("127.0.0.1", port)
        statuses = []
        for _ in range(3):
            kept.request("POST", "/v1/next", BODY, {"Content-Type": "application/json"})
            reply = kept.getresponse()
            statuses.append((reply.status, len(reply.read()) > 0, kept.sock.getsockname()[1]))
        kept.sock.sendall(b"POST /v1/next HT")
        found = until_closed(kept.sock)
        kept.close()
        return statuses, found

    statuses, (_, heard) = served_to(client, monkeypatch)
    assert {(status, said) for status, said, _ in statuses} == {(200, True)}
    assert len({port for *_, port in statuses}) == 1
    assert heard == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/next HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 999999999\r\n\r\n", b"403"),
        (b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n", b"404"),
        (ASK.replace(b"application/json", b"text/plain").replace(b" 30", b" 999999999"), b"415"),
        (ASK.replace(b" 30", b" 999999999"), b"413"),
        (b"GET /ready HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 300_000, b"400"),
        (b"GET /ready HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", b"400"),
        (b"GET /ready HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
    ],
)  # fmt: skip
def test_a_question_that_is_refused_unread_ends_its_connection(head, status, monkeypatch):
    def client(port):
        with socket.create_connection(("127.0.0.1", port)) as one:
            one.sendall(head)
            return until_closed(one)[1]

    said = served_to(client, monkeypatch, patience=20.0)
    assert said.startswith(b"HTTP/1.1 " + status), said
    assert b"Traceback" not in said


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", -1), ("127.0.0.1", 65_536), ("no.such.host.invalid", 0)])
def test_an_address_that_cannot_be_is_refused(host, port):
    with pytest.raises(InputError, match="cannot listen on"):
        bind(host, port)


def test_two_that_bound_one_port_do_not_both_listen():
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with bind("127.0.0.1", port) as second:
            first.listen()
            with pytest.raises(InputError, match=f"port {port}"):
                serve(opened(toy()), second)
