"""Finished answers prefilled for the next turn: by an idle worker or the head itself, never in anybody's way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import Gate, ask, settle
from faults.proxy import FaultProxy
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.client import ReceiptRejected
from kakeya_ops.serving import followups
from kakeya_ops.serving.audit_case import Imported
from kakeya_ops.serving.backlog import Chain
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.followups import FollowUps
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.sources import PeerSource
from kakeya_ops.serving.supply import Delivery, OnPart, Order
from kakeya_ops.units import NodeId
from listeners import DEADLINE_SECONDS, Blocks
from serving.running import KEY, TENANT, Served, hash_prompt

BLOCKS = 6
LENGTH = BLOCKS * BLOCK_TOKENS + 3
LINK = {"rtt_seconds": 0.0, "bytes_per_second": 1e9}


@pytest.fixture(scope="module")
def engines(tiny_llama: Path) -> Iterator[tuple[Engine, Engine]]:
    """Of a head and of a worker."""
    both = tuple(Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=8)) for _ in range(2))
    yield both  # type: ignore[misc]
    for engine in both:
        engine.close()


def make_node(name: str, role: str, engine: Engine) -> Node:
    return Node(NodeSettings(NodeId(name), role, TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)  # type: ignore[arg-type]


@dataclass
class Town:
    engine: Engine
    head: Node
    worker: Served
    proxy: FaultProxy
    peers: list[PeerSource]
    published: list[Chain] = field(default_factory=list)
    follow_ups: FollowUps = field(init=False)

    def __post_init__(self) -> None:
        self.follow_ups = FollowUps(self.engine, self.head, lambda: self.peers, self.published.append)

    def held(self, node: Node, named: Prompt) -> int:
        return longest_resume(named.layout, named.hashes, node.pool.holds, len(named.hashes))

    def counted(self, name: CounterName, **labels: str) -> float:
        return self.head.counters.value(name, **labels)

    def idle(self) -> bool:
        return self.follow_ups.wait_idle(DEADLINE_SECONDS)


@pytest.fixture
def town(engines: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    monkeypatch.setattr(followups, "RETRY_SECONDS", 0.01)
    head, node = make_node("head", "head", engines[0]), make_node("worker", "worker", engines[1])
    node.jobs = JobBook(engines[1], node.pool, node.counters)
    with Served(node) as worker, FaultProxy(("127.0.0.1", worker.port)) as proxy:
        source = PeerSource(node.card(), worker.client(port=proxy.port), node.identity.digest, LINK)
        made = Town(engines[0], head, worker, proxy, [source])
        yield made
        made.follow_ups.close()


def named(town: Town, seed: int, length: int = LENGTH) -> Prompt:
    return hash_prompt(town.engine.identity, prompt(length, seed=seed))


def keep_prompt(town: Town, node: Node, whole: Prompt, blocks: int) -> None:
    kept = Blocks()
    town.engine.prefill(PrefillJob(whole.tokens, blocks, kept.keep, kept.done))
    assert kept.wait() is None
    for block, parts in kept.parts.items():
        assert parts[0] is not None
        node.pool.put(whole.key(block, 0), parts[0])


def happens(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(DEADLINE_SECONDS * 100)):
        if condition():
            return True
        pause.wait(0.01)
    return False


def test_what_a_worker_sends_is_to_be_audited_as_any_import_is(town: Town) -> None:
    audited: list[Imported] = []
    town.follow_ups.audit = audited.append
    whole = named(town, 11)
    town.follow_ups.offer(whole)
    assert town.idle()
    [imported] = audited
    worker = town.worker.node
    assert (imported.node, imported.epoch, imported.instance) == ("worker", worker.epoch, worker.instance)
    assert imported.prompt == whole
    assert imported.checksums == {
        place: stored.checksum
        for place in whole.layout.needed(BLOCKS)
        if (stored := town.head.pool.peek(whole.key(*place)))
    }


def test_of_what_a_contradicted_receipt_came_with_nothing_stays(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    audited: list[Imported] = []
    town.follow_ups.audit = audited.append
    honest, [source] = PeerSource.compute, town.peers

    def compute(peer: PeerSource, order: Order, on_part: OnPart) -> Delivery:
        honest(peer, order, on_part)
        town.peers.remove(source)
        assert town.held(town.head, whole) == BLOCKS
        raise ReceiptRejected("worker", "sent a receipt of another request")

    monkeypatch.setattr(PeerSource, "compute", compute)
    monkeypatch.setattr(FollowUps, "_compute", lambda self, task: False)
    whole = named(town, 12)
    town.follow_ups.offer(whole)
    assert town.idle()
    assert (town.held(town.head, whole), audited) == (0, [])


def test_a_worker_does_it_and_head_and_worker_have_it(town: Town) -> None:
    whole = named(town, 1)
    for node in (town.head, town.worker.node):
        keep_prompt(town, node, whole, 3)
    town.follow_ups.offer(whole)
    assert town.idle()
    assert town.held(town.head, whole) == town.held(town.worker.node, whole) == BLOCKS
    assert town.counted(CounterName.ANSWERS_PREFILLED, worker="worker") == 1
    assert town.worker.node.counters.value(CounterName.TOKENS_COMPUTED) == 3 * BLOCK_TOKENS
    assert [(chain.prompt, chain.blocks) for chain in town.published] == [(whole, BLOCKS)]


def test_what_it_leaves_is_what_a_prefill_makes(town: Town) -> None:
    whole = named(town, 2)
    town.follow_ups.offer(whole)
    assert town.idle()
    alone = Blocks()
    town.engine.prefill(PrefillJob(whole.tokens, BLOCKS, alone.keep, alone.done))
    assert alone.wait() is None
    for block, parts in alone.parts.items():
        stored = town.head.pool.get(whole.key(block, 0))
        assert stored is not None
        assert parts[0] is not None
        assert stored.checksum == parts[0].checksum


def test_without_a_worker_that_holds_it_the_head_does_it(town: Town) -> None:
    whole = named(town, 3)
    keep_prompt(town, town.head, whole, 2)
    town.follow_ups.offer(whole)
    assert town.idle()
    assert (town.held(town.head, whole), town.held(town.worker.node, whole)) == (BLOCKS, 0)
    assert town.counted(CounterName.ANSWERS_PREFILLED, worker="") == 1
    town.peers.clear()
    town.follow_ups.offer(other := named(town, 4))
    assert town.idle()
    assert town.held(town.head, other) == BLOCKS


def test_a_worker_that_is_busy_or_gone_is_no_obstacle(town: Town) -> None:
    whole = named(town, 5)
    town.proxy.set("refuse")
    town.follow_ups.offer(whole)
    assert town.idle()
    assert town.held(town.head, whole) == BLOCKS
    town.proxy.heal()
    jobs = town.worker.node.jobs
    assert jobs is not None
    jobs._most_jobs = 1
    jobs._running.add(None)  # type: ignore[arg-type]
    town.follow_ups.offer(other := named(town, 6))
    assert town.idle()
    jobs._running.clear()
    assert town.counted(CounterName.ANSWERS_PREFILLED, worker="") == 2
    assert town.held(town.head, other) == BLOCKS


def test_it_gives_way_at_the_next_chunk_and_goes_on_afterwards(town: Town) -> None:
    town.peers.clear()
    whole = named(town, 7, 40 * BLOCK_TOKENS)
    gate = Gate(town.engine)
    town.follow_ups.offer(whole)
    assert happens(lambda: town.engine.queued == 1)
    listener = ask(town.engine, prompt(20, seed=99))
    gate.open()
    assert listener.wait_for_end()
    assert town.idle()
    assert town.held(town.head, whole) == 40
    assert town.counted(CounterName.ANSWERS_DROPPED) == 0


def test_what_is_interrupted_too_often_is_dropped_and_counted(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.peers.clear()
    monkeypatch.setattr(FollowUps, "_compute", lambda self, task: False)
    town.follow_ups.offer(named(town, 8))
    assert town.idle()
    assert town.counted(CounterName.ANSWERS_DROPPED, reason="interrupted") == 1


def test_only_so_many_wait(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.peers.clear()
    monkeypatch.setattr(followups, "MOST_WAITING", 2)
    gate = Gate(town.engine)
    town.follow_ups.offer(named(town, 9))
    assert happens(lambda: town.engine.queued == 1)
    for seed in range(10, 14):
        town.follow_ups.offer(named(town, seed))
    gate.open()
    assert town.idle()
    assert town.counted(CounterName.ANSWERS_DROPPED, reason="full") == 2
    assert town.counted(CounterName.ANSWERS_PREFILLED) == 3


def test_what_is_held_or_too_short_is_no_work(town: Town) -> None:
    whole = named(town, 15)
    keep_prompt(town, town.head, whole, BLOCKS)
    town.follow_ups.offer(whole)
    town.follow_ups.offer(named(town, 16, BLOCK_TOKENS - 1))
    assert town.idle()
    assert town.published == []


def test_closing_gives_up_what_is_under_way(town: Town) -> None:
    town.peers.clear()
    gate = Gate(town.engine)
    town.follow_ups.offer(named(town, 17))
    assert happens(lambda: town.engine.queued == 1)
    town.follow_ups._stop.stop()
    gate.open()
    town.follow_ups.close()
    assert town.follow_ups.wait_idle(0)
    settle(town.engine)
    assert town.engine.queued == 0
