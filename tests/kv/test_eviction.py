"""In which order payloads leave: used once before used again, and never more favoured than allowed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.kv.eviction import EvictionOrder


def drained(order: EvictionOrder[str]) -> str:
    found = []
    while (key := order.pop()) is not None:
        found.append(key)
    return "".join(found)


def filled(keys: str) -> EvictionOrder[str]:
    order: EvictionOrder[str] = EvictionOrder()
    for key in keys:
        order.add(key)
    return order


def test_least_recently_used_leaves_first() -> None:
    order = filled("abcab")
    assert "".join(order) == "cab"
    assert drained(order) == "cab"


def test_what_is_favoured_leaves_last() -> None:
    order = filled("abcd")
    order.favour("a", 1, 10)
    order.add("e")
    assert drained(order) == "bcdea"


def test_what_is_in_use_stays_favoured() -> None:
    order = filled("ab")
    order.favour("a", 1, 10)
    order.remove("a")
    assert "a" not in order
    order.add("a")
    order.add("b")
    assert drained(order) == "ba"


def test_too_much_is_not_favoured() -> None:
    order = filled("abcx")
    for key in "abc":
        order.favour(key, 2, 4)
    assert drained(order) == "xabc"


def test_what_has_left_is_a_stranger_when_it_returns() -> None:
    order = filled("a")
    order.favour("a", 1, 10)
    assert order.pop() == "a"
    assert order.pop() is None
    order.add("a")
    order.add("b")
    assert drained(order) == "ab"


steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "pop", "favour"]), st.sampled_from("abcdef")), max_size=40)


@settings(max_examples=60)
@given(steps)
def test_it_holds_what_is_idle_and_nothing_else(done: list[tuple[str, str]]) -> None:
    order: EvictionOrder[str] = EvictionOrder()
    idle: set[str] = set()
    for step, key in done:
        if step == "add":
            order.add(key)
            idle.add(key)
        elif step == "remove":
            order.remove(key)
            idle.discard(key)
        elif step == "favour":
            order.favour(key, 1, 3)
        else:
            idle.discard(order.pop() or "")
        assert set(order) == idle
    assert set(drained(order)) == idle
