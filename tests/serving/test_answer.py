"""One request's events: the receipt before the first token, its place given back once, cancelled at any stage."""

from __future__ import annotations

from typing import Any

import pytest

from kakeya_ops.engine.contract import DecodeRequest, FailedEvent, PrefillEvent, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineDead
from kakeya_ops.serving.answer import Answer
from kakeya_ops.serving.contract import GenerateRequest, PrefixReady
from kakeya_ops.serving.receipts import Receipt
from serving.test_receipts import RECEIPT

REQUEST = GenerateRequest(DecodeRequest("r1", (1, 2, 3), 4), "tenant")


class Kept:
    """A ticket, an ear and a place."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.ends = 0
        self.cancelled = 0
        self.times: list[dict[str, float]] = []
        self.answer = Answer(REQUEST, self.events.append, self.end)

    def end(self) -> None:
        self.ends += 1

    def cancel(self) -> None:
        self.cancelled += 1

    def receipt(self, seconds: dict[str, float]) -> Receipt:
        self.times.append(seconds)
        return RECEIPT


def test_the_receipt_comes_once_and_before_the_first_token() -> None:
    kept = Kept()
    kept.answer.expect(kept.receipt)
    for event in (PrefillEvent(1, 2), TokenEvent(5), TokenEvent(6, "stop")):
        kept.answer.emit(event)
    ready = PrefixReady(RECEIPT.reused_tokens, RECEIPT.digest, RECEIPT.forgotten_tokens)
    assert kept.events == [PrefillEvent(1, 2), ready, TokenEvent(5), TokenEvent(6, "stop")]
    assert kept.times[0]["first_token"] >= 0
    assert kept.ends == 1


def test_it_remembers_when_the_head_itself_had_the_whole_prompt() -> None:
    kept = Kept()
    kept.answer.expect(kept.receipt)
    for event in (PrefillEvent(2, 2, "worker"), PrefillEvent(1, 2)):
        kept.answer.emit(event)
    assert "prefilled" not in kept.answer.seconds
    kept.answer.emit(PrefillEvent(2, 2))
    kept.answer.emit(TokenEvent(5))
    assert 0 <= kept.times[0]["prefilled"] <= kept.times[0]["first_token"]


@pytest.mark.parametrize("last", [TokenEvent(1, "length"), FailedEvent(EngineDead("x"))])
def test_its_place_is_given_back_once(last: Any) -> None:
    kept = Kept()
    kept.answer.emit(last)
    kept.answer.emit(FailedEvent(EngineDead("again")))
    kept.answer.end()
    assert kept.ends == 1


def test_a_failure_before_the_first_token_has_no_receipt() -> None:
    kept = Kept()
    kept.answer.expect(kept.receipt)
    kept.answer.fail(EngineDead("x"))
    assert [type(event) for event in kept.events] == [FailedEvent]
    assert (kept.times, kept.ends) == ([], 1)


def test_a_listener_that_fails_does_not_keep_the_place() -> None:
    kept = Kept()

    def fail(event: object) -> None:
        raise RuntimeError("the loop is closed")

    answer = Answer(REQUEST, fail, kept.end)
    with pytest.raises(RuntimeError):
        answer.emit(TokenEvent(1, "stop"))
    assert kept.ends == 1


def test_cancelled_while_it_waits_for_its_turn_it_ends_at_once() -> None:
    kept = Kept()
    kept.answer.cancel()
    kept.answer.cancel()
    assert [type(event.error) for event in kept.events] == [Cancelled]
    assert kept.ends == 1
    assert not kept.answer.begin()
    kept.answer.wait()


def test_only_one_takes_it_up() -> None:
    kept = Kept()
    assert kept.answer.begin()
    assert not kept.answer.begin()
    kept.answer.cancel()
    assert (kept.events, kept.ends) == ([], 0)


def test_cancelled_before_the_engine_has_it_it_is_cancelled_there_too() -> None:
    kept = Kept()
    assert kept.answer.begin()
    kept.answer.cancel()
    assert kept.answer.stop.stopped
    kept.answer.follow(kept)
    assert kept.cancelled == 1


def test_cancelled_while_the_engine_has_it() -> None:
    kept = Kept()
    assert kept.answer.begin()
    kept.answer.follow(kept)
    assert kept.cancelled == 0
    kept.answer.cancel()
    kept.answer.cancel()
    assert kept.cancelled == 2
    assert kept.answer.stop.stopped
