"""The book of admitted prompts."""

from __future__ import annotations

import threading

import pytest

from engine_bench import prompt, throw
from kakeya_ops.engine.admission import Admitted
from kakeya_ops.engine.prefill import PrefillTask
from kakeya_ops.engine.rate import PrefillRate
from kakeya_ops.errors import EngineBusy


def task(tokens: int = 10) -> PrefillTask:
    return PrefillTask(prompt(tokens), tokens, lambda cache: None, throw)


def rate(tokens_per_second: float) -> PrefillRate:
    measured = PrefillRate()
    measured.observe(1, 1 / tokens_per_second)
    return measured


def test_each_leaves_once() -> None:
    admitted, one, other = Admitted(2, PrefillRate()), task(), task()
    admitted.enter(one)
    admitted.enter(other)
    assert admitted.present() == (one, other)
    assert admitted.leave(one)
    assert not admitted.leave(one)
    assert admitted.present() == (other,)
    assert len(admitted) == 1


def test_who_comes_too_many_hears_how_long_the_others_take() -> None:
    admitted = Admitted(2, rate(10.0))
    admitted.enter(task(300))
    admitted.enter(task(100))
    with pytest.raises(EngineBusy) as refused:
        admitted.enter(task())
    assert refused.value.retry_after_seconds == pytest.approx(40.0)
    assert len(admitted) == 2


def test_nobody_is_told_to_come_back_at_once() -> None:
    admitted = Admitted(0, PrefillRate())
    with pytest.raises(EngineBusy) as refused:
        admitted.enter(task())
    assert refused.value.retry_after_seconds == 1.0


def test_the_queue_gets_shorter_as_work_is_done() -> None:
    admitted, one = Admitted(2, rate(10.0)), task(300)
    admitted.enter(one)
    assert admitted.queue_seconds() == pytest.approx(30.0)
    one.position = 290
    assert admitted.queue_seconds() == pytest.approx(1.0)
    admitted.leave(one)
    assert admitted.queue_seconds() == 0.0


def test_nobody_waits_for_what_is_given_up() -> None:
    admitted, one = Admitted(2, rate(10.0)), task(300)
    admitted.enter(one)
    one.cancel()
    assert admitted.queue_seconds() == 0.0


def test_without_a_measured_rate_nothing_is_claimed() -> None:
    admitted = Admitted(1, PrefillRate())
    admitted.enter(task(300))
    assert admitted.queue_seconds() == 0.0


def test_the_limit_holds_when_many_come_at_once() -> None:
    admitted = Admitted(20, PrefillRate())
    refusals: list[EngineBusy] = []

    def come() -> None:
        for _ in range(10):
            try:
                admitted.enter(task())
            except EngineBusy as error:
                refusals.append(error)

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(admitted), len(refusals)) == (20, 20)


def test_what_is_in_the_background_takes_no_place_and_ends_for_whoever_comes() -> None:
    admitted, quiet = Admitted(1, rate(10.0)), task(300)
    quiet.background = True
    admitted.enter(quiet)
    assert admitted.queue_seconds() == 0
    assert not quiet.cancelled
    admitted.enter(task())
    assert quiet.cancelled
    with pytest.raises(EngineBusy):
        admitted.enter(task())
