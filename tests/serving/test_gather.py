"""Bringing a prefix together: own pool, one peer, and whatever is left when the peer fails; on a real engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine_bench import BLOCK_TOKENS, SETTINGS, prompt
from engine_requests import ask
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import Cancelled, PrefillJob
from kakeya_ops.errors import (
    PeerBusy,
    PeerError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    StreamCorrupt,
)
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.kv.pool import BlockPool, StoredPart
from kakeya_ops.peer.client import ReceiptRejected
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.gather import Gathered, Gathering
from kakeya_ops.serving.joint_fetch import Offer
from kakeya_ops.serving.prompts import Prompt
from kakeya_ops.serving.scheduler import Decision, Kind
from kakeya_ops.serving.supply import Delivery, Errand, OnPart, Order
from listeners import DEADLINE_SECONDS, Blocks
from serving.running import hash_prompt

BLOCKS = 6
LENGTH = BLOCKS * BLOCK_TOKENS + 5
Stored = dict[tuple[int, int], StoredPart]


@pytest.fixture(scope="module")
def engine(tiny_llama: Path) -> Iterator[Engine]:
    engine = Engine.load(tiny_llama, SETTINGS)
    yield engine
    engine.close()


@dataclass
class Case:
    """A prompt, all its blocks as a worker has them, and a head's pool."""

    engine: Engine
    prompt: Prompt
    stored: Stored
    pool: BlockPool = field(default_factory=lambda: BlockPool(2**22))

    def gathering(self, *, use_pool: bool = True) -> Gathering:
        return Gathering(self.engine, self.pool, self.prompt, use_pool=use_pool)

    def keep(self, *blocks: int) -> None:
        for block in blocks:
            assert self.pool.put(self.prompt.key(block, 0), self.stored[block, 0])

    def answer(self, gathered: Gathered) -> list[int]:
        return ask(self.engine, self.prompt.tokens, prefix=gathered.assembly).wait_for_end()

    def alone(self) -> list[int]:
        return ask(self.engine, self.prompt.tokens).wait_for_end()


@pytest.fixture
def case(engine: Engine, request: pytest.FixtureRequest) -> Case:
    tokens = prompt(LENGTH, seed=abs(hash(request.node.name)) % 2**31)
    kept = Blocks()
    engine.prefill(PrefillJob(tokens, BLOCKS, kept.keep, kept.done))
    assert kept.wait() is None
    stored = {(block, 0): parts[0] for block, parts in kept.parts.items() if parts[0] is not None}
    return Case(engine, hash_prompt(engine.identity, tokens), stored)


@dataclass
class Peer:
    """Sends `blocks` of a case, or else what was ordered, then raises `error` or says how it ended."""

    case: Case
    error: Exception | None = None
    blocks: tuple[int, ...] | None = None
    spoil: Callable[[dict[str, Any]], dict[str, Any]] = lambda receipt: receipt
    node: str = "peer"
    orders: list[Order] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    after: threading.Event | None = None

    @property
    def link(self) -> dict[str, Any]:
        return {"address": "127.0.0.1"}

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        self._send(order, on_part)
        return Delivery(7, "ab" * 16, None)

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        sent = self._send(order, on_part)
        digest = blocks_digest((block, 0, self.case.stored[block, 0].checksum) for block in sent)
        tokens = (order.blocks - order.from_blocks) * BLOCK_TOKENS
        receipt = {"job": "j", "computed_tokens": tokens, "pool_tokens": 0, "blocks_digest": digest}
        return Delivery(7, "ab" * 16, self.spoil(receipt))

    def _send(self, order: Order, on_part: OnPart) -> tuple[int, ...]:
        self.orders.append(order)
        assert self.after is None or self.after.wait(DEADLINE_SECONDS)
        sent = tuple(block for block, _ in order.places) if self.blocks is None else self.blocks
        for block in sent:
            on_part(block, 0, self.case.stored[block, 0])
        self.ended.set()
        if self.error:
            raise self.error
        return sent


def decide(kind: Any = "remote_compute", blocks: int = BLOCKS) -> Decision:
    return Decision(kind, "peer", blocks, "because")


