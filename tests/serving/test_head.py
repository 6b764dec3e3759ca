"""The head over a real engine and a real worker beside it: decisions, directives, faults, places."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import Gate
from faults.proxy import Fault, FaultProxy
from kakeya_ops.engine.contract import DecodeRequest, Sampling, Ticket
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.errors import EngineBusy, EngineDead, RemoteRequired
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.contract import GenerateRequest, PrefixReady
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.head import HeadService, HeadSettings
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.receipts import Receipt, RemotePart
from kakeya_ops.serving.sources import PeerSource
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import Directive, new_nonce
from listeners import Listener
from serving.running import KEY, TENANT, Served

PLACES = 3
LENGTH = 8 * BLOCK_TOKENS + 5
BLOCKS = 8
LINK: dict[str, Any] = {"rtt_seconds": 0.0, "bytes_per_second": 1e9}
_ids = count()


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=32, together=4))
    yield engine
    engine.close()


@dataclass
class Neighbours:
    """The worker, if it is there, and what the head says of it."""

    sources: list[PeerSource] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    successes: list[str] = field(default_factory=list)
    transfers: list[tuple[str, int]] = field(default_factory=list)

    def usable(self) -> list[PeerSource]:
        return self.sources

    def engaged(self, node: str, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()

    def failed(self, node: str, reason: str) -> None:
        self.failures.append(node)

    def succeeded(self, node: str) -> None:
        self.successes.append(node)

    def transferred(self, remote: RemotePart) -> None:
        self.transfers.append((remote.kind, remote.payload_bytes))


class Asked:
    """One request and what came of it."""

    def __init__(self, town: Town, tokens: tuple[int, ...], modes: tuple[str, ...], tenant: str) -> None:
        self.id = f"r{next(_ids)}"
        self.listener = Listener()
        self._town = town
        directive = Directive(frozenset(modes), new_nonce()) if modes else None
        decode = DecodeRequest(self.id, tokens, 6, Sampling(top_logprobs=0))
        self.nonce = directive.nonce if directive else None
        self.ticket: Ticket = town.head.submit(GenerateRequest(decode, tenant, directive), self.listener)  # type: ignore[arg-type]

    def tokens(self) -> list[int]:
        return self.listener.wait_for_end()

    def error(self) -> Exception:
        return self.listener.wait_for_error()

    def receipt(self) -> Receipt:
        self.tokens()
        receipt = self._town.head.ledger.receipts.get(self.id)
        assert receipt is not None
        return receipt


@dataclass
class Town:
    """A head, and a worker behind a proxy that computes with the same engine."""

    engine: Engine
    worker: Served
    proxy: FaultProxy
    neighbours: Neighbours
    head: HeadService

    def ask(self, seed: int, *modes: str, length: int = LENGTH, tenant: str = TENANT) -> Asked:
        return Asked(self, prompt(length, seed=seed), modes, tenant)

    def counted(self, name: CounterName) -> float:
        return self.head.node.counters.value(name)

    def settings(self, **changes: Any) -> Town:
        """The same town under another head."""
        settings = HeadSettings("tiny", min_tokens=32, concurrency=PLACES, **({"policy": "prefer_remote"} | changes))
        node = Node(
            NodeSettings(NodeId("head"), "head", TENANT, (KEY,)), BlockPool(2**22), self.engine.identity, self.engine
        )
        return Town(
            self.engine,
            self.worker,
            self.proxy,
            self.neighbours,
            HeadService(node, self.engine, self.neighbours, settings),
        )


@pytest.fixture
def town(engine: Engine) -> Iterator[Town]:
    node = Node(NodeSettings(NodeId("worker"), "worker", TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)
    node.jobs = JobBook(engine, node.pool, node.counters)
    with Served(node) as worker, FaultProxy(("127.0.0.1", worker.port)) as proxy:
        source = PeerSource(node.card(), worker.client(port=proxy.port), engine.identity.digest, LINK)
        made = Town.settings(Town(engine, worker, proxy, Neighbours([source]), None))  # type: ignore[arg-type]
        yield made
        made.head.close()
        while len(node.jobs):
            engine.call(lambda: None)


def test_a_cold_prompt_is_computed_by_the_worker(town: Town) -> None:
    asked = town.ask(1, "remote")
    receipt = asked.receipt()
    assert (receipt.decision.kind, receipt.cached_tokens) == ("remote_compute", BLOCKS * BLOCK_TOKENS)
    assert receipt.remote is not None
    assert receipt.remote.worker_receipt is not None
    assert receipt.remote.worker_receipt["request_nonce"] == receipt.client_nonce == asked.nonce
    assert asked.tokens() == town.ask(1, "local").tokens()
    assert town.neighbours.successes == ["worker"]
    assert town.counted(CounterName.REMOTE_JOBS) == 1


def test_the_prefix_is_announced_before_the_first_token(town: Town) -> None:
    asked = town.ask(2, "remote")
    receipt = asked.receipt()
    events = [event for event in asked.listener.events if not hasattr(event, "done")]
    assert events[0] == PrefixReady(receipt.reused_tokens, receipt.digest, 0)  # type: ignore[comparison-overlap]
    assert len(events) == 7


def test_what_was_computed_is_kept_and_used_again(town: Town) -> None:
    first = town.ask(3)
    first.tokens()
    again = town.ask(3)
    assert again.tokens() == first.tokens()
    assert (again.receipt().decision.kind, again.receipt().local_pool_tokens) == ("local", BLOCKS * BLOCK_TOKENS)


def test_what_the_worker_holds_is_imported_and_measures_the_link(town: Town) -> None:
    first = town.ask(4, "remote")
    first.tokens()
    again = town.ask(4, "remote", "skip-local-pool")
    assert again.tokens() == first.tokens()
    assert again.receipt().decision.kind == "import"
    remote = again.receipt().remote
    assert remote is not None
    assert town.neighbours.transfers == [("remote_compute", remote.payload_bytes), ("import", remote.payload_bytes)]
    assert town.counted(CounterName.REMOTE_JOBS) == 1


def test_whoever_publishes_is_told_of_each_prefix_but_of_those_that_want_to_be_alone(town: Town) -> None:
    told: list[tuple[str, int]] = []
    town.head.publish = lambda chain: told.append((chain.prompt.request_id, chain.blocks))
    first, _, third = (town.ask(120 + seed, *modes) for seed, modes in enumerate([("remote",), ("local",), ()]))
    assert len(third.tokens()) == 6
    first.tokens()
    assert sorted(told) == sorted([(first.id, BLOCKS), (third.id, BLOCKS)])


def test_over_a_slow_link_kv_travels_packed_and_the_receipt_says_so(town: Town) -> None:
    slow = LINK | {"packing": "exponents", "packed_share": 0.5, "bytes_per_second": 1e7}
    town.neighbours.sources = [replace(town.neighbours.sources[0], link=slow)]
    passed = town.proxy.passed("down")
    first = town.ask(70, "remote")
    receipt = first.receipt()
    assert receipt.remote is not None
    assert 0.7 < receipt.remote.link["packed_share"] < 0.95
    assert town.proxy.passed("down") - passed < receipt.remote.payload_bytes
    again = town.ask(70, "remote", "skip-local-pool")
    assert again.receipt().decision.kind == "import"
    assert first.tokens() == again.tokens() == town.ask(70, "local").tokens()


def test_a_forced_local_answer_uses_nothing(town: Town) -> None:
    town.ask(5, "remote").tokens()
    receipt = town.ask(5, "local").receipt()
    assert (receipt.cached_tokens, receipt.remote, receipt.local_computed_tokens) == (0, None, LENGTH)
    assert receipt.times["lookup"] == 0


def test_tenants_share_nothing(town: Town) -> None:
    town.ask(6, "remote").tokens()
    other = town.ask(6, "remote", tenant="another").receipt()
    assert (other.local_pool_tokens, other.decision.kind) == (0, "remote_compute")
    assert other.remote is not None
    assert other.remote.pool_tokens == 0


def test_local_only_asks_nobody(town: Town) -> None:
    alone = town.settings(policy="local_only")
    receipt = alone.ask(7).receipt()
    assert receipt.decision.reason == "policy local_only"
    assert town.worker.node.counters.value(CounterName.LOOKUPS) == 0
    assert alone.ask(7, "remote", "skip-local-pool").receipt().decision.kind == "remote_compute"


def test_a_short_prompt_asks_nobody(town: Town) -> None:
    receipt = town.ask(8, length=2 * BLOCK_TOKENS).receipt()
    assert "min_tokens" in receipt.decision.reason
    assert town.worker.node.counters.value(CounterName.LOOKUPS) == 0


def test_a_failed_lookup_is_a_fallback(town: Town) -> None:
    town.proxy.set("refuse")
    asked = town.ask(9, "remote")
    fallback = asked.receipt().fallback
    assert fallback is not None
    assert (fallback.worker, fallback.reason, fallback.kept_blocks) == ("worker", "unreachable", 0)
    assert town.neighbours.failures == ["worker"]
    assert town.head.node.counters.by_reason(CounterName.FALLBACKS) == {"unreachable": 1}
    assert town.counted(CounterName.REMOTE_JOB_FAILURES) == 0
    assert asked.tokens() == town.ask(9, "local").tokens()


def test_a_broken_stream_is_a_fallback_that_keeps_what_came(town: Town) -> None:
    town.proxy.set(down=Fault(cut_after_bytes=5 * town.engine.layout.parts[0].nbytes))
    asked = town.ask(10, "remote")
    receipt = asked.receipt()
    assert receipt.fallback is not None
    assert 0 < receipt.fallback.kept_blocks < BLOCKS
    assert receipt.cached_tokens == receipt.fallback.kept_blocks * BLOCK_TOKENS
    assert town.neighbours.failures == ["worker"]
    assert town.counted(CounterName.REMOTE_JOB_FAILURES) == town.counted(CounterName.FALLBACKS) == 1
    town.proxy.heal()
    assert asked.tokens() == town.ask(10, "local").tokens()


def test_to_have_forgotten_is_no_failure_of_the_peer(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    town.ask(11, "remote").tokens()
    fetch = PeerSource.fetch

    def forget_first(source: PeerSource, order: Any, on_part: Any) -> Any:
        town.worker.node.pool.clear()
        return fetch(source, order, on_part)

    monkeypatch.setattr(PeerSource, "fetch", forget_first)
    asked = town.ask(11, "remote", "skip-local-pool")
    fallback = asked.receipt().fallback
    assert fallback is not None
    assert fallback.reason == "gone"
    assert town.neighbours.failures == []
    assert asked.tokens() == town.ask(11, "local").tokens()


def test_without_peers_there_is_no_fallback(town: Town) -> None:
    town.neighbours.sources = []
    receipt = town.ask(12).receipt()
    assert receipt.fallback is None
    assert receipt.decision.reason == "no healthy peer with the same cache identity can help"


def test_a_strict_head_refuses_what_it_would_have_to_compute(town: Town) -> None:
    strict = town.settings(require_remote=True)
    assert strict.ask(13).receipt().decision.kind == "remote_compute"
    assert strict.ask(13).receipt().decision.kind == "local"  # all of it is in its pool
    town.proxy.set("refuse")
    town.proxy.sever()
    error = strict.ask(14).error()
    assert isinstance(error, RemoteRequired)
    assert "worker: " in error.message
    town.neighbours.sources = []
    assert "no healthy peer" in str(strict.ask(14).error())
    assert strict.ask(14, length=BLOCK_TOKENS).receipt().decision.kind == "local"
    assert strict.ask(14, "local").receipt().local_computed_tokens == LENGTH


def test_places_are_bounded_and_come_back(town: Town) -> None:
    gate = Gate(town.engine)
    asked = [town.ask(20 + seed, "local") for seed in range(PLACES)]
    with pytest.raises(EngineBusy) as caught:
        town.ask(30, "local")
    assert caught.value.retry_after_seconds >= 1
    asked[0].ticket.cancel()
    gate.open()
    assert isinstance(asked[0].error(), Cancelled)
    assert [len(one.tokens()) for one in asked[1:]] == [6] * (PLACES - 1)
    for _ in range(3):
        assert [len(one.tokens()) for one in [town.ask(40 + seed, "local") for seed in range(PLACES)]] == [6] * PLACES


def test_who_leaves_the_queue_makes_room_at_once(town: Town) -> None:
    """While the engine stands still: nobody's turn comes meanwhile."""
    queued = town.settings(queue=1)
    gate = Gate(town.engine)
    asked = [queued.ask(100 + seed, "local") for seed in range(PLACES)]
    waiting = queued.ask(110, "local")
    with pytest.raises(EngineBusy):
        queued.ask(111, "local")
    waiting.ticket.cancel()
    assert isinstance(waiting.error(), Cancelled)
    next_one = queued.ask(112, "local")
    gate.open()
    assert [len(one.tokens()) for one in [*asked, next_one]] == [6] * (PLACES + 1)
    assert next_one.receipt().times["queued"] > 0


