"""Pauses after failures, on a clock of the test's own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.serving.standing import DOUBT_HALF_LIFE_SECONDS, LONGEST_PAUSE_SECONDS, Standing


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pause(standing: Standing, clock: Clock) -> float:
    """Seconds, in halves, that the node is now kept out."""
    began = clock.now
    while not standing.usable("node"):
        clock.now += 0.5
    return clock.now - began


def test_a_node_is_usable_until_it_fails() -> None:
    standing = Standing(Clock())
    assert standing.usable("node")
    standing.failed("node")
    assert not standing.usable("node")
    assert standing.usable("another")


def test_each_failure_keeps_it_out_for_longer_up_to_a_minute() -> None:
    clock = Clock()
    standing = Standing(clock)
    pauses = []
    for _ in range(9):
        standing.failed("node")
        pauses.append(pause(standing, clock))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_success_forgives_all() -> None:
    clock = Clock()
    standing = Standing(clock)
    for _ in range(4):
        standing.failed("node")
        pause(standing, clock)
    standing.failed("node")
    standing.succeeded("node")
    assert standing.usable("node")
    standing.failed("node")
    assert pause(standing, clock) == 1
    standing.succeeded("never seen")


def test_requests_that_one_fault_breaks_are_one_failure() -> None:
    clock = Clock()
    standing = Standing(clock)
    for _ in range(50):
        standing.failed("node")
    assert pause(standing, clock) == 1
    standing.failed("node")
    assert pause(standing, clock) == 2


def test_years_of_failures_are_only_a_minute() -> None:
    clock = Clock()
    standing = Standing(clock)
    for _ in range(3000):
        standing.failed("node")
        clock.now += LONGEST_PAUSE_SECONDS
    standing.failed("node")
    assert pause(standing, clock) == LONGEST_PAUSE_SECONDS


def test_doubt_grows_with_failures_fades_with_time_and_ends_with_a_success() -> None:
    clock = Clock()
    standing = Standing(clock)
    assert standing.doubt("node") == 0
    doubts = []
    for _ in range(3):
        standing.failed("node")
        doubts.append(standing.doubt("node"))
        pause(standing, clock)
    assert doubts == [0.5, 0.75, 0.875]
    clock.now += DOUBT_HALF_LIFE_SECONDS
    assert standing.doubt("node") == 0.875 / 2
    clock.now += 100 * DOUBT_HALF_LIFE_SECONDS
    assert standing.doubt("node") < 1e-9
    standing.failed("node")
    standing.succeeded("node")
    assert standing.doubt("node") == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["failed", "succeeded"]), st.floats(0, 200)), max_size=30))
def test_nobody_is_kept_out_for_longer_than_the_longest_pause(history: list[tuple[str, float]]) -> None:
    clock = Clock()
    standing = Standing(clock)
    for event, seconds in history:
        getattr(standing, event)("node")
        assert standing.usable("node") == (event == "succeeded")
        clock.now += seconds
    clock.now += LONGEST_PAUSE_SECONDS
    assert standing.usable("node")
