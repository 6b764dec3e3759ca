"""Prefixes on their way to peers' pools: real caches behind proxies, and a head that only has a pool."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain as concatenated
from itertools import repeat

import pytest

from faults.proxy import Fault, FaultProxy
from kakeya_ops.errors import PeerError, PeerTimeout
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.backlog import Chain
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.placement import Member, choose_peers, root_of
from kakeya_ops.serving.publishing import Publisher, PublishRules, Shelf, find_lacking
from kakeya_ops.serving.sources import PeerSource
from kakeya_ops.units import BlockHash
from kakeya_ops.wire.bodies import LookupReply
from serving.running import DEADLINE_SECONDS, Served, fill, hash_prompt, make_cache, simple_identity, simple_layout

LINK = {"rtt_seconds": 0.001, "bytes_per_second": 1e8}
BLOCKS = 5
LAYOUT = simple_layout()
ANY_LENGTH = PublishRules(min_tokens=1)


def chain(seed: int = 0, blocks: int = BLOCKS, layout: KvLayout = LAYOUT) -> Chain:
    tokens = (seed, *range(1, layout.block_tokens * blocks + 1))
    return Chain(hash_prompt(simple_identity(layout), tokens), blocks)


def keep(node: Node, one: Chain) -> Chain:
    fill(node.pool, one.prompt.layout, one.prompt.hashes[: one.blocks])
    return one


def held_blocks(node: Node, one: Chain) -> int:
    return longest_resume(one.prompt.layout, one.prompt.hashes, node.pool.holds, one.blocks)


@dataclass
class Street:
    """A head with a pool, and the caches that it knows."""

    stack: ExitStack
    layout: KvLayout = LAYOUT
    head: Node = field(init=False)
    caches: dict[str, Served] = field(default_factory=dict)
    proxies: dict[str, FaultProxy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.head = make_cache("head", identity=simple_identity(self.layout))

    def settle(self, *names: str) -> Street:
        for name in names:
            node = make_cache(name, identity=simple_identity(self.layout))
            served = self.caches[name] = self.stack.enter_context(Served(node))
            self.proxies[name] = self.stack.enter_context(FaultProxy(("127.0.0.1", served.port)))
        return self

    def shelves(self) -> list[PeerSource]:
        digest = self.head.identity.digest
        return [
            PeerSource(served.node.card(), served.client(port=self.proxies[name].port), digest, LINK)
            for name, served in self.caches.items()
        ]

    def publisher(
        self, rules: PublishRules = ANY_LENGTH, find: Callable[[], Sequence[Shelf]] | None = None
    ) -> Publisher:
        known = self.shelves()
        publisher = Publisher(self.head, find or (lambda: known), rules, clock=lambda: 0.0)
        self.stack.callback(publisher.close)
        return publisher

    def counted(self, name: CounterName, reason: str | None = None) -> float:
        return self.head.counters.value(name, reason=reason)


@pytest.fixture
def street() -> Iterator[Street]:
    with ExitStack() as stack:
        yield Street(stack)


def test_a_prefix_comes_to_those_who_are_chosen(street: Street) -> None:
    street.settle("a", "b", "c")
    one = keep(street.head, chain())
    publisher = street.publisher(PublishRules(replicas=2, min_tokens=1))
    publisher.offer(one)
    assert publisher.wait_idle(DEADLINE_SECONDS)
    capacity = street.head.pool.budget_bytes
    chosen = choose_peers([Member(name, capacity) for name in "abc"], root_of(one.prompt.hashes), 2)
    held = {name: held_blocks(served.node, one) for name, served in street.caches.items()}
    assert held == {name: BLOCKS if name in chosen else 0 for name in "abc"}
    sent = street.head.pool.used_bytes
    assert street.counted(CounterName.BYTES_PUBLISHED) == 2 * sent
    assert street.counted(CounterName.BLOCKS_DROPPED) == 0
    assert street.head.pool.stats().pinned_bytes == 0


def test_only_what_a_peer_lacks_is_sent(street: Street) -> None:
    street.settle("a")
    publisher = street.publisher()
    whole = keep(street.head, chain())
    for blocks in (2, BLOCKS, BLOCKS):
        publisher.offer(replace(whole, blocks=blocks))
        assert publisher.wait_idle(DEADLINE_SECONDS)
    assert street.counted(CounterName.BYTES_PUBLISHED) == street.head.pool.used_bytes
    assert held_blocks(street.caches["a"].node, whole) == BLOCKS


@pytest.mark.parametrize("rules", [PublishRules(0, 1), PublishRules(1, BLOCKS * 16 + 1)])
def test_what_is_not_to_be_published_starts_no_thread(street: Street, rules: PublishRules) -> None:
    street.publisher(rules, lambda: []).offer(keep(street.head, chain()))
    assert carriers() == []


def test_without_peers_nothing_happens(street: Street) -> None:
    publisher = street.publisher(find=lambda: [])
    publisher.offer(keep(street.head, chain()))
    assert publisher.wait_idle(DEADLINE_SECONDS)
    assert street.counted(CounterName.BLOCKS_DROPPED) == 0


def test_what_has_left_the_pool_is_not_sent_and_counted(street: Street) -> None:
    street.settle("a")
    publisher = street.publisher()
    shelf = street.shelves()[0]
    one = keep(street.head, chain())

    @dataclass
    class Forgetting:
        node: str = "a"
        capacity_bytes: int = 1

        def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
            return shelf.ask_held(hashes, stop)

        def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
            raise AssertionError("there is nothing to store")

    def find() -> list[Shelf]:
        return [Forgetting()]

    publisher = street.publisher(find=find)
    original = street.head.pool.pin

    def pin_nothing(keys: object) -> object:
        street.head.pool.clear()
        return original(keys)  # type: ignore[arg-type]

    street.head.pool.pin = pin_nothing  # type: ignore[method-assign,assignment]
    publisher.offer(one)
    assert publisher.wait_idle(DEADLINE_SECONDS)
    assert street.counted(CounterName.BLOCKS_DROPPED, "evicted") == BLOCKS


def test_a_peer_that_fails_is_left_alone_for_a_while(street: Street) -> None:
    street.settle("a")
    street.proxies["a"].set("refuse")
    publisher = street.publisher()
    for seed in range(3):
        publisher.offer(keep(street.head, chain(seed)))
        assert publisher.wait_idle(DEADLINE_SECONDS)
    assert street.counted(CounterName.BLOCKS_DROPPED, "unreachable") == BLOCKS
    assert street.proxies["a"].accepted == 1


def test_who_fails_yields_to_the_next(street: Street) -> None:
    street.settle("a", "b")
    one = keep(street.head, chain())
    capacity = street.head.pool.budget_bytes
    first, second = choose_peers([Member(name, capacity) for name in "ab"], root_of(one.prompt.hashes), 2)
    street.proxies[first].set("refuse")
    publisher = street.publisher()
    for _ in range(2):
        publisher.offer(one)
        assert publisher.wait_idle(DEADLINE_SECONDS)
    assert held_blocks(street.caches[second].node, one) == BLOCKS


def test_two_hundred_prefixes_for_a_slow_peer(street: Street) -> None:
    """A peer at 100 KB/s holds up nobody: what is too much is dropped and counted, and another peer gets all of its."""
    layout = simple_layout(row_bytes=1024)
    street = Street(street.stack, layout).settle("slow", "quick")
    street.proxies["slow"].set(up=Fault(bytes_per_second=100_000))
    rules = PublishRules(replicas=2, min_tokens=1)
    publisher = street.publisher(rules)
    chains = [keep(street.head, chain(seed, 1, layout)) for seed in range(200)]
    for one in chains:
        publisher.offer(one)
    assert set(carriers()) <= {"publisher", "publish-slow", "publish-quick"}
    last = chains[-1]
    quick = street.caches["quick"].node
    assert street.head.pool.stats().pinned_bytes <= 2 * 256 * 1024
    assert _happens(lambda: held_blocks(quick, last) == 1)
    dropped = street.counted(CounterName.BLOCKS_DROPPED, "full")
    assert dropped >= 200 - rules.most_entries - 20
    publisher.close()
    assert carriers() == []
    assert street.head.pool.stats().pinned_bytes == 0


def carriers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("publish")]


def _happens(condition: Callable[[], bool]) -> bool:
    ended = threading.Event()
    for _ in range(int(DEADLINE_SECONDS * 100)):
        if condition():
            return True
        ended.wait(0.01)
    return False


def test_closing_breaks_off_what_is_under_way(street: Street) -> None:
    street.settle("a")
    publisher = street.publisher()
    street.proxies["a"].set(up=Fault(drop_after_bytes=2000))
    publisher.offer(keep(street.head, chain()))
    assert street.proxies["a"].wait_until(lambda proxy: proxy.accepted > 0)
    publisher.close()
    assert publisher.wait_idle(0)
    assert street.head.pool.stats().pinned_bytes == 0
    publisher.offer(chain())
    assert publisher.wait_idle(0)


def test_pieces_follow_the_link(street: Street) -> None:
    """Each takes about a second: twice as large after a quick one, half as large after a slow one."""
    layout = simple_layout(row_bytes=16 * 1024)
    street = Street(street.stack, layout)
    sizes: list[int] = []
    clock = [0.0]
    seconds = concatenated([0.1, 0.1, 3.0, 3.0], repeat(1.0))

    @dataclass
    class Scale:
        node: str = "a"
        capacity_bytes: int = 1

        def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
            return LookupReply(resume_blocks=0, parts_held=0)

        def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
            sizes.append(len(parts))
            clock[0] += next(seconds)

    def find() -> list[Shelf]:
        return [Scale()]

    one = chain(0, 6, layout)
    publisher = Publisher(street.head, find, PublishRules(min_tokens=1), clock=lambda: clock[0])
    publisher.offer(keep(street.head, one))
    assert publisher.wait_idle(DEADLINE_SECONDS)
    publisher.close()
    payload = layout.parts[0].nbytes
    assert payload == 2 * 256 * 1024
    assert sum(sizes) == 12
    assert sizes == [1, 1, 2, *[1] * 8]


def test_a_bug_in_one_delivery_ends_that_one_alone(street: Street) -> None:
    street.settle("a")
    real = street.shelves()[0]
    calls: list[int] = []

    @dataclass
    class Odd:
        node: str = "a"
        capacity_bytes: int = 1

        def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
            calls.append(1)
            if len(calls) == 1:
                raise ZeroDivisionError
            return real.ask_held(hashes, stop)

        def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
            real.store(parts, stop)

    def find() -> list[Shelf]:
        return [Odd()]

    publisher = street.publisher(find=find)
    first, second = keep(street.head, chain(0)), keep(street.head, chain(1))
    for one in (first, second):
        publisher.offer(one)
        assert publisher.wait_idle(DEADLINE_SECONDS)
    assert street.counted(CounterName.BLOCKS_DROPPED, "internal") == BLOCKS
    assert held_blocks(street.caches["a"].node, second) == BLOCKS


def test_the_rest_after_a_fault_is_counted(street: Street) -> None:
    layout = simple_layout(row_bytes=16 * 1024)
    street = Street(street.stack, layout)
    errors: list[PeerError | None] = [None, None, PeerTimeout("a", "silent")]

    @dataclass
    class Failing:
        node: str = "a"
        capacity_bytes: int = 1

        def ask_held(self, hashes: Sequence[BlockHash], stop: StopFlag) -> LookupReply:
            return LookupReply(resume_blocks=0, parts_held=0)

        def store(self, parts: Sequence[tuple[PartKey, StoredPart]], stop: StopFlag) -> None:
            if error := errors.pop(0):
                raise error

    def find() -> list[Shelf]:
        return [Failing()]

    publisher = Publisher(street.head, find, PublishRules(min_tokens=1), clock=lambda: 0.0)
    publisher.offer(keep(street.head, chain(0, 6, layout)))
    assert publisher.wait_idle(DEADLINE_SECONDS)
    publisher.close()
    assert 0 < street.counted(CounterName.BLOCKS_DROPPED, "timeout") < 6


def test_what_is_lacking() -> None:
    one = chain()

    def every(key: PartKey) -> bool:
        return True

    def lacking(resume: int, held: int) -> list[tuple[int, int]]:
        return find_lacking(one, LookupReply(resume_blocks=resume, parts_held=held), every)

    everything = [(block, part) for block in range(BLOCKS) for part in (0, 1)]
    assert lacking(0, 0) == everything
    assert lacking(BLOCKS, 10) == []
    assert lacking(3, 6) == everything[6:]
    # It can resume after three blocks, but has only the last two of its window.
    assert lacking(3, 5) == [(0, 1), *everything[6:]]
    assert find_lacking(one, LookupReply(resume_blocks=0, parts_held=0), lambda key: key.part == 0) == [
        (block, 0) for block in range(BLOCKS)
    ]
