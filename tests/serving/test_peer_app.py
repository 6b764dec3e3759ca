"""The peer protocol end to end: a real client, a real server, and a real engine where one is needed."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.routing import Route

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from faults.proxy import Fault, FaultProxy
from kakeya_ops.engine.engine import Admission, Engine
from kakeya_ops.errors import PeerBusy, PeerError, PeerRefused, StreamCorrupt
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, PartKey
from kakeya_ops.peer.client import BlockArrival, PeerClient, PrefillCall
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.secret import Secret
from kakeya_ops.serving import job_stream
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.jobs import JobBook
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import PrefillRequest, Progress
from kakeya_ops.wire.signing import new_nonce
from serving.running import (
    DEADLINE_SECONDS,
    KEY,
    TENANT,
    Served,
    block_hash,
    fill,
    hash_prompt,
    make_cache,
    make_caller,
    payload,
)

BLOCKS = 10


@dataclass
class Worker:
    """A served worker and a client of it."""

    served: Served
    client: PeerClient

    @property
    def node(self) -> Node:
        return self.served.node

    def call(self, seed: int, *, from_blocks: int = 0, blocks: int = BLOCKS, tenant: str = TENANT) -> Call:
        return Call(self, seed, from_blocks, blocks, tenant)


class Call:
    """One prefill, and what came of it."""

    def __init__(self, worker: Worker, seed: int, from_blocks: int, blocks: int, tenant: str) -> None:
        self.worker = worker
        self.arrived: list[BlockArrival] = []
        self.progress: list[Progress] = []
        self.changed = threading.Condition()
        tokens = prompt(blocks * BLOCK_TOKENS + 1, seed=seed)
        self.prompt = hash_prompt(worker.node.identity, tokens, tenant)
        self.request = PrefillRequest(
            identity=worker.node.identity.digest,
            tenant=tenant,
            tokens=tokens,
            from_blocks=from_blocks,
            blocks=blocks,
            nonce=new_nonce(),
            request_id="request",
        )

    def run(self, client: PeerClient | None = None, stop: StopFlag | None = None) -> Call:
        call = PrefillCall(self.request, self.prompt.hashes, self._take, self._note)
        self.receipt = (client or self.worker.client).prefill(call, stop)
        return self

    def wait_for(self, blocks: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.arrived) >= blocks, DEADLINE_SECONDS)

    def _take(self, arrival: BlockArrival) -> None:
        with self.changed:
            self.arrived.append(arrival)
            self.changed.notify_all()

    def _note(self, progress: Progress) -> None:
        with self.changed:
            self.progress.append(progress)
            self.changed.notify_all()


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, SETTINGS, Admission(queue_limit=3))
    yield engine
    engine.close()


@pytest.fixture
def worker(engine: Engine) -> Iterator[Worker]:
    node = Node(NodeSettings(NodeId("worker"), "worker", TENANT, (KEY,)), BlockPool(2**22), engine.identity, engine)
    node.jobs = JobBook(engine, node.pool, node.counters)
    with Served(node) as served:
        yield Worker(served, served.client())
        while len(node.jobs):
            engine.call(lambda: None)
    assert node.pool.stats().pinned_bytes == 0


def test_a_worker_with_a_newer_key_names_blocks_as_its_caller_does(engine: Engine) -> None:
    """While the fleet's key is replaced, a head may still sign, and name blocks, with the old one."""
    keys = (Secret(b"n" * 32), KEY)
    node = Node(NodeSettings(NodeId("worker"), "worker", TENANT, keys), BlockPool(2**22), engine.identity, engine)
    node.jobs = JobBook(engine, node.pool, node.counters)
    with Served(node) as served:
        call = Worker(served, served.client()).call(40).run()
    assert [a.hash for a in call.arrived] == list(call.prompt.hashes[:BLOCKS])
    call.receipt.verify([KEY])


class Held:
    """The compute thread stands still within it."""

    def __init__(self, engine: Engine) -> None:
        self._go = threading.Event()
        reached = threading.Event()
        self._thread = threading.Thread(
            target=engine.call, args=(lambda: (reached.set(), self._go.wait(DEADLINE_SECONDS)),)
        )
        self._thread.start()
        assert reached.wait(DEADLINE_SECONDS)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._go.set()
        self._thread.join(DEADLINE_SECONDS)


