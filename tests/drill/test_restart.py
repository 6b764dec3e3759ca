from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kakeya_ops.drill import restart
from kakeya_ops.drill.asking import LOCAL, Asked, Inquirer
from kakeya_ops.drill.catalogue import kind_named
from kakeya_ops.drill.nodes import NodeDoor
from kakeya_ops.drill.report import Result
from kakeya_ops.drill.restart import restart_head
from kakeya_ops.errors import PeerRefused, PeerUnreachable
from kakeya_ops.verify.head_client import Completion

KIND = kind_named("head-restart")
GONE = PeerUnreachable("http://h", "the head cannot be reached")


class Told:
    """A head that has the `epochs` it tells one after the other, and answers at first with what `first` does."""

    def __init__(
        self, first: Callable[[], Any], epochs: list[int], tokens: tuple[str, ...] = ("a",), late: int = 0
    ) -> None:
        self.client = self
        self._first = first
        self._epochs = epochs
        self._tokens = tokens
        self._asked = 0
        self._late = late

    def network(self) -> dict[str, Any]:
        epoch = self._epochs.pop(0) if len(self._epochs) > 1 else self._epochs[0]
        if epoch == 0:
            raise GONE
        return {"head": {"epoch": epoch}}

    def node(self, name: str) -> dict[str, Any]:
        return {"usable": True}

    def body(self, max_tokens: int = 16) -> bytes:
        return b"{}"

    def ask(self, body: bytes, modes: frozenset[str], nonce: str, node: str | None = None) -> Asked:
        self._asked += 1
        if self._asked == 1:
            return cast(Asked, self._first())
        tokens = ("a",) if modes == LOCAL else self._tokens
        receipt: dict[str, Any] = {"request_id": "r", "remote": {"node": "w"}}
        if modes != LOCAL and self._late > 0:
            self._late -= 1
            receipt |= {"remote": None, "fallback": {"reason": "timeout", "message": "late"}}
        return Asked(Completion("r", 1, "", tokens, ()), receipt, 0.1)

    def wait(self, condition: Callable[[], bool], seconds: float) -> float | None:
        return 1.0 if any(condition() for _ in range(5)) else None


def fail() -> None:
    raise GONE


def try_it(told: Told, arm: Callable[[Any], None] = lambda fault: None) -> Result:
    assert KIND is not None
    return restart_head(KIND, cast(Inquirer, told), cast(NodeDoor, SimpleNamespace(arm=arm)), "w")


def test_a_head_that_comes_back_and_serves_is_safe() -> None:
    result = try_it(Told(fail, [1, 0, 1, 2]))
    assert (result.verdict, result.outcome, result.lost_seconds) == ("safe", "remote", 1.0)
    assert "the request under way ended with" in result.detail


def test_a_machine_that_is_late_at_first_is_asked_again() -> None:
    assert try_it(Told(fail, [1, 0, 1, 2], late=2)).verdict == "safe"
    assert try_it(Told(fail, [1, 0, 1, 2], late=3)).verdict == "unknown"


def test_a_request_that_was_answered_before_is_fine_too() -> None:
    assert "was answered before" in try_it(Told(lambda: None, [1, 2])).detail


def test_a_head_that_does_not_come_back_has_failed() -> None:
    result = try_it(Told(fail, [1]))
    assert (result.verdict, result.outcome) == ("failed", None)
    assert "did not come back" in result.detail


def test_wrong_tokens_afterwards_have_failed() -> None:
    assert try_it(Told(fail, [1, 2], tokens=("b",))).verdict == "failed"


def test_a_head_that_nothing_revives_is_skipped() -> None:
    def arm(fault: Any) -> None:
        raise PeerRefused("head", 409, "refused", "nothing would start this process again")

    result = try_it(Told(fail, [1]), arm)
    assert (result.verdict, result.detail) == ("skipped", "head: nothing would start this process again")


def test_a_head_that_cannot_be_reached_from_here_has_failed() -> None:
    def arm(fault: Any) -> None:
        raise PeerUnreachable("head", "has no endpoint")

    assert try_it(Told(fail, [1]), arm).verdict == "failed"


def test_whoever_is_left_waiting_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "_END_SECONDS", 0.05)
    over = threading.Event()
    threading.Timer(0.5, over.set).start()
    result = try_it(Told(lambda: over.wait(10), [1, 2]))
    assert (result.verdict, "was not told" in result.detail) == ("failed", True)
