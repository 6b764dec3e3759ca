"""Who delivers what: nothing is left out, whoever dies, stalls or has less than it said."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.serving.division import LEAST_PIECE_BYTES, Division, Place
from serving.running import simple_layout

LAYOUT = simple_layout(row_bytes=8 * 1024)
PAYLOAD_BYTES = LAYOUT.parts[0].nbytes
BLOCKS = 64


def places(blocks: int = BLOCKS) -> list[Place]:
    return [(block, 0) for block in range(blocks)]


def divide(*holders: tuple[str, float], wanted: list[Place] | None = None) -> Division:
    division = Division(LAYOUT, wanted or places())
    for node, rate in holders:
        division.join(node, wanted or places(), rate)
    return division


def test_one_alone_takes_everything_at_once() -> None:
    division = divide(("a", 1e6))
    assert division.take("a") == places()
    assert not division.complete


def test_the_faster_takes_more_and_pieces_shrink() -> None:
    division = divide(("fast", 9e6), ("slow", 1e6))
    fast, slow = division.take("fast"), division.take("slow")
    assert len(fast) == int(BLOCKS * 0.9 / 2)
    assert len(slow) == LEAST_PIECE_BYTES // PAYLOAD_BYTES
    assert fast + slow == places()[: len(fast) + len(slow)]
    division.ended("fast", lost=False)
    assert 0 < len(division.take("fast")) < len(fast)


def test_nobody_is_asked_for_what_it_does_not_hold() -> None:
    division = Division(LAYOUT, places(8))
    division.join("short", places(3), 1e9)
    division.join("whole", places(8), 1e3)
    assert division.take("whole")[0] == (0, 0)
    assert set(division.take("short")) <= set(places(3))
    assert division.take("stranger") == []


def test_what_the_dead_had_taken_goes_to_the_others() -> None:
    division = divide(("a", 1e6), ("b", 1e6))
    piece = division.take("a")
    division.arrived(piece[0])
    division.ended("a", lost=True)
    assert division.take("b") == [place for place in places() if place != piece[0]]
    assert division.take("a") == []


def test_who_is_idle_at_the_end_fetches_the_last_of_what_another_is_slow_with() -> None:
    division = divide(("a", 1e6), ("b", 1e6), wanted=places(20))
    taken = {node: division.take(node) for node in "ab"}
    while piece := division.take("b"):
        if set(piece) & set(taken["a"]):
            break
        for place in (*taken["b"], *piece):
            division.arrived(place)
    assert piece == taken["a"][len(taken["a"]) // 2 :]
    for place in piece:
        division.arrived(place)
    division.ended("b", lost=False)
    assert division.take("b") == taken["a"][len(taken["a"]) // 4 : len(taken["a"]) // 2]
    division.ended("a", lost=True)
    assert not division.hopeless()


def test_without_anybody_it_is_hopeless() -> None:
    division = divide(("a", 1e6))
    division.take("a")
    division.ended("a", lost=False)
    assert division.hopeless()
    division = divide(("a", 1e6), wanted=places(1))
    division.arrived((0, 0))
    assert division.complete
    assert not division.hopeless()


@dataclass
class Peer:
    """What a peer really does of what it is asked."""

    can: set[Place]
    rate: float
    dies_after: int
    forgets: set[Place]
    queue: list[Place] = field(default_factory=list)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Place], dict[str, Peer], int]:
    wanted = sorted({(block, part) for block in range(draw(st.integers(1, 40))) for part in (0, 1)})
    subset = st.sets(st.sampled_from(wanted))
    peers = st.builds(Peer, subset | st.just(set(wanted)), st.floats(1e3, 1e9), st.integers(0, 60), subset.map(set))
    named = draw(st.dictionaries(st.sampled_from("abcd"), peers, min_size=1))
    return wanted, named, draw(st.integers(0, 2**16))


@settings(max_examples=80, deadline=None)
@given(fleets())
def test_everything_comes_that_anybody_alive_has(fleet: tuple[list[Place], dict[str, Peer], int]) -> None:
    """In any order of events; and it ends."""
    wanted, peers, seed = fleet
    order = random.Random(seed)
    division = Division(LAYOUT, wanted)
    for node, peer in peers.items():
        division.join(node, peer.can, peer.rate)
    alive, arrived = dict(peers), set[Place]()
    for _ in range(5000):
        idle = [node for node, peer in alive.items() if not peer.queue]
        for node in idle:
            alive[node].queue = division.take(node)
        busy = [node for node in alive if alive[node].queue]
        if division.complete or not busy:
            break
        _act(division, alive, order.choice(busy), arrived)
    assert division.complete == (arrived == set(wanted))
    had = {place for node, peer in alive.items() for place in peer.can - peer.forgets}
    assert had & set(wanted) <= arrived


def _act(division: Division, alive: dict[str, Peer], node: str, arrived: set[Place]) -> None:
    """One event: a payload arrives, is left out, or the peer dies."""
    peer = alive[node]
    if peer.dies_after == 0:
        division.ended(node, lost=True)
        del alive[node]
        return
    peer.dies_after -= 1
    place = peer.queue.pop(0)
    if place not in peer.forgets:
        arrived.add(place)
        division.arrived(place)
    if not peer.queue:
        division.ended(node, lost=False)
