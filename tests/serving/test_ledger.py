"""What is written down of each request: each prompt token once, each fault by its reason, a receipt that is signed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from engine_bench import prompt
from kakeya_ops.engine.contract import CacheSettings, DecodeRequest
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.rate import PrefillRate
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.serving.answer import Answer
from kakeya_ops.serving.contract import GenerateRequest
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.gather import Gathered
from kakeya_ops.serving.ledger import Ledger, Settled
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.receipts import PURPOSE, Fallback, Receipt, RemotePart, SourcePart
from kakeya_ops.serving.scheduler import Decision
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import Directive, verify_document
from serving.running import KEY, TENANT, hash_prompt

SIZE = 64
LENGTH = 10 * SIZE + 1
SINK, WINDOW = 4, 256
LOCAL = Decision("local", None, 0, "why not")
COMPUTE = Decision("remote_compute", "worker", 10, "faster")
IMPORT = Decision("import", "worker", 10, "held")


@dataclass(frozen=True)
class Prefix:
    """Stands for an assembly of so many blocks."""

    blocks: int


def gathered(blocks: int, local_blocks: int = 0, **more: Any) -> Gathered:
    return Gathered(cast(Any, Prefix(blocks)) if blocks else None, local_blocks, **more)


def remote(computed_blocks: int, pool_blocks: int = 0, compute_seconds: float | None = None) -> RemotePart:
    receipt = None if compute_seconds is None else {"compute_seconds": compute_seconds}
    return RemotePart(
        node="worker",
        epoch=7,
        instance="ab" * 16,
        kind="remote_compute" if computed_blocks else "import",
        job=None,
        tokens=(computed_blocks + pool_blocks) * SIZE,
        computed_tokens=computed_blocks * SIZE,
        pool_tokens=pool_blocks * SIZE,
        blocks=computed_blocks + pool_blocks,
        payload_bytes=1000,
        blocks_digest="cd" * 32,
        transfer_seconds=0.5,
        link={},
        worker_receipt=receipt,
    )


class Desk:
    """A ledger over a real engine with a window."""

    def __init__(self, engine: Engine) -> None:
        settings = NodeSettings(NodeId("head"), "head", TENANT, (KEY,))
        self.node = Node(settings, BlockPool(2**20), engine.identity, engine)
        self.ledger = Ledger(self.node, engine)
        self.prompt = hash_prompt(engine.identity, prompt(LENGTH))
        self.directive: Directive | None = None

    def settle(self, decision: Decision, of: Gathered) -> Receipt:
        request = GenerateRequest(DecodeRequest("request", self.prompt.tokens, 4), TENANT, self.directive)
        answer = Answer(request, lambda event: None, lambda: None)
        self.ledger.record_transfer(decision, of)
        return self.ledger.settle(Settled(answer, self.prompt, decision, of, {"first_token": 0.123456789}))

    def counters(self) -> dict[str, float]:
        return {name: value for name, value in self.node.counters.snapshot().items() if value}


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, CacheSettings(sink=SINK, window=WINDOW))
    yield engine
    engine.close()


@pytest.fixture
def desk(engine: Engine) -> Desk:
    return Desk(engine)


CASES = {
    "all here": (LOCAL, gathered(0), {"tokens_computed_local": LENGTH}),
    "from the own pool": (
        LOCAL,
        gathered(6, 6),
        {"tokens_computed_local": LENGTH - 6 * SIZE, "tokens_reused": 6 * SIZE, "local_hits": 1},
    ),
    "all there": (
        COMPUTE,
        gathered(10, remote=remote(10), received_bytes=1000),
        {"tokens_computed_local": 1, "tokens_computed_remote": 10 * SIZE, "bytes_received": 1000},
    ),
    "some here, some there, some from its pool": (
        COMPUTE,
        gathered(10, 3, remote=remote(4, 3), received_bytes=700),
        {
            "tokens_computed_local": 1,
            "tokens_computed_remote": 4 * SIZE,
            "tokens_reused": 6 * SIZE,
            "bytes_received": 700,
            "local_hits": 1,
            "remote_hits": 1,
        },
    ),
    "a job that computed more than was sent": (
        COMPUTE,
        gathered(10, 6, remote=remote(10), received_bytes=400),
        {
            "tokens_computed_local": 1,
            "tokens_computed_remote": 10 * SIZE,
            "bytes_received": 400,
            "local_hits": 1,
        },
    ),
    "an import": (
        IMPORT,
        gathered(10, remote=remote(0, 10), received_bytes=1000),
        {"tokens_computed_local": 1, "tokens_reused": 10 * SIZE, "bytes_received": 1000, "remote_hits": 1},
    ),
    "a job that broke": (
        COMPUTE,
        gathered(4, fallback=Fallback("worker", "timeout", "silent", 4), received_bytes=400),
        {
            "tokens_computed_local": LENGTH - 4 * SIZE,
            "tokens_reused": 4 * SIZE,
            "bytes_received": 400,
            "fallbacks": 1,
            "remote_job_failures": 1,
        },
    ),
    "an import that broke": (
        IMPORT,
        gathered(0, fallback=Fallback("worker", "gone", "evicted")),
        {"tokens_computed_local": LENGTH, "fallbacks": 1},
    ),
    "nobody answered": (
        LOCAL,
        gathered(0, fallback=Fallback("worker", "timeout", "late")),
        {"tokens_computed_local": LENGTH, "fallbacks": 1},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_prompt_token_is_counted_once(desk: Desk, name: str) -> None:
    decision, of, expected = CASES[name]
    desk.settle(decision, of)
    counted = desk.counters()
    counted.pop("transfer_seconds", None)
    assert counted == expected
    tokens = (counted.get(f"tokens_{what}", 0) for what in ("computed_local", "computed_remote", "reused"))
    assert sum(tokens) == LENGTH


def test_faults_are_counted_by_worker_and_reason(desk: Desk) -> None:
    desk.settle(*CASES["a job that broke"][:2])
    desk.settle(*CASES["nobody answered"][:2])
    desk.settle(*CASES["an import that broke"][:2])
    assert desk.node.counters.by_reason(CounterName.FALLBACKS) == {"gone": 1, "timeout": 2}
    assert desk.node.counters.by_worker()["worker"]["fallbacks"] == 3


def test_each_source_is_counted_with_its_own_bytes_and_who_failed_on_the_way(desk: Desk) -> None:
    sources = (
        SourcePart("worker", 7, "ab" * 16, 8, 800, 0.4, {}, None),
        SourcePart("cache", None, None, 2, 200, 0.1, {}, "timeout"),
        SourcePart("late", None, None, 0, 0, 0.1, {}, None),
    )
    whole = replace(remote(0, 10), sources=sources)
    desk.ledger.record_transfer(IMPORT, gathered(10, remote=whole, sources=sources, received_bytes=1000))
    counters = desk.node.counters
    assert counters.value(CounterName.BYTES_RECEIVED, worker="worker") == 800
    assert counters.value(CounterName.BYTES_RECEIVED, worker="cache") == 200
    assert counters.value(CounterName.REMOTE_HITS) == 1
    assert counters.by_reason(CounterName.TRANSFERS_RESUMED) == {"timeout": 1}
    assert counters.value(CounterName.FALLBACKS) == 0


def test_a_receipt_is_signed_kept_and_whole(desk: Desk) -> None:
    desk.directive = Directive(frozenset({"remote"}), "77" * 16)
    receipt = desk.settle(COMPUTE, gathered(10, 2, remote=remote(8)))
    document = receipt.to_json()
    verify_document([KEY], PURPOSE, document, document["mac"])
    assert desk.ledger.receipts.get("request") == receipt
    assert (receipt.node, receipt.epoch, receipt.identity) == ("head", desk.node.epoch, desk.node.identity.digest)
    assert (receipt.tenant, receipt.client_nonce) == (TENANT, "77" * 16)
    assert (receipt.prompt_tokens, receipt.cached_tokens, receipt.local_computed_tokens) == (LENGTH, 10 * SIZE, 1)
    assert receipt.local_pool_tokens == 2 * SIZE
    assert receipt.times == {"first_token": 0.123457}


def test_what_the_window_forgot_is_said(desk: Desk) -> None:
    assert desk.settle(LOCAL, gathered(0)).forgotten_tokens == LENGTH - SINK - WINDOW
    desk.prompt = replace(desk.prompt, tokens=desk.prompt.tokens[: SINK + WINDOW])
    assert desk.settle(LOCAL, gathered(0)).forgotten_tokens == 0


@pytest.mark.parametrize(
    ("of", "gain"),
    [
        (gathered(0), "none"),
        (gathered(6, 6), "reuse"),
        (gathered(10, remote=remote(0, 10)), "reuse"),
        (gathered(10, remote=remote(10)), "faster worker"),
        (gathered(10, remote=replace(remote(10), transfer_seconds=0.9)), "none"),
        (gathered(10, remote=replace(remote(10, compute_seconds=0.1), transfer_seconds=1.0)), "none"),
        (gathered(4, fallback=Fallback("worker", "timeout", "silent", 4)), "none"),
    ],
)
def test_the_gain_is_named(
    desk: Desk, engine: Engine, monkeypatch: pytest.MonkeyPatch, of: Gathered, gain: str
) -> None:
    rate = PrefillRate()
    monkeypatch.setattr(PrefillRate, "tokens_per_second", property(lambda self: 10 * SIZE / 1.0))
    monkeypatch.setattr(engine._prefills, "rate", rate)
    assert desk.settle(COMPUTE if of.remote else LOCAL, of).gain == gain
