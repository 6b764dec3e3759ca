from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.status.history import KEPT, History
from kakeya_ops.wire.cards import Card
from status.samples import AT, NOW, card


def after(seconds: float, tokens: int, **changes: object) -> Card:
    return card("allens", issued_at=AT + seconds, counters={"tokens_computed": tokens}, **changes)


def test_a_speed_is_what_lies_between_two_cards() -> None:
    history = History()
    assert history.take(after(0, 100), NOW)
    assert history.rates == ()
    assert history.take(after(2, 300), NOW + 2)
    assert history.rates == (100.0,)


def test_a_heads_own_tokens_count_too() -> None:
    history = History()
    for seconds, tokens in ((0, 0), (1, 50)):
        history.take(card("head", "head", issued_at=AT + seconds, counters={"tokens_computed_local": tokens}), NOW)
    assert history.rates == (50.0,)


def test_cards_that_come_late_or_again_are_no_news() -> None:
    history = History()
    history.take(after(2, 300), NOW)
    assert not history.take(after(0, 100), NOW + 1, own=False)
    assert history.take(after(2.1, 310), NOW + 1)
    assert history.rates == ()


def test_a_restart_is_noticed_and_no_speed_is_told_across_it() -> None:
    history = History()
    history.take(after(0, 5000), NOW)
    history.take(after(1, 6000), NOW + 1)
    assert history.take(after(2, 10, instance="cd" * 16, epoch=int(AT * 1e9)), NOW + 2)
    assert history.rates == ()
    assert (history.restarts, history.restarted_at) == (1, NOW + 2)
    # The card of the process before, passed on by somebody who has not heard yet.
    assert not history.take(after(1, 6000), NOW + 3, own=False)
    assert history.restarts == 1


def test_a_clock_that_was_set_back_does_not_hide_a_restart() -> None:
    history = History()
    history.take(after(0, 5000), NOW)
    assert history.take(after(-3600, 0, instance="cd" * 16, epoch=1), NOW + 2)
    assert history.restarts == 1


def test_a_clock_that_was_set_back_holds_up_neither_cards_nor_speeds() -> None:
    history = History()
    for seconds, tokens in ((0, 0), (1, 100), (-3600, 200), (-3599, 300)):
        assert history.take(after(seconds, tokens), NOW)
    assert history.rates == (100.0, 100.0)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(0, 10**9)), max_size=60))
def test_speeds_are_never_negative_and_bounded_in_number(cards: list[tuple[float, int]]) -> None:
    history = History()
    for seconds, tokens in cards:
        history.take(after(seconds, tokens), NOW)
    assert all(rate >= 0 for rate in history.rates)
    assert len(history.rates) <= KEPT
