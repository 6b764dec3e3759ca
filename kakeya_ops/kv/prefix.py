"""How much of a prompt's prefix is held. Pure: what is held is asked of a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.units import BlockHash

Holds = Callable[[PartKey], bool]


def longest_resume(layout: KvLayout, hashes: Sequence[BlockHash], holds: Holds, most_blocks: int) -> int:
    """The most blocks, up to `most_blocks`, after which the prompt can be resumed: all that this needs is held.

    A block that is missing at the head of the prompt ends every longer prefix. One that is missing in a window only
    ends those whose window still reaches it, so these are tried from the longest down, each block asked for once.
    """
    blocks = min(len(hashes), most_blocks)
    for index, part in enumerate(layout.parts):
        head, _ = part.needed_spans(blocks, layout.block_tokens)
        present = map(holds, map(PartKey._make, zip(hashes[: len(head)], repeat(index), strict=False)))
        blocks = next((block for block, held in enumerate(present) if not held), blocks)
    return _fit_tails(layout, hashes, holds, blocks)


def _fit_tails(layout: KvLayout, hashes: Sequence[BlockHash], holds: Holds, blocks: int) -> int:
    held_from = {index: blocks for index, part in enumerate(layout.parts) if part.kind != "full"}
    """For each part with a tail, the block from which on all up to `blocks` are known to be held."""
    unsettled = set(held_from)
    while unsettled:
        index = unsettled.pop()
        _, tail = layout.parts[index].needed_spans(blocks, layout.block_tokens)
        unknown = range(tail.start, min(held_from[index], blocks))
        gap = next((block for block in reversed(unknown) if not holds(PartKey(hashes[block], index))), None)
        held_from[index] = tail.start if gap is None else gap
        if gap is not None:
            blocks, unsettled = gap, set(held_from)
    return blocks


__all__ = ["Holds", "longest_resume"]
