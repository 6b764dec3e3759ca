"""Sessions and tries are bounded in number and in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.dashboard.sessions import MOST_SESSIONS, MOST_TRIES, SESSION_SECONDS, TRY_SECONDS, Sessions, Tries


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_its_tenants_until_it_is_closed() -> None:
    sessions = Sessions()
    token, other = sessions.open("one"), sessions.open("two")
    assert (sessions.tenant_of(token), sessions.tenant_of(other)) == ("one", "two")
    sessions.close(token)
    assert sessions.tenant_of(token) is None
    assert sessions.tenant_of(other) == "two"


def test_no_token_but_a_sessions_own_opens_anything() -> None:
    sessions = Sessions()
    token = sessions.open("one")
    assert len(token) >= 43
    assert [sessions.tenant_of(text) for text in ("", token[:-1], token + "x", "ü" * 10)] == [None] * 4


def test_a_session_ends_with_its_time() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    token = sessions.open("one")
    clock.now += SESSION_SECONDS - 1
    assert sessions.tenant_of(token) == "one"
    clock.now += 2
    assert sessions.tenant_of(token) is None


def test_the_oldest_session_makes_room() -> None:
    sessions = Sessions()
    tokens = [sessions.open(str(number)) for number in range(MOST_SESSIONS + 1)]
    assert sessions.tenant_of(tokens[0]) is None
    assert sessions.tenant_of(tokens[1]) == "1"


def test_after_so_many_wrong_keys_an_address_waits_and_others_do_not() -> None:
    clock = Clock()
    tries = Tries(clock)
    for _ in range(MOST_TRIES):
        assert tries.wait_seconds("10.0.0.1") == 0
        tries.wrong("10.0.0.1")
    assert tries.wait_seconds("10.0.0.1") == TRY_SECONDS
    assert tries.wait_seconds("10.0.0.2") == 0
    clock.now += TRY_SECONDS
    assert tries.wait_seconds("10.0.0.1") == 0


def test_a_right_key_makes_good() -> None:
    tries = Tries(Clock())
    for _ in range(MOST_TRIES):
        tries.wrong("10.0.0.1")
    tries.right("10.0.0.1")
    assert tries.wait_seconds("10.0.0.1") == 0


@given(st.lists(st.floats(0, 30), max_size=80))
def test_within_any_minute_no_more_tries_than_allowed(pauses: list[float]) -> None:
    clock = Clock()
    tries, tried = Tries(clock), []
    for pause in pauses:
        clock.now += pause
        if not tries.wait_seconds("a"):
            tries.wrong("a")
            tried.append(clock.now)
    for moment in tried:
        assert sum(moment <= other < moment + TRY_SECONDS - 1e-6 for other in tried) <= MOST_TRIES
