"""Which sequences are decoded in one batch. Pure: lengths in, one change at a time out.

A batch reads the weights once for all its rows, but each row costs as much KV as the longest one, because the shorter
are padded. So rows of very different length belong into batches of their own, and rows of about the same length into
one. What a step reads stands for what it takes: one row of 8,192 tokens among three of 1,024 made every step of a small
model 3.7 times as long.

Worked example, weights of 100 bytes and one byte of KV a token, rows of 10, 20 and 300 tokens: one batch reads
100 + 3 x 300 = 1,000 bytes a step, ``[10, 20]`` and ``[300]`` read 100 + 2 x 20 + 100 + 300 = 540.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from kakeya_ops.kv.layout import KvLayout

Group = Sequence[int]
"""The lengths, in tokens, of the rows of one batch."""


@dataclass(frozen=True)
class StepCost:
    """Bytes that one decode step reads: `group_bytes` for each batch, whatever is in it, and KV for each row.

    `kinds` are ``(bytes per token, most tokens or None)`` of the parts whose KV grows with the row.
    """

    group_bytes: int
    kinds: tuple[tuple[float, int | None], ...]

    @classmethod
    def of_layout(cls, layout: KvLayout, group_bytes: int) -> StepCost:
        """The cost for a model's KV layout. A recurrent state is the same for every length and left out."""
        grows = [part for part in layout.parts if part.kind != "state"]
        rows = [None if part.window is None else part.sink + part.window for part in grows]
        sizes = [part.nbytes / layout.block_tokens for part in grows]
        return cls(group_bytes, tuple(zip(sizes, rows, strict=True)))

    def row_bytes(self, tokens: int) -> float:
        """KV of one row of `tokens` tokens."""
        return sum(size * (tokens if most is None else min(tokens, most)) for size, most in self.kinds)

    def group(self, lengths: Group) -> float:
        """One step of one batch: nothing when it is empty."""
        return self.group_bytes + len(lengths) * self.row_bytes(max(lengths)) if lengths else 0.0

    def total(self, groups: Iterable[Group]) -> float:
        """One step of every batch."""
        return sum(self.group(lengths) for lengths in groups)


@dataclass(frozen=True)
class Merge:
    """The rows of batch `second` join batch `first`."""

    first: int
    second: int


@dataclass(frozen=True)
class Split:
    """The rows of `group` that are longer than `tokens` leave for a batch of their own."""

    group: int
    tokens: int


Change = Merge | Split


def next_change(groups: Sequence[Group], cost: StepCost) -> Change | None:
    """The change that saves the most at every step; None unless that is half a reading of the weights.

    A change copies KV, so it has to be worth it; and what was just merged is not split again for a trifle.
    """
    best = max(_changes(groups, cost), key=lambda found: found[0], default=None)
    return best[1] if best and best[0] >= cost.group_bytes / 2 else None


def _changes(groups: Sequence[Group], cost: StepCost) -> Iterator[tuple[float, Change]]:
    """Every change with what it saves."""
    prices = [cost.group(lengths) for lengths in groups]
    for first, second in combinations(range(len(groups)), 2):
        merged = cost.group([*groups[first], *groups[second]])
        yield prices[first] + prices[second] - merged, Merge(first, second)
    for index, lengths in enumerate(groups):
        for shorter, _ in pairwise(sorted(set(lengths))):
            parts = ([n for n in lengths if n <= shorter], [n for n in lengths if n > shorter])
            yield prices[index] - cost.total(parts), Split(index, shorter)


__all__ = ["Change", "Group", "Merge", "Split", "StepCost", "next_change"]
