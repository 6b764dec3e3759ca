"""Two API keys of two tenants: no pool, no peer, no job and no prefilled answer serves both, and no count tells them.

A head, a worker and a cache of one process each would be no different; in one process their pools can be watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import Gate
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.kv.pool import BlockPool, Lease, PartKey
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.openai_api.app import make_openai_app
from kakeya_ops.openai_api.keys import ApiKeys
from kakeya_ops.openai_api.settings import ApiSettings
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.followups import FollowUps
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.publishing import Publisher, PublishRules
from kakeya_ops.serving.receipts import Receipt
from kakeya_ops.serving.sources import PeerSource
from kakeya_ops.units import NodeId
from openai_api.fronts import serve_app
from serving.running import DEADLINE_SECONDS, KEY, Served

OWNER, STRANGER = "the-key-of-the-owner", "the-key-of-a-stranger"
KEYS = {OWNER: "owner", STRANGER: "stranger"}
NAMES = ("head", "worker", "cache")
LENGTH = 9 * BLOCK_TOKENS - 1
"""One token of an answer makes another whole block."""
BLOCKS = 8
LINK = {"rtt_seconds": 0.0, "bytes_per_second": 1e9, "network": "loopback", "address": "127.0.0.1", "port": 1}
PEER_COUNTERS = (
    CounterName.LOOKUPS,
    CounterName.FETCHES,
    CounterName.JOBS_STARTED,
    CounterName.JOBS_JOINED,
    CounterName.TOKENS_FROM_POOL,
    CounterName.TOKENS_COMPUTED,
    CounterName.BYTES_SENT,
)
Counts = dict[str, float]


class WatchedPool(BlockPool):
    """Counts the keys that it is asked for."""

    asked = 0

    def holds(self, key: PartKey) -> bool:
        self.asked += 1
        return super().holds(key)

    def pin(self, keys: Iterable[PartKey]) -> Lease:
        wanted = tuple(keys)
        self.asked += len(wanted)
        return super().pin(wanted)


def make_node(name: str, role: str, engine: Engine) -> Node:
    settings = NodeSettings(NodeId(name), role, "fleet", (KEY,))  # type: ignore[arg-type]
    node = Node(settings, WatchedPool(2**24), engine.identity, engine if role != "cache" else None)
    if role == "worker":
        node.jobs = JobBook(engine, node.pool, node.counters)
    return node


@dataclass
class Neighbours:
    """Peers that are always in good standing."""

    sources: list[PeerSource]

    def usable(self) -> list[PeerSource]:
        return self.sources

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, node: str, reason: str) -> None:
        pytest.fail(f"{node} failed: {reason}")

    def succeeded(self, node: str) -> None:
        pass

    def transferred(self, remote: Any) -> None:
        pass


@dataclass
class House:
    """`worker` is the worker's engine."""

    worker: Engine
    nodes: dict[str, Node]
    head: HeadService
    publisher: Publisher
    follow_ups: FollowUps
    url: str
    turns: list[Prompt] = field(default_factory=list)
    turned: threading.Condition = field(default_factory=threading.Condition)

    def ask(self, key: str, tokens: tuple[int, ...]) -> tuple[str, Receipt]:
        """The answer to the holder of `key`, and its receipt."""
        body = {"prompt": list(tokens), "max_tokens": 2}
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(f"{self.url}/v1/completions", json=body, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        receipt = self.head.ledger.receipts.get(answer.headers["X-Request-Id"])
        assert receipt is not None
        assert receipt.tenant == KEYS[key]
        return answer.json()["choices"][0]["text"], receipt

    def remember(self, key: str, tokens: tuple[int, ...]) -> tuple[str, Prompt]:
        """Ask, and wait until all pools have prompt and answer; the answer, and the two as the next turn begins."""
        self.head.publish, self.head.follow_up = self.publisher.offer, self._follow
        turns = len(self.turns)
        text, _ = self.ask(key, tokens)
        with self.turned:
            assert self.turned.wait_for(lambda: len(self.turns) > turns, DEADLINE_SECONDS)
        assert self.follow_ups.wait_idle(DEADLINE_SECONDS)
        assert self.publisher.wait_idle(DEADLINE_SECONDS)
        self.head.publish, self.head.follow_up = lambda chain: None, lambda prompt: None
        whole = self.turns[-1]
        for node in self.nodes.values():
            assert longest_resume(whole.layout, whole.hashes, node.pool.holds, BLOCKS + 1) == BLOCKS + 1
        return text, whole

    def count(self) -> Counts:
        """What the nodes have been asked so far."""
        asked = {f"{name} pool": node.pool.asked for name, node in self.nodes.items()}  # type: ignore[attr-defined]
        peers = (node for node in self.nodes.values() if node.role != "head")
        return asked | {f"{node.id} {name}": node.counters.value(name) for node in peers for name in PEER_COUNTERS}

    def cost(self, key: str, tokens: tuple[int, ...]) -> Counts:
        """What the nodes are asked for one answer."""
        before = self.count()
        self.ask(key, tokens)
        return {name: value - before[name] for name, value in self.count().items()}

    def _follow(self, prompt: Prompt) -> None:
        self.follow_ups.offer(prompt)
        with self.turned:
            self.turns.append(prompt)
            self.turned.notify_all()


@pytest.fixture(scope="module")
def house(tiny_llama: Path) -> Iterator[House]:
    """Its head computes nothing that a worker may compute, and waits for peers however slow they are."""
    with ExitStack() as closing, pytest.MonkeyPatch.context() as patch:
        patch.setattr("kakeya_ops.serving.head.DEMANDED_LOOKUP_SECONDS", DEADLINE_SECONDS)
        engine, computing = (Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=16)) for _ in range(2))
        closing.callback(engine.close)
        closing.callback(computing.close)
        nodes = {name: make_node(name, name, computing if name == "worker" else engine) for name in NAMES}
        served = [closing.enter_context(Served(nodes[name])) for name in ("worker", "cache")]
        sources = [PeerSource(one.node.card(), one.client(), engine.identity.digest, LINK) for one in served]
        neighbours = Neighbours(sources)
        settings = HeadSettings("tiny", policy="prefer_remote", min_tokens=BLOCK_TOKENS, require_remote=True)
        head = HeadService(nodes["head"], engine, neighbours, settings)
        closing.callback(head.close)
        publisher = Publisher(nodes["head"], neighbours.usable, PublishRules(replicas=2, min_tokens=BLOCK_TOKENS))
        closing.callback(publisher.close)
        follow_ups = FollowUps(engine, nodes["head"], neighbours.usable, publisher.offer)
        closing.callback(follow_ups.close)
        app = make_openai_app(head, ApiSettings(keys=ApiKeys(KEYS)))
        port = closing.enter_context(serve_app(app))
        yield House(computing, nodes, head, publisher, follow_ups, f"http://127.0.0.1:{port}")


