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

from collections.abc import Iterable, Sequence
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
        """Bytes of the array in one payload."""
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

    def needed_spans(self, blocks: int, block_tokens: int) -> tuple[range, range]:
        """Indices of the blocks that must be present to resume after the first `blocks` blocks, in two runs.

        The first starts at the head of the prompt and grows with `blocks` at its end only; the second ends where the
        prompt is resumed, and neither of its ends moves back as `blocks` grows. They do not overlap.
        """
        if self.kind == "state":
            return range(0), range(max(blocks - 1, 0), blocks)
        if self.kind == "full" or self.window is None:
            return range(blocks), range(blocks, blocks)
        sink_blocks = min(blocks, -(-self.sink // block_tokens))
        first = max(sink_blocks, (blocks * block_tokens - self.window) // block_tokens)
        return range(sink_blocks), range(first, blocks)

    def needed_blocks(self, blocks: int, block_tokens: int) -> Iterable[int]:
        """Indices of the blocks that must be present to resume after the first `blocks` blocks, ascending."""
        head, tail = self.needed_spans(blocks, block_tokens)
        return (*head, *tail)


@dataclass(frozen=True)
class KvLayout:
    """The whole layout: `leaves` are the cache class of each leaf, `parts` the payloads of a block."""

    block_tokens: int
    leaves: tuple[str, ...]
    parts: tuple[PartLayout, ...]

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
        parts = tuple(_parse_part(part) for part in value["parts"])
        return cls(_parse_count(value["block_tokens"]), tuple(str(name) for name in value["leaves"]), parts)


def _parse_part(value: dict[str, Any]) -> PartLayout:
    if value["kind"] not in ("full", "window", "state"):
        raise ValueError(f"unknown part kind {value['kind']!r}")
    arrays = tuple(_parse_array(*array) for array in value["arrays"])
    window = None if value["window"] is None else _parse_count(value["window"])
    return PartLayout(value["kind"], arrays, _parse_count(value["sink"], least=0), window)


def _parse_array(leaf: object, slot: object, dtype: object, shape: Sequence[object]) -> ArrayLayout:
    if dtype not in ITEM_BYTES or not shape:
        raise ValueError("array with an unknown dtype or an empty shape")
    return ArrayLayout(_parse_count(leaf, least=0), str(slot), str(dtype), tuple(_parse_count(n) for n in shape))


def _parse_count(value: object, *, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{value!r} is not a whole number of at least {least}")
    return value


__all__ = ["ITEM_BYTES", "ArrayLayout", "KvLayout", "PartKind", "PartLayout"]
