from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.kv.layout import KvLayout, PartLayout
from kv.layouts import BLOCK_TOKENS, FULL, HYBRID, RECURRENT, WINDOW, layouts, parts


def needed_rows(part: PartLayout, tokens: int) -> set[int]:
    """Which rows the next token may see: the definition of sink and window, row by row."""
    if part.kind == "full" or part.window is None:
        return set(range(tokens))
    return {row for row in range(tokens) if row < part.sink or row >= tokens - part.window}


def test_sizes_of_payloads() -> None:
    assert FULL.nbytes == 2 * 4 * 3 * 4 + 2 * 4 * 3 * 2
    assert RECURRENT.nbytes == 3 * 5 * 2


@pytest.mark.parametrize(
    ("part", "blocks", "needed"),
    [
        (FULL, 3, (0, 1, 2)),
        (RECURRENT, 3, (2,)),
        (WINDOW, 1, (0,)),
        (WINDOW, 2, (0, 1)),
        (WINDOW, 4, (0, 2, 3)),
        (WINDOW, 9, (0, 7, 8)),
        (FULL, 0, ()),
        (RECURRENT, 0, ()),
        (WINDOW, 0, ()),
    ],
)
def test_blocks_needed_to_resume(part: PartLayout, blocks: int, needed: tuple[int, ...]) -> None:
    assert tuple(part.needed_blocks(blocks, BLOCK_TOKENS)) == needed


@given(parts(), st.integers(0, 30), st.integers(1, 8))
def test_needed_blocks_are_those_with_a_needed_row(part: PartLayout, blocks: int, block_tokens: int) -> None:
    needed = tuple(part.needed_blocks(blocks, block_tokens))
    if part.kind == "state":
        assert needed == ((blocks - 1,) if blocks else ())
    else:
        assert needed == tuple(sorted({row // block_tokens for row in needed_rows(part, blocks * block_tokens)}))


@given(parts(), st.integers(0, 30), st.integers(1, 8))
def test_spans_move_only_forward(part: PartLayout, blocks: int, block_tokens: int) -> None:
    head, tail = part.needed_spans(blocks, block_tokens)
    next_head, next_tail = part.needed_spans(blocks + 1, block_tokens)
    assert head.start == next_head.start == 0
    assert head.stop <= next_head.stop
    assert head.stop <= tail.start <= next_tail.start
    assert (tail.stop, next_tail.stop) == (blocks, blocks + 1)


@given(layouts, st.integers(0, 12))
def test_needed_pairs_are_sorted_and_complete(layout: KvLayout, blocks: int) -> None:
    pairs = layout.needed(blocks)
    assert list(pairs) == sorted(set(pairs))
    for index, part in enumerate(layout.parts):
        assert [b for b, p in pairs if p == index] == list(part.needed_blocks(blocks, layout.block_tokens))


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 0), (3, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_the_last_token_is_never_in_a_resumed_block(tokens: int, blocks: int) -> None:
    assert HYBRID.resumable_blocks(tokens) == blocks


@given(layouts)
def test_layouts_survive_json(layout: KvLayout) -> None:
    again = KvLayout.from_json(json.loads(json.dumps(layout.to_json())))
    assert again == layout
    assert [part.nbytes for part in again.parts] == [part.nbytes for part in layout.parts]


HOSTILE = [float("nan"), float("inf"), -1, True, "1", None, 1.5, {}, []]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize(
    "place",
    [
        ("block_tokens",),
        ("parts", 0, "kind"),
        ("parts", 1, "sink"),
        ("parts", 0, "arrays", 0, 0),
        ("parts", 0, "arrays", 0, 2),
        ("parts", 0, "arrays", 0, 3),
        ("parts", 0, "arrays", 0, 3, 1),
        ("parts", 0, "arrays", 0),
    ],
    ids=str,
)
def test_what_is_not_a_layout_is_refused(place: tuple[str | int, ...], value: object) -> None:
    document: Any = copy.deepcopy(HYBRID.to_json())
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    with pytest.raises((KeyError, TypeError, ValueError)):
        KvLayout.from_json(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["kind", "parts", "x"]), inner),
    max_leaves=10,
)


@given(st.fixed_dictionaries({"block_tokens": st.just(4) | JSON, "leaves": JSON, "parts": JSON}))
def test_arbitrary_json_is_refused_or_read_but_never_anything_else(document: dict[str, Any]) -> None:
    try:
        layout = KvLayout.from_json(document)
    except (KeyError, TypeError, ValueError):
        return
    assert layout.block_tokens >= 1
