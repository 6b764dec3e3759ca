"""What waits for peers: bounded by entries and bytes, whatever is put and taken."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.serving.backlog import Backlog, Chain, Consignment
from kakeya_ops.serving.prompts import Prompt
from serving.running import hash_prompt, simple_identity, simple_layout

BLOCK_BYTES = sum(part.nbytes for part in simple_layout().parts)


def chain(seed: int, blocks: int) -> Chain:
    tokens = (seed, *range(16 * blocks))
    return Chain(hash_prompt(simple_identity(), tokens), blocks)


def test_first_come_first_served_for_each_peer() -> None:
    backlog = Backlog(10, 10**9)
    ones = [Consignment(node, chain(index, 2)) for index, node in enumerate("abab")]
    assert [backlog.put(one) for one in ones] == [[]] * 4
    assert [backlog.take("b"), backlog.take("b"), backlog.take("b")] == [ones[1], ones[3], None]
    assert (len(backlog), backlog.nbytes) == (2, 4 * BLOCK_BYTES)


def test_the_oldest_make_room() -> None:
    backlog = Backlog(2, 10**9)
    ones = [Consignment("a", chain(index, 1)) for index in range(4)]
    assert [backlog.put(one) for one in ones] == [[], [], ones[:1], ones[1:2]]


def test_bytes_are_bounded_but_one_is_always_taken() -> None:
    backlog = Backlog(10, 3 * BLOCK_BYTES)
    small, large = Consignment("a", chain(0, 1)), Consignment("a", chain(1, 9))
    assert backlog.put(small) == []
    assert backlog.put(large) == [small]
    assert backlog.take("a") == large
    assert backlog.nbytes == 0


def test_a_longer_chain_takes_the_place_of_what_it_goes_on_from() -> None:
    backlog = Backlog(10, 10**9)
    whole = chain(0, 5)
    turns = [Consignment("a", replace(whole, blocks=blocks)) for blocks in (2, 3, 5)]
    other = Consignment("b", turns[0].chain)
    assert [backlog.put(one) for one in (other, *turns)] == [[]] * 4
    assert (len(backlog), backlog.nbytes) == (2, 7 * BLOCK_BYTES)
    assert (backlog.take("a"), backlog.take("a"), backlog.take("b")) == (turns[2], None, other)


PROMPTS: list[Prompt] = [chain(seed, 6).prompt for seed in range(4)]
consignments = st.builds(
    Consignment, st.sampled_from("abc"), st.builds(Chain, st.sampled_from(PROMPTS), st.integers(1, 6))
)


@settings(max_examples=60)
@given(st.lists(consignments | st.sampled_from("abc"), max_size=40), st.integers(1, 5), st.integers(1, 12))
def test_bounds_hold_and_nothing_is_lost_unseen(
    steps: list[Consignment | str], most_entries: int, most_blocks: int
) -> None:
    backlog = Backlog(most_entries, most_blocks * BLOCK_BYTES)
    for step in steps:
        if isinstance(step, str):
            taken = backlog.take(step)
            assert taken is None or taken.node == step
        else:
            dropped = backlog.put(step)
            assert step not in dropped
        assert len(backlog) <= most_entries
        assert backlog.nbytes <= most_blocks * BLOCK_BYTES or len(backlog) == 1
    left = _drain(backlog)
    assert backlog.nbytes == 0
    assert len(left) == len({(one.node, one.chain.prompt.hashes[one.chain.blocks - 1]) for one in left})


def _drain(backlog: Backlog) -> list[Consignment]:
    left = []
    for node in "abc":
        while (taken := backlog.take(node)) is not None:
            left.append(taken)
    assert len(backlog) == 0
    return left
