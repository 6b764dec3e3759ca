"""A peer as a source of blocks: a real server, a real client, a cache without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from faults.proxy import FaultProxy
from kakeya_ops.errors import PeerRefused, PeerUnreachable
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.peer.connection import CallAborted, StopFlag
from kakeya_ops.serving.sources import OutOfBounds, PeerSource
from kakeya_ops.serving.supply import Delivery, Errand, Order
from kakeya_ops.wire.bodies import MOST_BLOCKS
from kakeya_ops.wire.signing import new_nonce
from serving.running import Served, fill, hash_prompt, make_cache

LINK = {"rtt_seconds": 0.002, "bytes_per_second": 5e8}


@pytest.fixture
def peer() -> Iterator[Served]:
    with Served(make_cache()) as served:
        yield served


def source(peer: Served, port: int | None = None) -> PeerSource:
    return PeerSource(peer.node.card(), peer.client(port=port), peer.node.identity.digest, LINK)


def prompt_of(peer: Served, blocks: int, tenant: str = "tests") -> Order:
    tokens = tuple(range(blocks * peer.node.identity.block_tokens + 1))
    prompt = hash_prompt(peer.node.identity, tokens, tenant)
    return Order(prompt, 0, blocks, Errand(new_nonce(), StopFlag()))


def test_a_candidate_says_what_card_link_and_pool_say(peer: Served) -> None:
    order = prompt_of(peer, 5)
    fill(peer.node.pool, peer.node.identity.layout, order.prompt.hashes[:3])
    asked = source(peer)
    found = asked.look_up(order.prompt, StopFlag())
    assert (found.node, found.resume_blocks, found.computes) == ("cache", 3, False)
    assert (found.rtt_seconds, found.bytes_per_second) == (0.002, 5e8)
    worker = replace(asked, card=asked.card.model_copy(update={"role": "worker"}))
    assert worker.look_up(order.prompt, StopFlag()).computes
    unmeasured = replace(asked, link={"rtt_seconds": None, "bytes_per_second": None})
    assert unmeasured.look_up(order.prompt, StopFlag()).rtt_seconds == 0.0


def test_the_block_with_the_last_token_is_not_asked_for(peer: Served) -> None:
    size = peer.node.identity.block_tokens
    prompt = hash_prompt(peer.node.identity, tuple(range(2 * size)))
    fill(peer.node.pool, peer.node.identity.layout, prompt.hashes)
    assert source(peer).look_up(prompt, StopFlag()).resume_blocks == 1


def test_only_what_is_needed_and_not_had_is_fetched(peer: Served) -> None:
    order = prompt_of(peer, 6)
    layout = peer.node.identity.layout
    fill(peer.node.pool, layout, order.prompt.hashes)
    parts: dict[tuple[int, int], StoredPart] = {}
    delivery = source(peer).fetch(
        replace(order, from_blocks=2), lambda block, part, stored: parts.update({(block, part): stored})
    )
    assert set(parts) == {pair for pair in layout.needed(6) if pair[0] >= 2}
    assert delivery == Delivery(peer.node.epoch, peer.node.instance, None)
    for (block, part), stored in parts.items():
        held = peer.node.pool.get(order.prompt.key(block, part))
        assert held is not None
        assert bytes(stored.data) == bytes(held.data)


def test_the_process_that_delivers_is_named_even_if_the_card_is_of_the_one_before(peer: Served) -> None:
    order = prompt_of(peer, 2)
    fill(peer.node.pool, peer.node.identity.layout, order.prompt.hashes)
    old = source(peer)
    old = replace(old, card=old.card.model_copy(update={"epoch": 1, "instance": "00" * 16}))
    delivery = old.fetch(order, lambda block, part, stored: None)
    assert (delivery.epoch, delivery.instance) == (peer.node.epoch, peer.node.instance)


def test_a_cache_refuses_to_compute(peer: Served) -> None:
    with pytest.raises(PeerRefused, match="computes nothing") as caught:
        source(peer).compute(prompt_of(peer, 2), lambda block, part, stored: None)
    assert caught.value.code == "refused"


def test_another_identity_is_refused_by_name(peer: Served) -> None:
    stranger = replace(source(peer), identity="ab" * 32)
    with pytest.raises(PeerRefused) as caught:
        stranger.look_up(prompt_of(peer, 2).prompt, StopFlag())
    assert caught.value.code == "identity_mismatch"


def test_a_refused_connection_is_a_peer_error(peer: Served) -> None:
    with FaultProxy(("127.0.0.1", peer.port)) as proxy:
        proxy.set("refuse")
        with pytest.raises(PeerUnreachable):
            source(peer, proxy.port).look_up(prompt_of(peer, 2).prompt, StopFlag())


def test_a_client_that_has_left_stops_every_call(peer: Served) -> None:
    stop = StopFlag()
    stop.stop()
    order = replace(prompt_of(peer, 2), errand=Errand(new_nonce(), stop))
    asked = source(peer)
    for call in (
        lambda: asked.look_up(order.prompt, stop),
        lambda: asked.fetch(order, lambda *arrival: None),
        lambda: asked.compute(order, lambda *arrival: None),
    ):
        with pytest.raises(CallAborted):
            call()


def test_a_prompt_beyond_the_bounds_of_the_protocol_is_no_crash(peer: Served) -> None:
    order = prompt_of(peer, 1)
    endless = replace(order.prompt, hashes=order.prompt.hashes * (MOST_BLOCKS + 1), tokens=(1,) * 2**19)
    asked = source(peer)
    with pytest.raises(OutOfBounds, match="cannot be asked"):
        asked.look_up(endless, StopFlag())
    nameless = replace(order, prompt=replace(order.prompt, tenant="x" * 300))
    with pytest.raises(OutOfBounds):
        asked.compute(nameless, lambda block, part, stored: None)


def test_blocks_travel_packed_where_the_link_says_so(peer: Served) -> None:
    order = prompt_of(peer, 4)
    layout = peer.node.identity.layout
    for block in range(4):
        for part in range(len(layout.parts)):
            numbers = np.random.default_rng(block).normal(size=layout.parts[part].nbytes // 4).astype(np.float32)
            assert peer.node.pool.put(order.prompt.key(block, part), StoredPart.of(numbers.tobytes()))
    arrived: dict[tuple[int, int], bytes] = {}
    packed = replace(source(peer), link=LINK | {"packing": "exponents", "packed_share": 0.5})
    packed.fetch(order, lambda block, part, stored: arrived.update({(block, part): bytes(stored.data)}))
    assert set(arrived) == set(layout.needed(4))
    for (block, part), data in arrived.items():
        held = peer.node.pool.get(order.prompt.key(block, part))
        assert held is not None
        assert data == bytes(held.data)
    assert 0.7 < packed.link["packed_share"] < 0.95


def test_a_peer_that_has_restarted_since_it_was_asked_delivers_nothing_and_says_who_it_is(peer: Served) -> None:
    order = prompt_of(peer, 3)
    fill(peer.node.pool, peer.node.identity.layout, order.prompt.hashes[:3])
    asked = source(peer)
    assert asked.look_up(order.prompt, StopFlag()).resume_blocks == 3
    arrived: list[int] = []
    with Served(make_cache()) as restarted:
        stale = replace(asked, client=restarted.client())
        delivery = stale.fetch(order, lambda block, part, stored: arrived.append(block))
        assert (delivery.epoch, delivery.instance) == (restarted.node.epoch, restarted.node.instance)
        assert delivery.instance != asked.card.instance
    assert arrived == []
