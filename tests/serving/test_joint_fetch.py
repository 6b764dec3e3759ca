"""One prefix from several peers at once: threads that wait for nothing, and never for the dead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from kakeya_ops.errors import PeerError, PeerTimeout, PeerUnreachable
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.joint_fetch import JointFetch, Offer
from kakeya_ops.serving.supply import Delivery, Errand, OnPart, Order
from serving.running import DEADLINE_SECONDS, hash_prompt, payload, simple_identity, simple_layout

BLOCKS = 24
LAYOUT = simple_layout(row_bytes=8 * 1024)
PROMPT = hash_prompt(simple_identity(LAYOUT), tuple(range(BLOCKS * 16 + 1)))


@dataclass
class Peer:
    """Sends what is ordered; after `good` payloads it raises `error`, or hangs until it is stopped."""

    node: str
    rate: float = 1e6
    good: int = 10**6
    error: PeerError | None = None
    forgets: frozenset[int] = frozenset()
    before: Callable[[], None] = lambda: None
    sent: list[tuple[int, int]] = field(default_factory=list)
    orders: list[Order] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    @property
    def link(self) -> dict[str, Any]:
        return {"address": self.node, "bytes_per_second": self.rate}

    def fetch(self, order: Order, on_part: OnPart) -> Delivery:
        self.orders.append(order)
        self.before()
        for block, part in order.places:
            if self.good == 0:
                self.ending.set()
                self._give_up(order.errand.stop)
            if order.errand.stop.stopped:
                raise CallAborted(self.node)
            if block not in self.forgets:
                self.good -= 1
                self.sent.append((block, part))
                on_part(block, part, payload(LAYOUT, part, block))
        return Delivery(7, "ab" * 16, None)

    def compute(self, order: Order, on_part: OnPart) -> Delivery:
        raise NotImplementedError

    def wait_for_its_end(self) -> None:
        assert self.ending.wait(DEADLINE_SECONDS)

    def _give_up(self, stop: StopFlag) -> None:
        if self.error:
            raise self.error
        stopped = threading.Event()
        relayed = Stopped(stopped)
        stop.relay(relayed)
        assert stopped.wait(DEADLINE_SECONDS)
        raise CallAborted(self.node)


class Stopped(StopFlag):
    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event = event

    def stop(self) -> None:
        self._event.set()


class Arrivals:
    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []

    def take(self, block: int, part: int, stored: StoredPart) -> None:
        self.places.append((block, part))


def fetch(*offers: Offer, stop: StopFlag | None = None) -> tuple[JointFetch, Arrivals, Order]:
    arrivals = Arrivals()
    order = Order(PROMPT, 2, BLOCKS, Errand("00" * 16, stop or StopFlag()))
    return JointFetch(order, offers, arrivals.take), arrivals, order


def whole(peer: Peer) -> Offer:
    return Offer(peer, BLOCKS)


def test_two_share_the_work_and_each_payload_comes_once() -> None:
    both = threading.Barrier(2, timeout=DEADLINE_SECONDS)
    once: set[str] = set()

    def meet(name: str) -> Callable[[], None]:
        def wait() -> None:
            if name not in once:
                once.add(name)
                both.wait()

        return wait

    first, second = Peer("a", before=meet("a")), Peer("b", before=meet("b"))
    joint, arrivals, order = fetch(whole(first), whole(second))
    assert joint.run()
    assert sorted(arrivals.places) == sorted(order.places)
    shares = {share.node: share for share in joint.shares}
    assert set(shares) == {"a", "b"}
    assert sum(share.payload_bytes for share in shares.values()) == len(order.places) * LAYOUT.parts[0].nbytes
    assert all(share.fault is None and share.blocks > 0 for share in shares.values())
    assert (shares["a"].epoch, shares["a"].instance) == (7, "ab" * 16)


def test_the_fastest_begins_at_the_beginning() -> None:
    slow, fast = Peer("slow", 1e3), Peer("fast", 1e9)
    joint, _, order = fetch(whole(slow), whole(fast))
    assert joint.run()
    assert fast.orders[0].places[0] == order.places[0]


@pytest.mark.parametrize("error", [PeerUnreachable("a", "gone"), PeerTimeout("a", "silent"), None])
def test_one_dies_or_hangs_in_mid_stream_and_the_other_goes_on(error: PeerError | None) -> None:
    dying = Peer("a", 1e9, good=3, error=error)
    living = Peer("b", 1e6, before=dying.wait_for_its_end)
    joint, arrivals, order = fetch(whole(dying), whole(living))
    assert joint.run()
    assert sorted(arrivals.places) == sorted(order.places)
    shares = {share.node: share for share in joint.shares}
    assert shares["a"].fault == (error.reason if error else None)
    assert shares["b"].fault is None
    assert shares["a"].payload_bytes == 3 * LAYOUT.parts[0].nbytes


def test_all_die() -> None:
    error = PeerUnreachable("a", "gone")
    first = Peer("a", 1e9, good=2, error=error)
    second = Peer("b", good=1, error=PeerTimeout("b", "silent"), before=first.wait_for_its_end)
    joint, arrivals, order = fetch(whole(first), whole(second))
    assert not joint.run()
    assert joint.error is error
    assert len(arrivals.places) == 3
    assert set(arrivals.places) < set(order.places)


def test_who_holds_less_is_not_asked_for_more() -> None:
    less, more = Peer("less", 1e9), Peer("more", 1e6)
    joint, arrivals, order = fetch(Offer(less, 6), whole(more))
    assert joint.run()
    assert sorted(arrivals.places) == sorted(order.places)
    assert {block for block, _ in less.sent} <= set(range(2, 6))


def test_who_has_forgotten_is_no_longer_asked() -> None:
    started = threading.Event()
    forgetful = Peer("a", 1e9, forgets=frozenset(range(2, 5)), before=started.set)
    other = Peer("b", 1e6, before=lambda: assert_set(started))
    joint, arrivals, order = fetch(whole(forgetful), whole(other))
    assert joint.run()
    assert sorted(arrivals.places) == sorted(order.places)
    assert {share.node: share.fault for share in joint.shares} == {"a": "gone", "b": None}


def assert_set(event: threading.Event) -> None:
    assert event.wait(DEADLINE_SECONDS)


def test_nobody_has_it_any_more() -> None:
    gone = frozenset([3])
    joint, arrivals, _ = fetch(whole(Peer("a", forgets=gone)), whole(Peer("b", forgets=gone)))
    assert not joint.run()
    assert joint.error.reason == "gone"
    assert (4, 0) in arrivals.places


def test_nobody_waits_any_more() -> None:
    stop = StopFlag()
    hanging = Peer("a", good=1, before=lambda: None)
    joint, _, _ = fetch(whole(hanging), whole(Peer("b", good=1)), stop=stop)
    timer = threading.Timer(0.05, stop.stop)
    timer.start()
    with pytest.raises(CallAborted):
        joint.run()
    timer.join()


def test_a_bug_is_told_as_what_it_is() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    joint, _, _ = fetch(whole(Peer("a", before=broken)), whole(Peer("b", before=broken)))
    with pytest.raises(ZeroDivisionError):
        joint.run()
