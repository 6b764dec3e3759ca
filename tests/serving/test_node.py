from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_bench import SETTINGS
from kakeya_ops.engine.engine import Engine
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.secret import Secret
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.node import CARD_SECONDS, Node, NodeSettings
from kakeya_ops.units import NodeId
from kakeya_ops.wire.cards import Card
from serving.running import KEY, TENANT, block_hash, fill, make_cache, simple_identity


@pytest.fixture(scope="module")
def worker(tiny_llama: Path) -> Iterator[Node]:
    engine = Engine.load(tiny_llama, SETTINGS)
    yield Node(NodeSettings(NodeId("w"), "worker", TENANT, (KEY,)), BlockPool(2**20), engine.identity, engine)
    engine.close()


def test_a_card_tells_everything_and_survives_the_wire(worker: Node) -> None:
    card = Card.parse(worker.card().encode())
    assert (card.node, card.role, card.healthy) == ("w", "worker", True)
    assert (card.epoch, card.instance) == (worker.epoch, worker.instance)
    assert card.identity_document is not None
    assert CacheIdentity.from_json(card.identity_document).digest == card.identity == worker.identity.digest
    assert card.runtime is not None
    assert worker.engine is not None
    assert Runtime.from_json(card.runtime) == worker.engine.runtime
    assert card.counters == worker.counters.snapshot()
    assert card.ttl_seconds == CARD_SECONDS
    assert abs(card.issued_at - time.time()) < 5
    assert card.free_memory_bytes > 0
    assert card.reason is None


def test_a_card_tells_what_the_process_takes(worker: Node) -> None:
    memory = Card.parse(worker.card().encode()).memory
    assert memory is not None
    assert worker.engine is not None
    assert 0 < (memory.active_bytes or 0) <= (memory.peak_bytes or 0)
    assert (memory.footprint_bytes or 0) > 2**20
    cache = make_cache().card().memory
    assert cache is not None
    assert (cache.active_bytes, cache.peak_bytes) == (None, None)


def test_a_cache_peers_card_has_no_model(worker: Node) -> None:
    node = make_cache()
    card = node.card()
    assert (card.runtime, card.prefill_tokens_per_second, card.load.queued) == (None, None, 0)
    assert card.identity == node.identity.digest


def test_every_process_is_another_instance() -> None:
    first, second = make_cache(), make_cache()
    assert first.instance != second.instance
    assert second.epoch > first.epoch


def test_health_is_the_engines_and_does_not_wait_for_it(worker: Node) -> None:
    reached, go = threading.Event(), threading.Event()
    assert worker.engine is not None
    thread = threading.Thread(target=worker.engine.call, args=(lambda: (reached.set(), go.wait(20)),))
    thread.start()
    assert reached.wait(10)
    began = time.monotonic()
    assert worker.health().healthy
    assert time.monotonic() - began < 10  # the engine is held for longer
    go.set()
    thread.join(10)


def test_health_of_an_engine_that_does_not_move(worker: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_ops.serving.node.IDLE_STALE_SECONDS", -1.0)
    monkeypatch.setattr("kakeya_ops.serving.node.BUSY_STALE_SECONDS", -1.0)
    health = worker.health()
    assert not health.healthy
    assert health.reason is not None
    assert "has not moved" in health.reason
    card = worker.card()
    assert (card.healthy, card.reason) == (False, health.reason)


def test_health_of_an_engine_that_has_ended(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama, SETTINGS)
    node = Node(NodeSettings(NodeId("w"), "worker", TENANT), BlockPool(2**20), engine.identity, engine)
    assert node.health().healthy
    engine.close()
    assert node.health().reason == "the compute thread has stopped"


def test_health_of_a_cache_is_a_test_of_its_pool() -> None:
    node = make_cache()
    assert node.health().healthy
    assert node.health().healthy
    assert node.pool.used_bytes == 1
    full = Node(NodeSettings(NodeId("c"), "cache", TENANT), BlockPool(1000), simple_identity())
    with full.pool.reserve(1000):
        assert not full.health().healthy
    assert full.health().healthy


def test_evictions_are_counted_where_they_happen() -> None:
    node = Node(NodeSettings(NodeId("c"), "cache", TENANT), BlockPool(8192), simple_identity())
    fill(node.pool, node.identity.layout, [block_hash(i) for i in range(8)])
    assert node.counters.value(CounterName.EVICTIONS) == node.pool.stats().evictions > 0


def test_the_newest_key_signs_and_all_are_accepted() -> None:
    old = Secret(b"old")
    node = make_cache(keys=(KEY, old))
    assert node.fleet_key == node.caller.key == KEY
    assert tuple(node.gate.keys) == (KEY, old)
    assert not node.gate.allow_unsigned
    assert make_cache(keys=()).gate.allow_unsigned