def happens(condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    return any(condition() or pause.wait(0.01) for _ in range(int(DEADLINE_SECONDS * 100)))


def test_what_every_pool_holds_for_one_tenant_serves_no_other(house: House) -> None:
    _, whole = house.remember(OWNER, prompt(LENGTH, seed=1))
    turn = (*whole.tokens[: (BLOCKS + 1) * BLOCK_TOKENS], *prompt(5, seed=2))
    before = house.count()
    strange, receipt = house.ask(STRANGER, turn)
    assert (receipt.local_pool_tokens, receipt.decision.kind) == (0, "remote_compute")
    assert receipt.remote
    assert (receipt.remote.pool_tokens, receipt.remote.computed_tokens) == (0, (BLOCKS + 1) * BLOCK_TOKENS)
    assert house.count()["cache fetches"] == before["cache fetches"]
    for cleared in ((), ("head",), ("head", "worker")):
        for name in cleared:
            house.nodes[name].pool.clear()
        own, receipt = house.ask(OWNER, turn)
        found = receipt.local_pool_tokens + (receipt.remote.pool_tokens if receipt.remote else 0)
        assert (own, found) == (strange, (BLOCKS + 1) * BLOCK_TOKENS), cleared
    assert house.count()["cache fetches"] > before["cache fetches"]


def test_a_miss_asks_for_as_much_whether_or_not_another_tenant_holds_it(house: House) -> None:
    tokens = [prompt(LENGTH, seed=seed) for seed in (3, 4, 5)]
    house.ask(STRANGER, tokens[0])
    nobodys = house.cost(STRANGER, tokens[1])
    house.remember(OWNER, tokens[2])
    assert house.cost(STRANGER, tokens[2]) == nobodys
    assert nobodys["worker lookups"] == nobodys["cache lookups"] == nobodys["worker jobs_started"] == 1
    assert house.cost(OWNER, tokens[2]) != nobodys


def test_a_job_under_way_is_joined_by_its_own_tenant_alone(house: House) -> None:
    tokens = prompt(LENGTH, seed=6)
    counters, worker = house.head.node.counters, house.nodes["worker"].counters
    before = house.count()
    joined = counters.value(CounterName.REQUESTS_JOINED)

    def started(count: int) -> bool:
        return worker.value(CounterName.JOBS_STARTED) - before["worker jobs_started"] == count

    gate = Gate(house.worker)
    with ThreadPoolExecutor(3) as clients:
        asked: list[Future[tuple[str, Receipt]]] = [clients.submit(house.ask, OWNER, tokens)]
        assert happens(lambda: started(1))
        asked.append(clients.submit(house.ask, OWNER, tokens))
        assert happens(lambda: counters.value(CounterName.REQUESTS_JOINED) == joined + 1)
        asked.append(clients.submit(house.ask, STRANGER, tokens))
        assert happens(lambda: started(2))
        gate.open()
        texts = [answer.result(60)[0] for answer in asked]
    assert texts[0] == texts[1] == texts[2]
    assert counters.value(CounterName.REQUESTS_JOINED) == joined + 1
    assert worker.value(CounterName.JOBS_JOINED) == before["worker jobs_joined"]