def test_a_prefill_delivers_blocks_and_a_receipt_for_exactly_these(worker: Worker) -> None:
    call = worker.call(1).run()
    assert [(a.block, a.part, a.hash) for a in call.arrived] == [(b, 0, call.prompt.hashes[b]) for b in range(BLOCKS)]
    receipt = call.receipt
    receipt.verify([KEY])
    assert (receipt.node, receipt.epoch, receipt.instance) == ("worker", worker.node.epoch, worker.node.instance)
    assert receipt.request_nonce == call.request.nonce
    assert (receipt.computed_tokens, receipt.pool_tokens) == (BLOCKS * BLOCK_TOKENS, 0)
    assert receipt.payload_bytes == sum(a.stored.nbytes for a in call.arrived)
    assert receipt.blocks_digest == blocks_digest((a.block, a.part, a.stored.checksum) for a in call.arrived)
    assert receipt.finished_at >= receipt.started_at
    assert worker.node.counters.value(CounterName.BYTES_SENT) == receipt.payload_bytes


def test_the_worker_then_holds_what_it_computed(worker: Worker) -> None:
    call = worker.call(2).run()
    assert worker.client.lookup(call.request.identity, call.prompt.hashes).resume_blocks == BLOCKS
    again = worker.call(2).run()
    assert again.receipt.computed_tokens == 0
    assert again.receipt.blocks_digest == call.receipt.blocks_digest
    assert again.receipt.job != call.receipt.job


def test_only_blocks_that_the_caller_lacks_are_sent(worker: Worker) -> None:
    call = worker.call(3, from_blocks=7).run()
    assert [a.block for a in call.arrived] == [7, 8, 9]
    nothing = worker.call(3, from_blocks=BLOCKS).run()
    assert (nothing.arrived, nothing.receipt.payload_bytes) == ([], 0)


def test_tenants_share_nothing(worker: Worker) -> None:
    worker.call(4).run()
    other = worker.call(4, tenant="another").run()
    assert other.receipt.pool_tokens == 0


def test_a_queued_job_is_not_silent(worker: Worker, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_stream, "PROGRESS_SECONDS", 0.02)
    call = worker.call(5)
    with Held(engine):
        thread = threading.Thread(target=call.run)
        thread.start()
        with call.changed:
            assert call.changed.wait_for(lambda: len(call.progress) >= 3, DEADLINE_SECONDS)
        assert {progress.stage for progress in call.progress} == {"queued"}
    thread.join(DEADLINE_SECONDS)
    assert call.receipt.queue_seconds > 0


def test_equal_requests_share_a_job_and_get_receipts_of_their_own(worker: Worker, engine: Engine) -> None:
    calls = [worker.call(6) for _ in range(3)]
    with Held(engine):
        threads = [threading.Thread(target=call.run, args=(worker.served.client(),)) for call in calls]
        for thread in threads:
            thread.start()
        for call in calls:
            with call.changed:
                assert call.changed.wait_for(lambda call=call: call.progress, DEADLINE_SECONDS)  # type: ignore[misc]
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert len({call.receipt.job for call in calls}) == 1
    assert len({call.receipt.request_nonce for call in calls}) == 3
    assert worker.node.counters.value(CounterName.TOKENS_COMPUTED) == BLOCKS * BLOCK_TOKENS


def test_a_caller_that_goes_away_ends_the_job(worker: Worker, engine: Engine) -> None:
    stop, call = StopFlag(), worker.call(7)
    errors: list[str] = []

    def run() -> None:
        try:
            call.run(stop=stop)
        except PeerError as error:
            errors.append(error.reason)

    with Held(engine):
        thread = threading.Thread(target=run)
        thread.start()
        with call.changed:
            assert call.changed.wait_for(lambda: call.progress, DEADLINE_SECONDS)
        stop.stop()
        thread.join(DEADLINE_SECONDS)
        jobs = worker.node.jobs
        assert jobs is not None
        deadline = threading.Event()
        while jobs._shared and not deadline.wait(0.01):
            pass
    while len(jobs):
        engine.call(lambda: None)
    assert errors == ["aborted"]
    assert worker.node.counters.value(CounterName.JOBS_CANCELLED) == 1
    assert worker.node.counters.value(CounterName.TOKENS_COMPUTED) == 0


def test_a_full_queue_is_busy_with_an_estimate(worker: Worker, engine: Engine) -> None:
    calls = [worker.call(10 + i) for i in range(3)]
    with Held(engine):
        threads = [threading.Thread(target=call.run, args=(worker.served.client(),)) for call in calls]
        for thread in threads:
            thread.start()
        for call in calls:
            with call.changed:
                assert call.changed.wait_for(lambda call=call: call.progress, DEADLINE_SECONDS)  # type: ignore[misc]
        with pytest.raises(PeerBusy) as caught:
            worker.call(20).run()
        assert caught.value.retry_after_seconds >= 1
        assert health(worker.served)[0] == 200
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert all(len(call.arrived) == BLOCKS for call in calls)


def test_blocks_that_were_never_there_are_refused(worker: Worker) -> None:
    call = worker.call(8)
    call.request = call.request.model_copy(update={"blocks": 0})
    with pytest.raises(PeerRefused) as caught:
        call.run()
    assert (caught.value.status, caught.value.code) == (400, "invalid_request")