def errand() -> Errand:
    return Errand("00" * 16, StopFlag())


def test_an_empty_pool_gives_nothing(case: Case) -> None:
    gathered = case.gathering().from_pool()
    assert (gathered.assembly, gathered.blocks, gathered.local_blocks) == (None, 0, 0)
    assert case.answer(gathered) == case.alone()


def test_what_the_own_pool_holds_is_resumed_after(case: Case) -> None:
    case.keep(0, 1, 2, 5)
    gathered = case.gathering().from_pool()
    assert (gathered.blocks, gathered.local_blocks) == (3, 3)
    assert gathered.seconds["import"] > 0
    assert case.answer(gathered) == case.alone()


def test_a_pool_that_must_not_be_read_is_not(case: Case) -> None:
    case.keep(*range(BLOCKS))
    gathering = case.gathering(use_pool=False)
    assert gathering.local_blocks == 0
    assert gathering.from_pool().blocks == 0


def test_a_worker_computes_what_is_missing(case: Case) -> None:
    case.keep(0, 1)
    peer = Peer(case)
    gathered = case.gathering().from_peer(decide(), peer, errand())
    assert [(order.from_blocks, order.blocks) for order in peer.orders] == [(2, BLOCKS)]
    assert (gathered.blocks, gathered.local_blocks, gathered.fallback) == (BLOCKS, 2, None)
    remote = gathered.remote
    assert remote is not None
    assert (remote.node, remote.epoch, remote.instance) == ("peer", 7, "ab" * 16)
    assert (remote.tokens, remote.computed_tokens, remote.blocks) == (4 * BLOCK_TOKENS, 4 * BLOCK_TOKENS, 4)
    assert remote.payload_bytes == gathered.received_bytes == sum(case.stored[b, 0].nbytes for b in range(2, BLOCKS))
    assert remote.worker_receipt is not None
    assert case.answer(gathered) == case.alone()


def test_whoever_waits_is_told_how_far_it_is(case: Case) -> None:
    case.keep(0, 1)
    told: list[int] = []
    case.gathering().from_peer(decide(), Peer(case), Errand("00" * 16, StopFlag(), told.append))
    assert told == list(range(3, BLOCKS + 1))


def test_what_arrives_is_kept_for_the_next_request(case: Case) -> None:
    case.gathering(use_pool=False).from_peer(decide(), Peer(case), errand())
    assert case.gathering().local_blocks == BLOCKS


def test_an_import_has_no_receipt_of_the_peer(case: Case) -> None:
    gathered = case.gathering().from_peer(decide("import", 4), Peer(case), errand())
    assert gathered.blocks == 4
    assert gathered.remote is not None
    assert (gathered.remote.worker_receipt, gathered.remote.job) == (None, None)
    assert (gathered.remote.pool_tokens, gathered.remote.computed_tokens) == (4 * BLOCK_TOKENS, 0)
    assert case.answer(gathered) == case.alone()


def test_an_import_comes_from_all_who_hold_it(case: Case) -> None:
    case.keep(0)
    first, second = Peer(case), Peer(case, node="other")
    gathered = case.gathering().from_peer(decide("import"), first, errand(), [Offer(second, BLOCKS)])
    assert (gathered.blocks, gathered.local_blocks, gathered.fallback) == (BLOCKS, 1, None)
    remote = gathered.remote
    assert remote is not None
    assert remote.sources == gathered.sources
    assert (remote.tokens, remote.blocks) == ((BLOCKS - 1) * BLOCK_TOKENS, BLOCKS - 1)
    assert sum(source.payload_bytes for source in remote.sources) == remote.payload_bytes == gathered.received_bytes
    everything = ((block, 0, case.stored[block, 0].checksum) for block in range(1, BLOCKS))
    assert remote.blocks_digest == blocks_digest(everything)
    assert case.answer(gathered) == case.alone()


def test_one_of_two_dies_and_the_other_brings_the_rest(case: Case) -> None:
    dying = Peer(case, FAULTS["unreachable"], (0, 1))
    other = Peer(case, node="other", after=dying.ended)
    gathered = case.gathering().from_peer(decide("import"), dying, errand(), [Offer(other, BLOCKS)])
    assert (gathered.blocks, gathered.fallback) == (BLOCKS, None)
    assert {source.node: source.fault for source in gathered.sources}["peer"] == "unreachable"
    assert gathered.remote is not None
    assert gathered.remote.node == "other"
    assert case.answer(gathered) == case.alone()


