"""Who a token speaks of, how old a login may be, and what a browser takes along through a login."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from auditlib.release.identity import Identity
from auditlib.web.luggage import Bag, Luggage, browser_of
from auditlib.web.reviewer import LASTS, SignInError, StaleLoginError, reviewer_from

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LIMIT = timedelta(minutes=5)
ADA = Identity("https://login.example.test", "u-ada")
CLAIMS = {"is_logged_in": True, "iss": ADA.issuer, "sub": ADA.subject, "iat": NOW.timestamp(), "name": "Ada"}


def ago(minutes):
    return NOW.timestamp() - 60 * minutes


def test_a_token_names_an_account_by_issuer_and_subject():
    found = reviewer_from({**CLAIMS, "email": "ada@example.test", "provider": "company"}, asks_each_time=True)
    assert (found.identity, found.name, found.provider) == (ADA, "Ada", "company")


@pytest.mark.parametrize(
    "changes",
    [
        {"is_logged_in": False}, {"is_logged_in": None}, {"is_logged_in": "true"}, {"is_logged_in": 1}, {"iss": None},
        {"sub": None}, {"sub": 7}, {"sub": ""}, {"iss": "http://login.example.test"}, {"iat": None}, {"iat": "now"},
        {"iat": True}, {"iat": float("nan")}, {"iat": 1e300},
    ],
    ids=str,
)  # fmt: skip
def test_a_token_that_names_nobody_lets_nobody_in(changes):
    with pytest.raises(SignInError):
        reviewer_from({**CLAIMS, **changes}, asks_each_time=True)


@pytest.mark.parametrize(
    ("changes", "asks", "fresh"),
    [
        ({"auth_time": ago(4)}, False, True),
        ({"auth_time": ago(6)}, False, False),
        # A session at the provider makes new tokens of an old login: the newer iat does not help.
        ({"auth_time": ago(60), "iat": ago(0)}, True, False),
        ({"iat": ago(4)}, True, True),
        ({"iat": ago(6)}, True, False),
        ({"iat": ago(0)}, False, False),
        ({"auth_time": "now"}, True, False),
        ({"auth_time": None}, True, False),
        ({"auth_time": True}, True, False),
        ({"auth_time": ago(-60)}, True, False),
        ({"auth_time": ago(-1)}, True, True),
    ],
    ids=str,
)
def test_only_a_login_that_is_known_to_be_fresh_signs(changes, asks, fresh):
    found = reviewer_from({**CLAIMS, **changes}, asks_each_time=asks)
    if fresh:
        found.require_fresh(NOW, LIMIT)
        return
    with pytest.raises(StaleLoginError):
        found.require_fresh(NOW, LIMIT)


def test_who_cannot_sign_for_want_of_a_time_is_told_what_to_configure():
    with pytest.raises(StaleLoginError, match=r'prompt = "login"'):
        reviewer_from(CLAIMS, asks_each_time=False).require_fresh(NOW, LIMIT)


@pytest.mark.parametrize(("age", "let_in"), [(timedelta(), True), (LASTS, True), (LASTS * 2, False), (-LASTS, False)])
def test_a_login_of_another_day_does_not_even_look(age, let_in):
    found = reviewer_from({**CLAIMS, "iat": (NOW - age).timestamp()}, asks_each_time=True)
    if let_in:
        found.require_recent(NOW)
        return
    with pytest.raises(StaleLoginError):
        found.require_recent(NOW)


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"name": " "}, "u-ada"),
        ({"name": None, "preferred_username": "ada"}, "ada"),
        ({"name": "", "email": "a@b"}, "a@b"),
    ],
)
def test_somebody_without_a_name_is_still_called_something(claims, name):
    assert reviewer_from({**CLAIMS, **claims}, asks_each_time=True).name == name


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_a_bag_is_handed_out_once_to_its_own_browser():
    kept = Luggage(Clock())
    bag = Bag("verdict", {"run": "R"})
    kept.keep("one", bag)
    assert kept.take("other") is None
    assert kept.take("one") is bag
    assert kept.take("one") is None


def test_a_bag_that_lay_too_long_is_gone_and_a_new_one_takes_the_place_of_the_old():
    clock = Clock()
    kept = Luggage(clock)
    kept.keep("one", Bag("board", {}))
    kept.keep("one", Bag("verdict", {}))
    kept.keep("two", Bag("sessions", {}))
    clock.now = 899.0
    assert kept.take("one").page == "verdict"
    clock.now = 901.0
    assert kept.take("two") is None


def test_strangers_cannot_fill_the_memory():
    kept = Luggage(Clock())
    kept.keep("large", Bag("verdict", {"x": "y" * 20_000}))
    for number in range(1001):
        kept.keep(f"browser {number}", Bag("verdict", {}))
    assert kept.take("large") is None
    assert kept.take("browser 0") is None
    assert kept.take("browser 1") is not None


def test_only_whoever_filled_in_a_form_gets_it_back():
    bag = Bag("verdict", {}, {"comment": "no"}, ADA)
    assert bag.form_for(ADA) == {"comment": "no"}
    assert bag.form_for(Identity(ADA.issuer, "u-bea")) == {}


def cookie(token, mask=b"abcd"):
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(token))
    return f"2|{mask.hex()}|{masked.hex()}|1790000000"


def test_a_browser_keeps_its_mark_when_the_cookie_is_masked_anew():
    one, other = b"0123456789abcdef", b"0123456789abcdeg"
    assert browser_of(cookie(one)) == browser_of(cookie(one, b"wxyz")) != browser_of(cookie(other))


@pytest.mark.parametrize(
    "text", ["", "1|2", "2|zz|00|1", "3|61626364|30313233343536373839|1", "2|61|00|1", "2|61626364|00|1", "2|é|00|1"]
)
def test_a_cookie_of_another_form_marks_no_browser(text):
    assert browser_of(text) is None
