"""In which order payloads leave a pool: used once before used again, and never more favoured than allowed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.kv.eviction import EvictionOrder
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.units import BlockHash


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


KEYS = [PartKey(BlockHash(bytes([block]) * 32), 0) for block in range(8)]
PART = StoredPart.of(bytes(10))

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


def test_what_was_used_again_outlives_a_flood_of_what_was_used_once() -> None:
    pool = BlockPool(40)
    hot, others = KEYS[:2], KEYS[2:]
    for key in hot:
        pool.put(key, PART)
    pool.promote([*hot, others[0]])
    for key in others:
        assert pool.put(key, PART)
    assert {key for key in KEYS if pool.holds(key)} == {*hot, *others[-2:]}


def test_no_more_than_three_quarters_are_promoted() -> None:
    pool = BlockPool(40)
    for key in KEYS[:4]:
        pool.put(key, PART)
    pool.promote(KEYS[:4])
    assert pool.put(KEYS[4], PART)
    assert {key for key in KEYS if pool.holds(key)} == {*KEYS[:3], KEYS[4]}


def test_what_is_kept_is_not_evicted_for_itself_though_the_rest_is_promoted() -> None:
    pool = BlockPool(40)
    for key in KEYS[:3]:
        pool.put(key, PART)
    pool.promote(KEYS[:2])
    assert pool.put_all({KEYS[2]: PART, KEYS[3]: PART, KEYS[4]: PART})
    assert {KEYS[2], KEYS[3], KEYS[4]} < {key for key in KEYS if pool.holds(key)}