def test_all_of_several_die_and_what_came_is_kept(case: Case) -> None:
    one = Peer(case, FAULTS["timeout"], (0, 1))
    two = Peer(case, FAULTS["unreachable"], (0,), node="other", after=one.ended)
    gathered = case.gathering().from_peer(decide("import"), one, errand(), [Offer(two, BLOCKS)])
    assert gathered.remote is None
    assert gathered.fallback is not None
    assert (gathered.blocks, gathered.fallback.kept_blocks) == (2, 2)
    assert len(gathered.sources) == 2
    assert case.answer(gathered) == case.alone()
    assert case.pool.stats().pinned_bytes == 0


FAULTS: dict[str, PeerError] = {
    "unreachable": PeerUnreachable("peer", "gone"),
    "timeout": PeerTimeout("peer", "silent"),
    "busy": PeerBusy("peer", 2.0),
    "corrupt": StreamCorrupt("peer", "bad tag"),
    "pool_full": PeerRefused("peer", 507, "pool_full", "no room"),
    "identity_mismatch": PeerRefused("peer", 409, "identity_mismatch", "window"),
    "refused": PeerRefused("peer", 418, "a word that nobody knows", "?"),
}


@pytest.mark.parametrize("reason", FAULTS)
@pytest.mark.parametrize("arrived", [0, 3])
def test_a_fault_keeps_what_had_arrived_and_says_why(case: Case, reason: str, arrived: int) -> None:
    peer = Peer(case, FAULTS[reason], tuple(range(arrived)))
    gathered = case.gathering().from_peer(decide(), peer, errand())
    assert (gathered.blocks, gathered.local_blocks, gathered.remote) == (arrived, 0, None)
    fallback = gathered.fallback
    assert fallback is not None
    assert (fallback.worker, fallback.reason, fallback.kept_blocks) == ("peer", reason, arrived)
    assert fallback.message == FAULTS[reason].message
    assert gathered.seconds["wasted"] > 0
    assert case.answer(gathered) == case.alone()


def test_own_blocks_are_not_counted_as_kept(case: Case) -> None:
    case.keep(0, 1)
    peer = Peer(case, FAULTS["timeout"], (2, 3))
    gathered = case.gathering().from_peer(decide(), peer, errand())
    assert (gathered.blocks, gathered.local_blocks) == (4, 2)
    assert gathered.fallback is not None
    assert gathered.fallback.kept_blocks == 2
    assert gathered.received_bytes == 2 * case.stored[2, 0].nbytes
    assert case.answer(gathered) == case.alone()


def test_what_arrived_counts_where_the_pool_must_not_be_read(case: Case) -> None:
    case.keep(0, 1, 2, 3, 4)
    gathered = case.gathering(use_pool=False).from_peer(decide(), Peer(case, FAULTS["timeout"], (0, 1)), errand())
    assert (gathered.blocks, gathered.local_blocks) == (2, 0)
    assert case.answer(gathered) == case.alone()


def test_blocks_with_a_gap_before_them_are_of_no_use_now(case: Case) -> None:
    gathered = case.gathering(use_pool=False).from_peer(decide(), Peer(case, FAULTS["timeout"], (0, 2, 3)), errand())
    assert gathered.blocks == 1
    assert case.pool.holds(case.prompt.key(3, 0))


def test_a_peer_that_no_longer_holds_what_it_said_is_a_miss(case: Case) -> None:
    gathered = case.gathering().from_peer(decide("import"), Peer(case, blocks=(0, 1)), errand())
    assert gathered.fallback is not None
    assert (gathered.fallback.reason, gathered.fallback.kept_blocks) == ("gone", 2)
    assert case.answer(gathered) == case.alone()


def test_a_stream_that_ends_well_but_lacks_blocks_is_corrupt(case: Case) -> None:
    gathered = case.gathering().from_peer(decide(), Peer(case, blocks=(0, 1)), errand())
    assert gathered.fallback is not None
    assert gathered.fallback.reason == "corrupt"