def test_who_leaves_while_the_worker_computes_is_no_fault(town: Town) -> None:
    gate = Gate(town.engine)
    town.proxy.set(down=Fault())
    asked = town.ask(50, "remote")
    assert town.proxy.wait_until(lambda proxy: proxy.accepted > 0)
    asked.ticket.cancel()
    gate.open()
    assert isinstance(asked.error(), Cancelled)
    assert town.neighbours.failures == []
    assert town.counted(CounterName.FALLBACKS) == 0
    assert len(town.ask(51, "remote").tokens()) == 6


def test_many_at_once_over_and_over_lose_no_place(town: Town) -> None:
    def leave(seed: int) -> None:
        asked = town.ask(seed, "remote" if seed % 2 else "local")
        if seed % 3:
            asked.ticket.cancel()
        asked.listener.wait_for(lambda: asked.listener.ended)

    for round in range(4):
        threads = [threading.Thread(target=leave, args=(60 + PLACES * round + seed,)) for seed in range(PLACES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert [len(one.tokens()) for one in [town.ask(80 + seed) for seed in range(PLACES)]] == [6] * PLACES


def test_a_bug_ends_one_request_and_gives_its_place_back(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(PeerSource, "look_up", broken)
        for seed in range(2 * PLACES):
            assert isinstance(town.ask(90 + seed, "remote").error(), ZeroDivisionError)
    assert len(town.ask(99, "remote").tokens()) == 6


def test_a_dead_engine_is_said_at_once(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama, SETTINGS)
    node = Node(NodeSettings(NodeId("head"), "head", TENANT, (KEY,)), BlockPool(2**20), engine.identity, engine)
    head = HeadService(node, engine, Neighbours(), HeadSettings("tiny"))
    assert head.healthy()
    assert head.context_tokens == engine.context_tokens
    assert head.prefill_tokens_per_second == engine.measured.tokens_per_second
    engine.close()
    assert not head.healthy()
    with pytest.raises(EngineDead):
        head.submit(GenerateRequest(DecodeRequest("r", (5, 6), 1), TENANT), lambda event: None)
    head.close()


def test_what_is_found_again_outlives_what_was_used_once(town: Town) -> None:
    block_bytes = town.engine.layout.parts[0].nbytes
    town.head.node.pool.resize(3 * BLOCKS * block_bytes)
    for _ in range(2):
        town.ask(130, "remote").tokens()
    for seed in range(131, 136):
        town.ask(seed, "remote").tokens()
    assert town.ask(130).receipt().local_pool_tokens == BLOCKS * BLOCK_TOKENS
    assert town.ask(131).receipt().local_pool_tokens < BLOCKS * BLOCK_TOKENS
