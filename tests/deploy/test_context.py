"""The way back is walked from its end, and nobody is kept from it."""

from __future__ import annotations

import pytest

from kakeya_ops.deploy.context import HostContext, unseen_transfer
from kakeya_ops.deploy.errors import Interrupted
from kakeya_ops.errors import EnvironmentFault


def test_effects_are_taken_back_last_first_and_each_once(context: HostContext) -> None:
    order: list[str] = []
    context.undo("one", lambda: order.append("one"))
    context.undo("two", lambda: order.append("two"))
    context.undo("one", lambda: order.append("one, noted later"))
    assert context.put_back() == []
    assert order == ["two", "one"]
    assert context.put_back() == []


def test_what_cannot_be_taken_back_does_not_keep_the_rest(context: HostContext) -> None:
    order: list[str] = []
    context.undo("one", lambda: order.append("one"))
    context.undo("two", lambda: (_ for _ in ()).throw(EnvironmentFault("no way")))  # type: ignore[arg-type]
    assert [error.message for error in context.put_back()] == ["no way"]
    assert order == ["one"]


def test_giving_up_ends_waiting_but_not_the_way_back(context: HostContext) -> None:
    context.check()
    context.cancelled.set()
    for wait in (context.check, lambda: context.pause(60)):
        with pytest.raises(Interrupted):
            wait()
    context.undo("pause", lambda: context.pause(0.001))
    assert context.put_back() == []


def test_a_transfer_may_go_unseen() -> None:
    with unseen_transfer("model", 10) as show:
        show(10)
