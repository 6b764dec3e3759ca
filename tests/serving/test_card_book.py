from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.serving.card_book import ALIVE_SECONDS, CONFLICT_SECONDS, MOST_NODES, CardBook, DuplicateNode
from kakeya_ops.wire.cards import Card
from serving.running import card_endpoint, make_cache

BASE = make_cache("me").card()
TTL = BASE.ttl_seconds


def card(node: str = "a", *, epoch: int = 1, issued_at: float = 100.0, instance: str = "a", port: int = 1) -> Card:
    return BASE.model_copy(
        update={
            "node": node,
            "epoch": epoch,
            "issued_at": issued_at,
            "instance": (instance * 32)[:32],
            "endpoints": (card_endpoint(port),),
        }
    )


class Book:
    """A card book whose clock a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.own = card("me", epoch=50, instance="0", port=9)
        self.book = CardBook(lambda: self.own, lambda: self.now)

    def merge(self, *cards: Card) -> Book:
        self.book.merge(cards)
        return self

    def issued(self, node: str = "a") -> float | None:
        found = self.book.card(node)
        return found.issued_at if found else None


def test_the_newest_card_counts_whatever_the_order() -> None:
    book = Book().merge(card(issued_at=100.0), card(issued_at=104.0), card(issued_at=102.0))
    assert book.issued() == 104.0


def test_a_restart_counts_over_every_card_from_before_whatever_its_clock_says() -> None:
    book = Book().merge(card(epoch=1, issued_at=900.0), card(epoch=2, issued_at=5.0, instance="b"))
    assert book.issued() == 5.0
    assert book.merge(card(epoch=1, issued_at=901.0)).issued() == 5.0
    assert not book.book.conflicts()


@given(st.permutations([card(epoch=e, issued_at=i, instance=str(e)) for e in (1, 2, 3) for i in (10.0, 11.0, 12.0)]))
def test_the_order_of_arrival_does_not_matter(cards: list[Card]) -> None:
    found = Book().merge(*cards).book.card("a")
    assert found is not None
    assert (found.epoch, found.issued_at) == (3, 12.0)


def test_a_card_counts_for_its_time_from_when_it_was_seen_here() -> None:
    book = Book().merge(card(issued_at=1e9))
    book.now += TTL - 0.1
    assert book.issued() == 1e9
    book.now += 0.2
    assert book.issued() is None


def test_passing_a_card_round_does_not_make_it_younger() -> None:
    book = Book().merge(card())
    for _ in range(10):
        book.now += TTL / 4
        book.merge(card())
    assert book.issued() is None
    assert book.merge(card(issued_at=101.0)).issued() == 101.0


def test_the_own_card_is_never_replaced() -> None:
    book = Book().merge(card("me", epoch=99, issued_at=1e9, instance="f"))
    assert book.book.fresh()["me"] is book.own


def test_the_number_of_nodes_is_bounded() -> None:
    book = Book().merge(*(card(f"n{i}") for i in range(MOST_NODES + 50)))
    assert len(book.book.fresh()) == MOST_NODES


def alternate(book: Book, cards: Iterable[tuple[Card, Card]]) -> None:
    for first, second in cards:
        book.merge(first, second)
        book.now += 2.0


def test_two_living_nodes_with_one_id_are_told_with_both_addresses() -> None:
    book = Book()
    times = [100.0 + 2 * i for i in range(5)]
    alternate(book, ((card(issued_at=t, port=1), card(epoch=2, issued_at=t, instance="b", port=2)) for t in times))
    (conflict,) = book.book.conflicts()
    assert conflict.node == "a"
    with pytest.raises(DuplicateNode) as caught:
        book.book.check("a")
    assert "two nodes call themselves a" in caught.value.message
    assert {"127.0.0.1:1", "127.0.0.1:2"} == {claim.address for claim in conflict.claims}
    assert all(claim.instance[:8] in caught.value.message for claim in conflict.claims)
    book.book.check("another")


def test_clocks_that_differ_by_hours_change_nothing_about_it() -> None:
    book = Book()
    times = [100.0 + 2 * i for i in range(5)]
    alternate(book, ((card(issued_at=t + 7200), card(epoch=2, issued_at=t, instance="b")) for t in times))
    assert book.book.conflicts()


def test_a_conflict_is_forgotten_when_one_of_the_two_is_gone() -> None:
    book = Book()
    times = [100.0 + 2 * i for i in range(5)]
    alternate(book, ((card(issued_at=t), card(epoch=2, issued_at=t, instance="b")) for t in times))
    for i in range(20):
        book.now += 2.0
        book.merge(card(epoch=2, issued_at=110.0 + 2 * i, instance="b"), card(issued_at=108.0))
    assert book.now > 1010.0 + CONFLICT_SECONDS
    assert not book.book.conflicts()


def test_a_conflict_lasts_as_long_as_the_card_that_showed_it_would_count() -> None:
    book = Book()
    rival = card(epoch=1, issued_at=50.0, instance="b")
    book.merge(card(epoch=2), rival, rival.model_copy(update={"issued_at": 60.0}))
    book.now += TTL - 0.1
    assert book.book.conflicts()
    book.now += 0.2
    assert not book.book.conflicts()


def test_a_rival_whose_last_card_counts_no_more_is_gone_at_once() -> None:
    book = Book()
    rival = card(epoch=1, issued_at=50.0, instance="b")
    book.merge(card(epoch=2), rival, rival.model_copy(update={"issued_at": 60.0}))
    assert book.book.conflicts()
    book.merge(rival.model_copy(update={"issued_at": 61.0, "ttl_seconds": 0.0}))
    assert not book.book.conflicts()


def test_last_cards_of_a_node_that_was_restarted_are_no_conflict() -> None:
    book = Book().merge(card(issued_at=100.0), card(epoch=2, issued_at=110.0, instance="b"))
    book.merge(*(card(issued_at=100.0 + late) for late in (0.5, 1.5, ALIVE_SECONDS)))
    assert not book.book.conflicts()


def test_another_node_with_the_own_id_is_told() -> None:
    book = Book()
    for i in range(5):
        book.merge(card("me", epoch=10, issued_at=100.0 + 2 * i, instance="f", port=7))
    (conflict,) = book.book.conflicts()
    assert {claim.address for claim in conflict.claims} == {"127.0.0.1:7", "127.0.0.1:9"}


def test_the_own_last_cards_from_before_a_restart_are_no_conflict() -> None:
    book = Book()
    book.merge(*(card("me", epoch=10, issued_at=100.0 + late, instance="f") for late in (0.0, 1.0, 2.0)))
    assert not book.book.conflicts()


def test_a_node_whose_clock_was_set_back_is_found_again() -> None:
    book = Book().merge(card(epoch=9, issued_at=900.0))
    book.now += TTL + 1
    for i in range(5):
        book.now += 2.0
        book.merge(card(epoch=2, issued_at=20.0 + 2 * i, instance="b"))
    assert book.issued() == 28.0
    assert not book.book.conflicts()


def test_many_instances_are_remembered_only_in_part() -> None:
    book = Book().merge(*(card(epoch=i, issued_at=float(i), instance=f"{i:03d}") for i in range(1, 100)))
    assert book.issued() == 99.0
