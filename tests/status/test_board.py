from __future__ import annotations

import threading

from kakeya_ops.status.board import Board, Heard, Look, Told
from status.samples import AT, NOW, card


def test_a_look_keeps_what_the_last_good_one_brought() -> None:
    look = Look[str]().begin(1.0).succeed("well").begin(3.0).fail("no route")
    assert (look.value, look.error, look.looks, look.began_at) == ("well", "no route", 2, None)
    assert look.current(4.0, 5.0) is None


def test_what_a_look_brought_is_of_the_past_once_the_next_takes_longer_than_it_may() -> None:
    look = Look[str]().succeed("well").begin(1.0)
    assert (look.fault(4.0, 5.0), look.current(4.0, 5.0)) == (None, "well")
    assert (look.fault(7.0, 5.0), look.current(7.0, 5.0)) == ("no answer for 6 s", None)
    assert look.succeed("better").current(99.0, 5.0) == "better"


def test_cards_are_kept_by_their_nodes_and_strangers_are_not_listed() -> None:
    board = Board({"head": Heard(), "allens": Heard()})
    told = [Told(card("allens"), NOW - 1, "head"), Told(card("stranger"), NOW, "head")]
    board.change("head", lambda heard: heard, told)
    assert board.read()["allens"].told == told[0]
    assert set(board.read()) == {"head", "allens"}


def test_a_card_does_not_grow_younger_by_being_passed_round() -> None:
    board = Board({"allens": Heard()})
    for at, by in ((NOW, "head"), (NOW + 5, "vault")):
        board.change("allens", lambda heard: heard, [Told(card("allens"), at, by)])
    told = board.read()["allens"].told
    assert told is not None
    assert (told.at, told.by) == (NOW, "head")
    newer = card("allens", issued_at=AT + 5)
    board.change("allens", lambda heard: heard, [Told(newer, NOW + 5, None)])
    told = board.read()["allens"].told
    assert told is not None
    assert (told.at, told.by) == (NOW + 5, None)


def test_whoever_waits_is_told_of_a_change() -> None:
    board = Board({"head": Heard()})
    thread = threading.Thread(
        target=board.change, args=("head", lambda heard: heard.with_look("peer", Look().fail("no")))
    )
    thread.start()
    assert board.wait_until(lambda heard: heard["head"].peer.looks == 1, 10)
    thread.join()
    assert not board.wait_until(lambda heard: heard["head"].peer.looks == 2, 0.01)
