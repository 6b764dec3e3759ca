"""Memory that runs short: who gives way and in which order, and that everything comes back."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.engine.contract import CacheSettings, DecodeRequest
from kakeya_ops.engine.engine import Engine
from kakeya_ops.errors import EngineBusy, MemoryShort
from kakeya_ops.kv.pool import BlockPool, PartKey, PoolStats, StoredPart
from kakeya_ops.serving import pressure as pressures
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.memory_room import Room
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.pressure import Pressure, Relief, plan_relief, watching_memory
from kakeya_ops.units import BlockHash, NodeId
from serving.running import DEADLINE_SECONDS, simple_identity

MOST, KEEP, TOTAL = 1000, 400, 10_000
PART = StoredPart.of(bytes(100))


def stats(used: int = 600, budget: int = MOST, pinned: int = 0, reserved: int = 0) -> PoolStats:
    return replace(BlockPool(budget).stats(), used_bytes=used, pinned_bytes=pinned, reserved_bytes=reserved)


@pytest.mark.parametrize(
    ("available", "pool", "expected"),
    [
        (5000, stats(), Relief(MOST, False)),
        (400, stats(), Relief(MOST, False)),
        (399, stats(), Relief(599, False)),
        (100, stats(), Relief(300, False)),
        (0, stats(), Relief(200, False)),
        (0, stats(used=300), Relief(0, False)),
        (250, stats(used=0), Relief(0, False)),  # nothing can go, yet more than half of it is there
        (199, stats(used=0, budget=0), Relief(0, True)),
        (199, stats(used=50, pinned=50), Relief(0, True)),
        (199, stats(used=50, pinned=49), Relief(0, False)),
        (199, stats(used=50, pinned=50, reserved=10), Relief(0, True)),
        (420, stats(used=200, budget=200), Relief(200, False)),  # no growth without a margin
        (500, stats(used=200, budget=200), Relief(300, False)),
        (9000, stats(used=200, budget=200), Relief(MOST, False)),
        (500, stats(used=0), Relief(MOST, False)),
    ],
)
def test_what_a_look_leads_to(available: int, pool: PoolStats, expected: Relief) -> None:
    assert plan_relief(Room(available, TOTAL), pool, MOST, KEEP) == expected


@pytest.mark.parametrize(("strain", "budget"), [("warning", 500), ("critical", 300)])
def test_macos_is_believed_when_it_says_that_memory_is_short(strain: pressures.Strain, budget: int) -> None:
    assert plan_relief(Room(5000, TOTAL, strain), stats(), MOST, KEEP) == Relief(budget, False)
    assert plan_relief(Room(5000, TOTAL, strain), stats(used=0), MOST, KEEP).refusing == (strain == "critical")


@pytest.mark.parametrize(("total", "kept"), [(16_000, 1000), (2**35, 2**30), (2**32, 2**28)])
def test_by_default_a_sixteenth_is_kept_free_and_a_gibibyte_at_most(total: int, kept: int) -> None:
    pool = stats(used=2**34, budget=2**35)
    assert plan_relief(Room(kept, total), pool, 2**35).budget_bytes == 2**35
    assert plan_relief(Room(kept - 1, total), pool, 2**35).budget_bytes == 2**34 - 1


rooms = st.builds(Room, st.integers(0, 3000), st.just(TOTAL), st.sampled_from(["normal", "warning", "critical"]))


@given(rooms, st.integers(0, MOST), st.integers(0, MOST), st.floats(0, 1))
def test_no_budget_is_beyond_the_inventorys_and_refusing_is_the_last_resort(
    room: Room, used: int, budget: int, pinned: float
) -> None:
    pool = stats(min(used, budget), budget, int(min(used, budget) * pinned))
    relief = plan_relief(room, pool, MOST, KEEP)
    assert 0 <= relief.budget_bytes <= MOST
    if relief.refusing:
        assert pool.pinned_bytes == pool.used_bytes
        assert room.available_bytes < KEEP / 2 or room.strain == "critical"


def cache_node(entries: int) -> Node:
    node = Node(NodeSettings(NodeId("c"), "cache", "t"), BlockPool(MOST), simple_identity())
    for index in range(entries):
        assert node.pool.put(key(index), PART)
    return node


def key(index: int) -> PartKey:
    return PartKey(BlockHash(index.to_bytes(32, "big")), 0)


class World:
    """Memory that the test gives and takes."""

    def __init__(self, available: int) -> None:
        self.available = available

    def read(self) -> Room:
        return Room(self.available, TOTAL)


def test_idle_entries_go_first_the_one_about_to_be_hit_stays_and_the_pool_grows_back() -> None:
    node, world = cache_node(8), World(5000)
    pressure = Pressure(node, KEEP, world.read)
    node.pool.touch_prefix([key(0)])
    with node.pool.pin([key(1)]):
        world.available = 0
        pressure.look()
        assert [index for index in range(8) if node.pool.holds(key(index))] == [0, 1, 6, 7]
    assert node.counters.value(CounterName.POOL_SHRUNK) == 1
    assert node.card().pool.budget_bytes == 400
    world.available = 5000
    pressure.look()
    assert node.pool.budget_bytes == MOST
    assert node.counters.value(CounterName.POOL_SHRUNK) == 1


def test_memory_that_blocks_came_in_is_not_kept_when_it_is_short() -> None:
    node, world = cache_node(8), World(5000)
    came_in = node.room.take(2**20)
    del came_in
    pressure = Pressure(node, KEEP, world.read)
    pressure.look()
    assert node.room.waiting_bytes == 2**20
    world.available = 0
    pressure.look()
    assert node.room.waiting_bytes == 0


def test_requests_are_refused_only_after_the_pool_gave_all_it_could(caplog: pytest.LogCaptureFixture) -> None:
    node, world = cache_node(8), World(100)
    pressure = Pressure(node, KEEP, world.read)
    looks = []
    while not pressure.refusing:
        pressure.check()
        pressure.look()
        looks.append(node.pool.used_bytes)
    assert looks == [500, 200, 0, 0]
    with pytest.raises(MemoryShort) as refused:
        pressure.check()
    assert refused.value.retry_after_seconds > 0
    world.available = 500
    pressure.look()
    pressure.check()
    assert [record.message for record in caplog.records] == [
        "memory is short: requests are refused",
        "memory is there again",
    ]


def test_an_engine_admits_nobody_while_memory_is_short(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressures, "LOOK_SECONDS", 0.001)
    engine = Engine.load(tiny_llama, CacheSettings())
    try:
        node = Node(NodeSettings(NodeId("h"), "head", "t"), BlockPool(MOST), engine.identity, engine)
        world, looks = World(100), threading.Semaphore(0)

        def read() -> Room:
            looks.release()
            return world.read()

        with watching_memory(node, KEEP, read) as pressure:
            for _ in range(3):  # the second look has ended when the third begins
                assert looks.acquire(timeout=DEADLINE_SECONDS)
            assert pressure.refusing
            with pytest.raises(EngineBusy, match="memory is short"):
                engine.decode(DecodeRequest("r", (65, 66), 1), lambda event: None)
        assert not any(thread.name == "memory" for thread in threading.enumerate())
    finally:
        engine.close()
