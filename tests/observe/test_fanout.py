"""All hosts at once, each with an outcome of its own."""

from __future__ import annotations

import threading

import pytest

from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.observe.fanout import abandoned_when_interrupted, run_on


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


def test_whoever_is_interrupted_waits_for_no_host() -> None:
    answered, asked = threading.Event(), threading.Event()

    def ask() -> bool:
        asked.set()
        return answered.wait(60)

    with pytest.raises(KeyboardInterrupt), abandoned_when_interrupted(1) as threads:  # noqa: PT012
        asking = threads.submit(ask)
        waiting = threads.submit(ask)
        assert asked.wait(60)
        raise KeyboardInterrupt
    assert not asking.done()
    assert waiting.cancelled()
    answered.set()
    assert asking.result(60)


def test_any_other_end_waits_for_all() -> None:
    with pytest.raises(ValueError, match="broken"), abandoned_when_interrupted(1) as threads:  # noqa: PT012
        last = threads.submit(lambda: "done")
        raise ValueError("broken")
    assert last.done()