def test_a_receipt_for_other_blocks_is_corrupt(case: Case) -> None:
    peer = Peer(case, spoil=lambda receipt: receipt | {"blocks_digest": "00" * 32})
    gathered = case.gathering().from_peer(decide(), peer, errand())
    assert gathered.remote is None
    assert gathered.fallback is not None
    assert gathered.fallback.reason == "corrupt"


@pytest.mark.parametrize("error", [None, ReceiptRejected("peer", "sent a receipt of another request")])
def test_nothing_is_kept_of_what_came_with_a_receipt_that_contradicts_it(
    case: Case, error: ReceiptRejected | None
) -> None:
    case.keep(0, 1)
    peer = Peer(case, error, spoil=lambda receipt: receipt | {"blocks_digest": "00" * 32})
    gathered = case.gathering().from_peer(decide(), peer, errand())
    assert gathered.fallback is not None
    assert (gathered.fallback.reason, gathered.fallback.kept_blocks) == ("corrupt", 0)
    assert (gathered.blocks, gathered.local_blocks) == (2, 2)
    assert [case.pool.holds(case.prompt.key(block, 0)) for block in range(BLOCKS)] == [True, True] + [False] * 4
    assert gathered.received_bytes == sum(case.stored[block, 0].nbytes for block in range(2, BLOCKS))
    assert not any(gathered.checksums.values())
    assert case.pool.stats().pinned_bytes == 0
    assert case.answer(gathered) == case.alone()


def test_nobody_waits_any_more(case: Case) -> None:
    with pytest.raises(Cancelled):
        case.gathering().from_peer(decide(), Peer(case, CallAborted("peer"), (0,)), errand())


def test_a_bug_is_not_hidden_as_a_fault_of_the_peer(case: Case) -> None:
    with pytest.raises(ZeroDivisionError):
        case.gathering().from_peer(decide(), Peer(case, ZeroDivisionError()), errand())


def test_nothing_stays_pinned_whatever_happens(case: Case) -> None:
    case.keep(0, 1, 2)
    with pytest.raises(ZeroDivisionError):
        case.gathering().from_peer(decide(), Peer(case, ZeroDivisionError(), blocks=()), errand())
    for error in (FAULTS["timeout"], None):
        case.gathering().from_peer(decide(), Peer(case, error), errand())
    assert case.pool.stats().pinned_bytes == 0


@pytest.mark.parametrize("kind", ["import", "remote_compute"])
def test_nobody_is_asked_for_what_another_request_has_brought_meanwhile(case: Case, kind: Kind) -> None:
    case.keep(*range(BLOCKS))
    peer = Peer(case, FAULTS["timeout"])
    others = (Offer(Peer(case, node="other"), BLOCKS),) if kind == "import" else ()
    gathered = case.gathering().from_peer(replace(decide(), kind=kind), peer, errand(), others)
    assert (gathered.blocks, gathered.remote, gathered.fallback, peer.orders) == (BLOCKS, None, None, [])
    assert case.answer(gathered) == case.alone()


def test_a_full_pool_loses_nothing_that_is_on_its_way(case: Case) -> None:
    """Its own first blocks go while others arrive: what is pinned stays until it is placed."""
    small = replace(case, pool=BlockPool(3 * case.stored[0, 0].nbytes))
    small.keep(0, 1)
    gathered = small.gathering().from_peer(decide(), Peer(case), errand())
    assert (gathered.blocks, gathered.fallback) == (BLOCKS, None)
    assert case.answer(gathered) == case.alone()


def test_a_peer_that_takes_too_long_is_salvaged_from(case: Case) -> None:
    slow = Peer(case, error=CallAborted("peer"), blocks=(0, 1, 2))
    late = Errand("00" * 16, StopFlag(), overrun=lambda: True)
    gathered = case.gathering().from_peer(decide(), slow, late)
    assert gathered.fallback is not None
    assert (gathered.fallback.reason, gathered.fallback.kept_blocks) == ("overrun", 3)
    assert case.answer(gathered) == case.alone()
