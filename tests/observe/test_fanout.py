"""All hosts at once, each with an outcome of its own."""

from __future__ import annotations

import threading

import pytest

from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.observe.fanout import run_on


def test_hosts_are_worked_on_at_once_and_told_in_order() -> None:
    together = threading.Barrier(3)
    outcomes = run_on(["c", "a", "b"], lambda name: (together.wait(10), name)[1], 3)
    assert list(outcomes.items()) == [("c", "c"), ("a", "a"), ("b", "b")]


def test_no_more_than_wanted_at_once() -> None:
    lock, at_once, most = threading.Lock(), 0, 0

    def work(name: str) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        threading.Event().wait(0.01)
        with lock:
            at_once -= 1

    run_on(map(str, range(8)), work, 2)
    assert most <= 2


def test_one_failure_takes_nothing_from_the_others() -> None:
    fault = EnvironmentFault("gone")

    def work(name: str) -> str:
        if name == "a":
            raise fault
        return name

    assert run_on(["a", "b"], work, 2) == {"a": fault, "b": "b"}


def test_a_bug_is_not_an_outcome() -> None:
    with pytest.raises(ZeroDivisionError):
        run_on(["a"], lambda name: 1 // 0, 1)


def test_nobody_is_nothing() -> None:
    assert run_on([], str, 4) == {}
