"""What the KV of one model looks like as blocks: which parts a block has, and the exact bytes of each.

A model's cache is a list of *leaves* (one per attention or recurrent layer that keeps state). Leaves of one kind and
window form a *part*. A block, the KV of `block_tokens` consecutive tokens, is carried as one payload per part:

========  ==============================================================  =====================================
kind      payload of block *i*                                            needed to resume at N tokens
========  ==============================================================  =====================================
full      rows of its tokens, for each leaf keys then values              every block before N
window    the same rows (a sliding, or sink + window, layer)              blocks with a sink row or a row in the window
state     the whole state after its last token (recurrent layers)         the block that ends at N
========  ==============================================================  =====================================

A payload is the part's arrays back to back in the order of `PartLayout.arrays`, C order, little endian. Nothing about
shapes or types travels: both sides derive it from the same layout, whose digest is part of the cache identity.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

PartKind = Literal["full", "window", "state"]

ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint32": 4, "int32": 4}


@dataclass(frozen=True)
class ArrayLayout:
    """One array of a part.

    `leaf` is its place in the flattened cache list, `slot` its name there (``keys``, ``values``, or ``0``, ``1``, …
    of a state). `shape` has no batch axis: ``(heads, block_tokens, width)`` for rows, the whole state otherwise.
    """

    leaf: int
    slot: str
    dtype: str
    shape: tuple[int, ...]

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class PartLayout:
    """The arrays that travel together, and which tokens they remember: `sink` first rows and the last `window`."""

    kind: PartKind
    arrays: tuple[ArrayLayout, ...]
    sink: int = 0
    window: int | None = None

    @cached_property
    def nbytes(self) -> int:
        """Bytes of one block's payload."""
        return sum(array.nbytes for array in self.arrays)

    def needed_blocks(self, blocks: int, block_tokens: int) -> Iterable[int]:
        """Indices of the blocks that must be present to resume after the first `blocks` blocks, ascending."""
        if blocks == 0:
            return ()
        if self.kind == "state":
            return (blocks - 1,)
        if self.kind == "full" or self.window is None:
            return range(blocks)
        sink_blocks = min(blocks, -(-self.sink // block_tokens))
        first = max(sink_blocks, (blocks * block_tokens - self.window) // block_tokens)
        return (*range(sink_blocks), *range(max(first, 0), blocks))


@dataclass(frozen=True)
class KvLayout:
    """The whole layout: `leaves` are the cache class of each leaf, `parts` the payloads of a block."""

    block_tokens: int
    leaves: tuple[str, ...]
    parts: tuple[PartLayout, ...]

    @cached_property
    def row_bytes_per_token(self) -> int:
        """Bytes that one more token costs in all parts that grow with tokens."""
        return sum(part.nbytes for part in self.parts if part.kind != "state") // self.block_tokens

    def resumable_blocks(self, prompt_tokens: int) -> int:
        """The most blocks a prompt may resume after: the last token is always computed alone."""
        return max(prompt_tokens - 1, 0) // self.block_tokens

    def needed(self, blocks: int) -> tuple[tuple[int, int], ...]:
        """Every ``(block, part)`` that must be present to resume after `blocks` blocks, by block, then part."""
        pairs = (
            (block, index)
            for index, part in enumerate(self.parts)
            for block in part.needed_blocks(blocks, self.block_tokens)
        )
        return tuple(sorted(pairs))

    def to_json(self) -> dict[str, Any]:
        """A plain value from which `from_json` makes an equal layout."""
        return {
            "block_tokens": self.block_tokens,
            "leaves": list(self.leaves),
            "parts": [
                {
                    "kind": part.kind,
                    "sink": part.sink,
                    "window": part.window,
                    "arrays": [[a.leaf, a.slot, a.dtype, list(a.shape)] for a in part.arrays],
                }
                for part in self.parts
            ],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KvLayout:
        """The layout that `to_json` wrote. Raises `KeyError`, `TypeError` or `ValueError` for anything else."""
        parts = []
        for part in value["parts"]:
            if part["kind"] not in ("full", "window", "state"):
                raise ValueError(f"unknown part kind {part['kind']!r}")
            arrays = tuple(
                ArrayLayout(int(leaf), str(slot), str(dtype), tuple(int(n) for n in shape))
                for leaf, slot, dtype, shape in part["arrays"]
            )
            if any(a.dtype not in ITEM_BYTES or min(a.shape, default=0) < 1 for a in arrays):
                raise ValueError("array with an unknown dtype or an empty shape")
            window = part["window"]
            parts.append(PartLayout(part["kind"], arrays, int(part["sink"]), None if window is None else int(window)))
        return cls(int(value["block_tokens"]), tuple(str(name) for name in value["leaves"]), tuple(parts))


__all__ = ["ITEM_BYTES", "ArrayLayout", "KvLayout", "PartKind", "PartLayout"]
