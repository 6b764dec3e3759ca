from __future__ import annotations

import pytest

from kakeya_ops.drill.catalogue import Claim
from kakeya_ops.drill.claims import CLAIM_SECONDS, make_up
from kakeya_ops.serving.card_book import CardBook
from kakeya_ops.wire.cards import Card
from serving.running import make_cache

TRUE = make_cache("victim").card().model_copy(update={"runtime": {"mlx": "9", "backend": "cpu"}})
OWN = make_cache("head").card()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> CardBook:
    book = CardBook(lambda: OWN, clock)
    book.merge([TRUE])
    return book


def later(seconds: float) -> Card:
    return TRUE.model_copy(update={"issued_at": TRUE.issued_at + seconds})


@pytest.mark.parametrize("claim", ["unhealthy", "expired", "other identity", "other arithmetic"])
def test_a_made_up_card_counts_until_it_is_taken_back(book: CardBook, claim: Claim) -> None:
    made_up = make_up(TRUE, claim)
    book.merge(made_up.told)
    book.merge([later(CLAIM_SECONDS - 0.1)])
    card = book.card("victim")
    if claim == "expired":
        assert card is None
    else:
        assert card is not None
        assert (card.healthy, card.identity, card.runtime) != (TRUE.healthy, TRUE.identity, TRUE.runtime)
    book.merge([made_up.taken_back])
    assert book.card("victim") == TRUE.model_copy(update={"issued_at": made_up.taken_back.issued_at})


@pytest.mark.parametrize("claim", ["unhealthy", "expired", "other identity", "other arithmetic"])
def test_when_nobody_takes_it_back_the_nodes_own_cards_do(book: CardBook, claim: Claim) -> None:
    book.merge(make_up(TRUE, claim).told)
    book.merge([later(CLAIM_SECONDS + 0.1)])
    assert book.card("victim") == later(CLAIM_SECONDS + 0.1)


def test_what_is_taken_back_lasts_until_the_nodes_own_cards_count_again(book: CardBook, clock: Clock) -> None:
    made_up = make_up(TRUE, "unhealthy")
    book.merge([*made_up.told, made_up.taken_back])
    clock.now += CLAIM_SECONDS + 1
    assert book.card("victim") is not None


def test_one_claim_comes_after_another_that_was_taken_back(book: CardBook) -> None:
    first = make_up(TRUE, "unhealthy")
    book.merge([*first.told, first.taken_back])
    book.merge(make_up(later(0.1), "expired").told)
    assert book.card("victim") is None


def test_a_card_of_other_arithmetic_differs_by_name() -> None:
    (told,) = make_up(TRUE, "other arithmetic").told
    assert told.runtime == {"mlx": "0.0.0", "backend": "cpu"}


def test_two_cards_make_a_duplicate_that_takes_nobodys_place(book: CardBook) -> None:
    made_up = make_up(TRUE, "duplicate")
    book.merge(made_up.told)
    assert [conflict.node for conflict in book.conflicts()] == ["victim"]
    assert book.card("victim") == TRUE
    book.merge([made_up.taken_back])
    assert book.conflicts() == ()


def test_a_duplicate_that_nobody_takes_back_is_gone_with_its_card(book: CardBook, clock: Clock) -> None:
    book.merge(make_up(TRUE, "duplicate").told)
    clock.now += TRUE.ttl_seconds
    assert book.conflicts() == ()
