"""Where prefixes lie: the same for all who know the same peers, balanced, and with as little movement as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.serving.placement import ROOT_BLOCKS, Member, choose_peers, root_of
from kakeya_ops.units import BlockHash
from serving.running import block_hash

names = st.sets(st.text("abcdefgh-0123456789", min_size=1, max_size=8), min_size=1, max_size=8)
weights = st.floats(1.0, 1e12)
members = names.flatmap(lambda found: st.tuples(*(st.builds(Member, st.just(name), weights) for name in sorted(found))))
roots = st.binary(min_size=32, max_size=32).map(BlockHash)


@settings(max_examples=40)
@given(members, roots, st.integers(0, 10), st.randoms(use_true_random=False))
def test_all_who_know_the_same_peers_agree(peers: tuple[Member, ...], root: BlockHash, replicas: int, order) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(peers)
    order.shuffle(shuffled)
    chosen = choose_peers(peers, root, replicas)
    assert chosen == choose_peers(shuffled, root, replicas)
    assert len(chosen) == len(set(chosen)) == min(replicas, len(peers))


@settings(max_examples=40)
@given(members, roots, st.integers(1, 4), st.data())
def test_who_leaves_is_replaced_and_nobody_else(
    peers: tuple[Member, ...], root: BlockHash, replicas: int, data: st.DataObject
) -> None:
    """Read the other way round it is about one who joins."""
    gone = data.draw(st.sampled_from(peers))
    before = choose_peers(peers, root, replicas)
    after = choose_peers([peer for peer in peers if peer != gone], root, replicas)
    if gone.node not in before:
        assert after == before
    else:
        kept = tuple(node for node in before if node != gone.node)
        assert after[: len(kept)] == kept
        assert len(after) == min(replicas, len(peers) - 1)


@settings(max_examples=40)
@given(members, roots, st.integers(1, 4), st.data())
def test_a_larger_weight_only_draws_towards_itself(
    peers: tuple[Member, ...], root: BlockHash, replicas: int, data: st.DataObject
) -> None:
    grown = data.draw(st.sampled_from(peers))
    others = [peer for peer in peers if peer != grown]
    before = choose_peers(peers, root, replicas)
    after = choose_peers([*others, Member(grown.node, grown.weight * 2)], root, replicas)
    assert set(after) - set(before) <= {grown.node}


def test_shares_follow_the_weights() -> None:
    peers = [Member("small", 1.0), Member("large", 3.0), Member("middle", 2.0)]
    counted = Counter(choose_peers(peers, block_hash(index), 1)[0] for index in range(6000))
    for peer in peers:
        assert counted[peer.node] == pytest.approx(1000 * peer.weight, rel=0.12)


def test_replicas_are_balanced_too() -> None:
    peers = [Member(f"peer-{index}") for index in range(5)]
    counted = Counter(node for index in range(5000) for node in choose_peers(peers, block_hash(index), 2))
    assert all(count == pytest.approx(2000, rel=0.08) for count in counted.values())


def test_the_answer_is_the_same_in_every_release() -> None:
    peers = [Member("allens", 4.0), Member("cache", 8.0), Member("studio", 16.0)]
    found = [choose_peers(peers, block_hash(index), 2) for index in range(4)]
    assert found == GOLDEN


GOLDEN = [("studio", "allens"), ("studio", "cache"), ("studio", "cache"), ("allens", "studio")]


def test_a_conversation_stays_where_it_is() -> None:
    chain = [block_hash(index) for index in range(3 * ROOT_BLOCKS)]
    assert {root_of(chain[:length]) for length in range(1, ROOT_BLOCKS)} == {chain[0]}
    assert {root_of(chain[:length]) for length in range(ROOT_BLOCKS, len(chain))} == {chain[ROOT_BLOCKS - 1]}
