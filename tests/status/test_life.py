"""Whether a node is alive, by itself or by others. The rest is in `test_judging`."""

from __future__ import annotations

from kakeya_ops.status.asking import ApiAnswer
from kakeya_ops.status.board import Heard, Look, Told
from kakeya_ops.status.life import LIVELY_SECONDS, PATIENCE_SECONDS, judge_life
from status.samples import NOW, answering, card, silent, with_api


def test_an_answer_is_awaited_with_patience() -> None:
    asked = Heard(peer=Look(began_at=NOW))
    assert judge_life(asked, NOW + PATIENCE_SECONDS).state == "asking"
    assert judge_life(asked, NOW + PATIENCE_SECONDS + 1).state == "unreachable"


def test_its_own_answer_counts_most() -> None:
    assert judge_life(answering(card("allens")), NOW).state == "healthy"


def test_a_card_that_is_passed_on_says_that_it_is_ill() -> None:
    told = Told(card("allens", healthy=False, reason="stuck"), NOW, "head")
    life = judge_life(silent("no route", told, no_way=True), NOW + LIVELY_SECONDS / 2)
    assert (life.state, life.reason) == ("failing", "stuck")


def test_its_own_last_card_proves_nothing() -> None:
    assert judge_life(silent("no route", Told(card("allens"), NOW, None), no_way=True), NOW).state == "unreachable"


def test_what_others_say_does_not_count_of_a_node_whose_machine_was_reached() -> None:
    told = Told(card("allens"), NOW, "head")
    assert judge_life(silent("refused", told), NOW).state == "unreachable"


def test_a_head_without_a_peer_port_is_asked_at_its_api() -> None:
    for said, state in (
        ({"healthy": True}, "healthy"),
        ({"healthy": False, "reason": "stuck"}, "failing"),
        ({}, "failing"),
    ):
        head = with_api(silent("no endpoint", no_way=True), ApiAnswer(said, {}, (), {}))
        assert judge_life(head, NOW).state == state
