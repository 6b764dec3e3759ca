from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import SignatureRejected
from kakeya_ops.wire.nonces import WINDOW_SECONDS, NonceBook

NOW = 1_000_000.0


def test_a_nonce_is_admitted_once() -> None:
    book = NonceBook()
    book.admit("a", NOW, NOW)
    book.admit("b", NOW, NOW)
    with pytest.raises(SignatureRejected, match="replayed"):
        book.admit("a", NOW, NOW + 1)


@pytest.mark.parametrize("skew_seconds", [-60.0, -59.0, 0.0, 59.0, 60.0])
def test_clocks_may_be_a_minute_apart(skew_seconds: float) -> None:
    NonceBook().admit("a", NOW + skew_seconds, NOW)


@pytest.mark.parametrize("skew_seconds", [-1e9, -60.1, 60.1, 1e9])
def test_what_is_older_or_from_the_future_is_stale(skew_seconds: float) -> None:
    book = NonceBook()
    with pytest.raises(SignatureRejected, match="stale"):
        book.admit("a", NOW + skew_seconds, NOW)
    assert len(book) == 0


@pytest.mark.parametrize(
    ("skew_seconds", "told"), [(-90.25, "90.2 seconds behind"), (3600.0, "3600.0 seconds ahead of")]
)
def test_clocks_that_differ_too_much_are_told_by_how_much(skew_seconds: float, told: str) -> None:
    with pytest.raises(SignatureRejected, match=f"stale, the sender's clock is {told} the receiver's") as caught:
        NonceBook().admit("a", NOW + skew_seconds, NOW)
    assert caught.value.hint is not None
    assert "time synchronisation" in caught.value.hint
    assert "60 seconds" in caught.value.hint


def test_a_full_book_refuses_instead_of_forgetting() -> None:
    book = NonceBook(limit=2)
    book.admit("a", NOW, NOW)
    book.admit("b", NOW + 30, NOW)
    with pytest.raises(SignatureRejected, match="too many"):
        book.admit("c", NOW, NOW)
    with pytest.raises(SignatureRejected, match="replayed"):
        book.admit("a", NOW, NOW)
    book.admit("c", NOW + 61, NOW + 61)
    assert len(book) == 2
    with pytest.raises(SignatureRejected, match="replayed"):
        book.admit("b", NOW + 30, NOW + 61)


def test_a_clock_that_is_set_back_makes_nothing_fresh_again() -> None:
    book = NonceBook()
    book.admit("a", NOW, NOW)
    book.admit("b", NOW + 3600, NOW + 3600)
    with pytest.raises(SignatureRejected, match="stale"):
        book.admit("a", NOW, NOW)
    book.admit("c", NOW + 1, NOW)


def test_what_was_sent_before_the_process_started_is_stale() -> None:
    book = NonceBook(opened_at=NOW)
    with pytest.raises(SignatureRejected, match="stale, from before the receiver started") as caught:
        book.admit("a", NOW - 1, NOW + 1)
    assert caught.value.hint is None
    book.admit("b", NOW + 1, NOW + 1)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(-90, 90), st.integers(-40, 100)), max_size=40))
def test_no_message_is_ever_admitted_twice(steps: list[tuple[int, int, int]]) -> None:
    """Messages, each with a time of its own, offered again and again while the clock wanders."""
    book, now, admitted = NonceBook(limit=5), NOW, set()
    times: dict[int, float] = {}
    for message, skew_seconds, passed_seconds in steps:
        now += passed_seconds
        time_seconds = times.setdefault(message, now + skew_seconds)
        try:
            book.admit(str(message), time_seconds, now)
        except SignatureRejected:
            continue
        assert message not in admitted
        assert abs(now - time_seconds) <= WINDOW_SECONDS
        admitted.add(message)
        assert len(book) <= 5


def test_of_many_threads_one_gets_it_in() -> None:
    book = NonceBook()

    def admit(_: int) -> bool:
        try:
            book.admit("a", NOW, NOW)
        except SignatureRejected:
            return False
        return True

    with ThreadPoolExecutor(8) as executor:
        assert sum(executor.map(admit, range(64))) == 1
