"""Ways in both directions. What becomes of them in a status is in `test_judging`."""

from __future__ import annotations

from kakeya_ops.status.reaching import judge_reach
from status.samples import AT, answering, api, card, seen_by_head, whole


def test_a_link_that_works_is_told_with_its_measures() -> None:
    reach = judge_reach("head", api({"allens": seen_by_head()}), "allens", whole())
    assert (reach.to_node, reach.to_head, reach.error, reach.port) == (True, None, None, 53051)


def test_old_cards_of_each_other_prove_no_way_back() -> None:
    down = api({"allens": seen_by_head("no route", issued_at=AT - 10)})
    old = whole(allens=answering(card("allens"), card("head", "head", issued_at=AT - 10)))
    assert judge_reach("head", down, "allens", old).to_head is False


def test_a_new_card_of_the_head_at_the_node_proves_one() -> None:
    down = api({"allens": seen_by_head("no route", issued_at=AT - 10)})
    new = whole(allens=answering(card("allens"), card("head", "head", issued_at=AT - 1)))
    assert judge_reach("head", down, "allens", new).one_way


def test_a_node_that_the_head_does_not_know_is_not_reached() -> None:
    reach = judge_reach("head", api({}), "allens", whole())
    assert (reach.to_node, reach.error) == (False, None)
