"""What is made of a loss of one of two; the loss itself is in tests/flows/test_drill.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kakeya_ops.drill.asking import LOCAL, Asked
from kakeya_ops.drill.catalogue import Kind, kind_named
from kakeya_ops.drill.joint import lose_one
from kakeya_ops.drill.lane import Lane
from kakeya_ops.drill.nodes import NodeDoor
from kakeya_ops.drill.report import Result
from kakeya_ops.errors import PeerError, PeerRefused, PeerUnreachable
from kakeya_ops.verify.head_client import Completion
from kakeya_ops.wire.drills import Act, Fault

LOST = {"node": "a", "blocks": 0, "fault": "unreachable"}
BROUGHT = {"node": "b", "blocks": 8, "fault": None}


def kind() -> Kind:
    found = kind_named("one-of-several")
    assert found is not None
    return found


class Door:
    """A node that notes what is armed and tells, one after the other, how many requests have met it."""

    def __init__(self, node: str, *met: int, refusal: PeerError | None = None) -> None:
        self.node = node
        self.armed: list[Fault] = []
        self._met = list(met)
        self._refusal = refusal

    def arm(self, fault: Fault) -> None:
        if self._refusal:
            raise self._refusal
        self.armed.append(fault)

    def disarm(self) -> Any:
        if self._refusal:
            raise self._refusal
        return SimpleNamespace(met=self._met.pop(0) if self._met else 0)


class Told:
    """A head that answers with a receipt of these `sources`, and with `tokens` unless it computes alone."""

    def __init__(self, *sources: dict[str, Any], tokens: tuple[str, ...] = ("t",)) -> None:
        self.asked: list[str | None] = []
        self._sources = list(sources)
        self._tokens = tokens

    def body(self) -> bytes:
        return b"{}"

    def ask(self, body: bytes, modes: frozenset[str], nonce: str, node: str | None = None) -> Asked:
        self.asked.append("local" if modes == LOCAL else node)
        tokens = ("t",) if modes == LOCAL else self._tokens
        receipt = {"request_id": "r", "fallback": None, "remote": {"node": "b", "sources": self._sources}}
        return Asked(Completion("r", 1, "", tokens, ()), receipt, 0.2)


def attempt(told: Told, worker: Door, other: Door | None) -> Result:
    scene = SimpleNamespace(inquirer=told, worker=worker)
    lane = SimpleNamespace(scene=scene, name="a", undisturbed_seconds=0.1, recover=lambda result: result)
    return lose_one(kind(), cast(Lane, lane), cast(NodeDoor, other))


def test_with_one_worker_there_is_nobody_who_could_bring_the_rest() -> None:
    result = attempt(Told(), Door("a"), None)
    assert (result.verdict, "one worker only" in result.detail) == ("skipped", True)


def test_both_are_made_to_hold_it_and_then_deliver_together() -> None:
    told, worker, other = Told(LOST, BROUGHT), Door("a", 1), Door("b")
    result = attempt(told, worker, other)
    assert (result.verdict, result.outcome) == ("safe", "remote")
    assert result.detail == "a failed (unreachable), b brought the rest"
    assert told.asked == ["a", "b", None, "local"]
    assert [fault.act for fault in worker.armed + other.armed] == [Act.CUT, Act.DELAY]


def test_a_worker_that_was_not_asked_is_tried_again_with_more_time() -> None:
    other = Door("b")
    assert attempt(Told(LOST, BROUGHT), Door("a", 0, 2), other).verdict == "safe"
    assert [fault.seconds for fault in other.armed] == [1.0, 2.0]
    assert attempt(Told(LOST, BROUGHT), Door("a"), Door("b")).verdict == "unknown"


@pytest.mark.parametrize("sources", [[], [BROUGHT], [LOST], [{**LOST, "fault": None}, BROUGHT]])
def test_a_receipt_that_does_not_tell_of_it_is_not_safe(sources: list[dict[str, Any]]) -> None:
    assert attempt(Told(*sources), Door("a", 1, 1, 1), Door("b")).verdict == "unknown"


def test_wrong_tokens_have_failed() -> None:
    assert attempt(Told(LOST, BROUGHT, tokens=("u",)), Door("a", 1), Door("b")).verdict == "failed"


@pytest.mark.parametrize(
    ("refusal", "verdict"),
    [(PeerRefused("b", 409, "refused", "takes no part"), "skipped"), (PeerUnreachable("b", "is gone"), "failed")],
)
def test_an_other_that_cannot_be_armed_is_said(refusal: PeerError, verdict: str) -> None:
    assert attempt(Told(), Door("a"), Door("b", refusal=refusal)).verdict == verdict
