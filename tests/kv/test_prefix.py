from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.kv.layout import KvLayout, PartLayout
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.units import BlockHash
from kv.layouts import HYBRID, RECURRENT, layouts

MOST_BLOCKS = 14


def make_hashes(count: int) -> tuple[BlockHash, ...]:
    return tuple(BlockHash(block.to_bytes(32, "big")) for block in range(count))


def resumable(layout: KvLayout, held: set[tuple[int, int]], blocks: int) -> bool:
    return set(layout.needed(blocks)) <= held


@st.composite
def holdings(draw: st.DrawFn) -> tuple[KvLayout, int, set[tuple[int, int]]]:
    """A layout, a number of blocks, and which payloads are held: mostly many, as then the answer is not just 0."""
    layout = draw(layouts)
    blocks = draw(st.integers(0, MOST_BLOCKS))
    pairs = [(block, part) for block in range(blocks) for part in range(len(layout.parts))]
    missing = draw(st.sets(st.sampled_from(pairs), max_size=draw(st.sampled_from([3, 30])))) if pairs else set()
    return layout, blocks, set(pairs) - missing


@settings(max_examples=200)
@given(holdings(), st.integers(0, MOST_BLOCKS + 2))
def test_longest_resume_is_the_longest_of_all(
    case: tuple[KvLayout, int, set[tuple[int, int]]], most_blocks: int
) -> None:
    layout, blocks, held = case
    hashes = make_hashes(blocks)
    asked: list[PartKey] = []

    def holds(key: PartKey) -> bool:
        assert isinstance(key, PartKey)
        asked.append(key)
        return (hashes.index(key.hash), key.part) in held

    limit = min(most_blocks, blocks)
    expected = max(count for count in range(limit + 1) if resumable(layout, held, count))
    assert longest_resume(layout, hashes, holds, most_blocks) == expected
    assert len(asked) == len(set(asked)), "a payload was asked for twice"


def test_a_gap_outside_the_window_does_no_harm() -> None:
    hashes = make_hashes(9)
    assert longest_resume(HYBRID, hashes, lambda key: key != PartKey(hashes[4], 1), 9) == 9


def test_a_gap_in_the_window_only_ends_the_prefixes_that_see_it() -> None:
    hashes = make_hashes(9)
    assert longest_resume(HYBRID, hashes, lambda key: key != PartKey(hashes[7], 1), 9) == 7


def test_a_state_alone_is_enough_where_nothing_else_is_kept() -> None:
    layout = KvLayout(4, ("ArraysCache",), (RECURRENT,))
    hashes = make_hashes(9)
    assert longest_resume(layout, hashes, lambda key: key.hash == hashes[5], 9) == 6


def test_a_layout_without_parts_needs_nothing() -> None:
    assert longest_resume(KvLayout(4, (), ()), make_hashes(3), lambda key: False, 9) == 3


def test_long_prefixes_take_one_question_a_payload() -> None:
    window = PartLayout("window", (), sink=4, window=2048)
    layout = KvLayout(64, ("KVCache",), (PartLayout("full", ()), window, RECURRENT))
    hashes = make_hashes(4096)
    questions = 0

    def holds(key: PartKey) -> bool:
        nonlocal questions
        questions += 1
        return key.part != 2

    assert longest_resume(layout, hashes, holds, 4096) == 0
    assert questions <= 3 * 4096


def test_parts_that_end_prefixes_by_turns_agree_in_the_end() -> None:
    """No state at 9 and 8; at 7 the window lacks block 5; no state at 5; at 4 both are there."""
    hashes = make_hashes(9)
    lacking = {PartKey(hashes[5], 1), *(PartKey(hashes[block], 2) for block in (4, 7, 8))}
    assert longest_resume(HYBRID, hashes, lambda key: key not in lacking, 9) == 4
