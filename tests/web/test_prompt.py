"""Answers of the dashboard's server leave at once."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from auditlib.web import prompt, warm

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="open sockets cannot be listed there")


@pytest.fixture
def bound():
    """A socket bound as Streamlit binds its own: the protocol is not named."""
    with socket.socket(socket.AF_INET) as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one


def held_back(bound) -> bool:
    """Whether a connection that is accepted now would hold small packets back."""
    with socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
        return not accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_of_a_listening_socket_hold_nothing_back_afterwards(bound):
    assert held_back(bound)
    assert prompt.send_at_once() >= 1
    assert not held_back(bound)


def test_the_server_does_it_before_it_answers(bound, monkeypatch):
    monkeypatch.setattr(warm, "FIRST", ())
    monkeypatch.setattr(warm, "_first_page", lambda: None)

    async def live():
        async with warm.lifespan(None):
            return held_back(bound)

    assert asyncio.run(live()) is False


def test_nothing_is_left_open_and_other_descriptors_are_let_be(bound, tmp_path):
    with (tmp_path / "file").open("w"), socket.socket(socket.AF_UNIX) as local, socket.socket(type=socket.SOCK_DGRAM):
        local.bind(str(tmp_path / "socket"))
        local.listen()
        before = sorted(Path("/dev/fd").iterdir())
        prompt.send_at_once()
        assert sorted(Path("/dev/fd").iterdir()) == before
    assert bound.fileno() >= 0


def test_where_nothing_can_be_listed_nothing_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(prompt, "_OPEN", tmp_path / "none")
    assert prompt.send_at_once() == 0
