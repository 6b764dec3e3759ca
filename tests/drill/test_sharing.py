from __future__ import annotations

import threading

import pytest

from kakeya_ops.drill.sharing import share


def test_one_lane_does_all_of_it_in_order_and_in_this_thread() -> None:
    here = threading.current_thread()

    def attempt(lane: str, kind: int) -> tuple[str, int, bool]:
        return lane, kind, threading.current_thread() is here

    assert list(share(["a"], [1, 2, 3], attempt)) == [("a", 1, True), ("a", 2, True), ("a", 3, True)]


def test_several_lanes_are_at_work_at_the_same_time() -> None:
    together = threading.Barrier(2)

    def attempt(lane: str, kind: int) -> tuple[str, int]:
        together.wait(20)
        return lane, kind

    found = list(share(["a", "b"], [1, 2], attempt))
    assert {lane for lane, _ in found} == {"a", "b"}
    assert sorted(kind for _, kind in found) == [1, 2]


def test_a_lane_that_is_held_up_holds_up_no_other() -> None:
    others = threading.Semaphore(0)

    def attempt(lane: str, kind: int) -> int:
        if kind == 0:
            for _ in range(5):
                assert others.acquire(timeout=20)
        else:
            others.release()
        return kind

    assert sorted(share(["a", "b"], list(range(6)), attempt)) == list(range(6))


def test_the_first_error_ends_it_and_nothing_more_is_begun() -> None:
    begun: list[int] = []
    raised = threading.Event()

    def attempt(lane: str, kind: int) -> int:
        begun.append(kind)
        if kind == 1:
            raise KeyboardInterrupt
        assert raised.wait(20)
        return kind

    with pytest.raises(KeyboardInterrupt):
        list(share(["a", "b"], [1, 2, *range(3, 50)], attempt))
    raised.set()
    assert len(begun) <= 3


@pytest.mark.parametrize("lanes", [["a"], ["a", "b"]])
def test_without_kinds_there_is_nothing_to_do(lanes: list[str]) -> None:
    assert list(share(lanes, [], lambda lane, kind: kind)) == []