def test_a_cut_and_a_second_try_through_the_pool(worker: Worker) -> None:
    with FaultProxy(("127.0.0.1", worker.served.port)) as proxy:
        client = worker.served.client(port=proxy.port)
        proxy.set(down=Fault(cut_after_bytes=30_000))
        call = worker.call(9)
        with pytest.raises(PeerError):
            call.run(client)
        proxy.heal()
        assert 0 < len(call.arrived) < BLOCKS
        rest = worker.call(9, from_blocks=len(call.arrived)).run(client)
        assert [a.block for a in (*call.arrived, *rest.arrived)] == list(range(BLOCKS))


def test_a_wrong_bit_in_the_stream_is_found(worker: Worker) -> None:
    with FaultProxy(("127.0.0.1", worker.served.port)) as proxy:
        proxy.set(down=Fault(corrupt_at_byte=50_000))
        with pytest.raises((StreamCorrupt, PeerError)):
            worker.call(30).run(worker.served.client(port=proxy.port))


def health(served: Served) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=5)
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def test_every_route_but_health_and_metrics_is_for_the_fleet_alone(worker: Worker) -> None:
    routes = [route for route in make_peer_app(worker.node).routes if isinstance(route, Route)]
    assert len(routes) > 6
    for route in routes:
        for method in (route.methods or set()) - {"HEAD"}:
            connection = http.client.HTTPConnection("127.0.0.1", worker.served.port, timeout=10)
            connection.request(method, route.path, body=b"{}" if method != "GET" else None)
            status = connection.getresponse().status
            connection.close()
            assert status == (200 if route.path in ("/healthz", "/metrics") else 401), (method, route.path)


def test_health_is_open_to_all_and_answers_while_the_engine_is_busy(worker: Worker, engine: Engine) -> None:
    with Held(engine):
        status, body = health(worker.served)
    assert (status, body["status"], body["node"], body["role"]) == (200, "ok", "worker", "worker")


def test_health_of_a_dead_engine_is_503(tiny_llama: Path) -> None:
    engine = Engine.load(tiny_llama, SETTINGS)
    node = Node(NodeSettings(NodeId("w"), "worker", TENANT, (KEY,)), BlockPool(2**20), engine.identity, engine)
    with Served(node) as served:
        engine.close()
        status, body = health(served)
    assert (status, body["reason"]) == (503, "the compute thread has stopped")


def test_metrics_are_prometheus_text(worker: Worker) -> None:
    worker.call(31).run()
    connection = http.client.HTTPConnection("127.0.0.1", worker.served.port, timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    samples = {family.name: family.samples[0].value for family in text_string_to_metric_families(text)}
    assert samples["kakeya_tokens_computed"] == BLOCKS * BLOCK_TOKENS


def test_cards_are_exchanged_both_ways(worker: Worker) -> None:
    guest = make_cache("guest").card()
    known = worker.client.exchange([guest]).cards
    assert {card.node for card in known} == {"worker", "guest"}
    assert worker.node.cards.card("guest") == guest


def test_an_upload_is_visible_only_when_whole() -> None:
    node = make_cache()
    parts = [(PartKey(block_hash(i), 0), payload(node.identity.layout, 0, i)) for i in range(20)]
    with Served(node) as served, FaultProxy(("127.0.0.1", served.port)) as proxy:
        client = served.client(port=proxy.port)
        proxy.set(up=Fault(cut_after_bytes=20_000))
        with pytest.raises(PeerError):
            client.put_blocks(node.identity.digest, parts)
        assert not any(node.pool.holds(key) for key, _ in parts)
        proxy.heal()
        assert client.put_blocks(node.identity.digest, parts) == 20
        assert all(node.pool.holds(key) for key, _ in parts)
    assert node.pool.stats().reserved_bytes == 0
    assert node.counters.value(CounterName.BYTES_STORED) == sum(part.nbytes for _, part in parts)


def test_an_upload_larger_than_the_pool_is_refused_and_evicts_nothing() -> None:
    node = make_cache()
    fill(node.pool, node.identity.layout, [block_hash(900)])
    big = [(PartKey(block_hash(i), 0), payload(node.identity.layout, 0, i)) for i in range(9000)]
    with Served(node) as served:
        with pytest.raises(PeerError):
            served.client().put_blocks(node.identity.digest, big)
        assert node.pool.holds(PartKey(block_hash(900), 0))
        assert not node.pool.holds(big[0][0])


def test_an_upload_under_another_identity_is_refused() -> None:
    node = make_cache()
    with Served(node) as served, pytest.raises(PeerRefused) as caught:
        served.client(make_caller("writer")).put_blocks("0" * 64, [])
    assert caught.value.code == "identity_mismatch"
