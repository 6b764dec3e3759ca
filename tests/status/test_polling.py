from __future__ import annotations

import threading

from kakeya_ops.errors import PeerUnreachable
from kakeya_ops.observe.state import Health
from kakeya_ops.status.asking import ApiAnswer, PeerAnswer
from kakeya_ops.status.board import Board, Heard
from kakeya_ops.status.polling import Poll, Polling, cards_of_api, cards_of_peer
from status.samples import AT, NOW, card


def test_what_went_wrong_is_written_down_without_the_nodes_name() -> None:
    board = Board({"allens": Heard()})

    def ask() -> None:
        raise PeerUnreachable("allens", "no route")

    Poll("allens", "peer", ask, 1.0).once(board)
    look = board.read()["allens"].peer
    assert (look.error, look.looks, look.began_at) == ("no route", 1, None)


def test_a_bug_of_ours_is_told_and_ends_no_thread() -> None:
    board = Board({"allens": Heard()})
    Poll("allens", "peer", lambda: 1 / 0, 1.0).once(board)
    assert board.read()["allens"].peer.error is not None
    assert "ZeroDivisionError" in str(board.read()["allens"].peer.error)


def test_one_that_hangs_holds_up_nobody() -> None:
    board, hang = Board({"allens": Heard(), "boris": Heard()}), threading.Event()
    answer = PeerAnswer(Health(True), None)
    polls = [Poll("allens", "peer", lambda: hang.wait(20), 0.01), Poll("boris", "peer", lambda: answer, 0.01)]
    polling = Polling(polls, board)
    polling.start()
    try:
        assert board.wait_until(lambda heard: heard["boris"].peer.looks >= 3, 10)
        heard = board.read()
        assert heard["allens"].peer.looks == 0
        assert heard["allens"].peer.began_at is not None
        polling.stop(0.01)
    finally:
        hang.set()
        polling.stop(10)
    looks = board.read()["boris"].peer.looks
    assert not board.wait_until(lambda heard: heard["boris"].peer.looks > looks, 0.05)


def test_cards_that_are_passed_on_are_as_old_as_their_clocks_say_and_no_older_than_they_may_be() -> None:
    others = [card("a", issued_at=AT - 4), card("b", issued_at=AT + 3600), card("c", issued_at=AT - 3600)]
    told = cards_of_peer("head", PeerAnswer(Health(True), card("head", "head"), tuple(others)), NOW)
    assert [(one.card.node, one.at, one.by) for one in told] == [
        ("head", NOW, None),
        ("a", NOW - 4, "head"),
        ("b", NOW, "head"),
        ("c", NOW - 15, "head"),
    ]


def test_without_a_card_of_its_own_a_node_passes_on_none() -> None:
    assert cards_of_peer("head", PeerAnswer(Health(True), None), NOW) == []


def test_a_heads_api_tells_its_card_too() -> None:
    own = card("head", "head", identity_document=None, runtime=None)
    said = own.to_json() | {"model": "tiny", "tenant": "t"}
    del said["endpoints"], said["ttl_seconds"], said["role"]
    [told] = cards_of_api(ApiAnswer(said, {}, (), {}), NOW)
    assert (told.card, told.at, told.by) == (own, NOW, None)
    assert cards_of_api(ApiAnswer({"node": "head"}, {}, (), {}), NOW) == []
