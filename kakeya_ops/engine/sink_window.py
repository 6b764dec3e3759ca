"""Sink + window caches: the first `sink` tokens and the last `window` ones, exactly, for any chunking.

A key at position p is seen from position q when ``p <= q and (p < sink or p > q - window)``: what token-by-token
streaming gives. mlx-lm's own ``RotatingKVCache(keep=...)`` keeps the right rows but masks the sinks out of every chunk
longer than one token, and its batched twin drops them; here only the storage of single sequences is inherited.

Worked example, sink 2 and window 3, after 7 tokens (positions 0 to 6)::

    SinkWindowKVCache.rows()      0 1 4 5 6     temporal order: sinks, then the window, oldest first
    BatchSinkWindowKVCache        0 1 5 6 4     position p lives in slot p, or sink + (p - sink) % window past the sinks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache, _BaseCache

from kakeya_ops.errors import UnsupportedModel

REFUSED_FAMILIES = {
    "afm7": "it takes positions from the number of rows",
    "minimax_m3_vl": "it cuts its sparse blocks over rows, not over positions",
    "phi3small": "it cuts its sparse blocks over rows, not over positions",
}
"""Families whose attention takes a row's index for its position: wrong in a batch of unequal lengths as in a window."""

NO_WINDOW_FAMILIES = REFUSED_FAMILIES | {
    "deepseek_v32": "its indexer chooses among rows, and was not shown to choose the same when some are forgotten",
    "glm_moe_dsa": "its indexer chooses among rows, and was not shown to choose the same when some are forgotten",
}
"""Families that are refused only with a window, and those that always are."""


class SinkWindowKVCache(RotatingKVCache):
    """One sequence's sink + window cache, in the place of a `KVCache`.

    Holds at most ``sink + window`` rows between steps, and one chunk more while a chunk is computed.
    """

    def __init__(self, sink: int, window: int) -> None:
        if sink < 0 or window < 1:
            raise ValueError(f"a cache of {sink} sinks and a window of {window} rows cannot be")
        super().__init__(max_size=sink + window, keep=sink)  # type: ignore[no-untyped-call]

    @property
    def sink(self) -> int:
        """First tokens that are never forgotten."""
        return int(self.keep)

    @property
    def window(self) -> int:
        """Last tokens that are remembered, the newest among them."""
        return int(self.max_size - self.keep)

    @classmethod
    def from_rows(cls, keys: mx.array, values: mx.array, offset: int, *, sink: int, window: int) -> Self:
        """A cache that has seen `offset` tokens, from the rows it would hold: see `rows`.

        Raises `ValueError` unless both arrays, of shape ``(1, heads, rows, width)``, have exactly
        ``min(offset, sink + window)`` rows.
        """
        cache = cls(sink, window)
        expected = min(offset, cache.max_size)
        if keys.shape[2] != expected or values.shape[2] != expected:
            raise ValueError(f"{keys.shape[2]} and {values.shape[2]} rows instead of {expected}")
        cache.keys, cache.values, cache.offset, cache._idx = keys, values, offset, expected
        return cache

    def rows(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the ``min(offset, sink + window)`` remembered tokens: sinks, then oldest first."""
        return self._remembered(self.keys), self._remembered(self.values)

    def _remembered(self, stored: Any) -> mx.array:
        ordered: mx.array = self._temporal_order(stored)  # type: ignore[no-untyped-call]
        excess = ordered.shape[2] - min(self.offset, self.max_size)
        if excess == 0:
            return ordered
        return mx.concatenate([ordered[:, :, : self.sink], ordered[:, :, self.sink + excess :]], axis=2)

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | str | None:
        """The mask for the next `N` tokens, to be asked for before they are added.

        `window_size` is a window of the model's own, which then holds as well.
        """
        if N == 1:
            return self._step_mask(window_size) if window_size else None
        seen = self.offset + N
        if not return_array and seen <= min(self.max_size, window_size or seen):
            return "causal"
        past = min(self.offset, self.max_size - 1)
        row = mx.arange(past + N)
        key = row + (row >= self.sink) * (self.offset - past)
        query = mx.arange(self.offset, seen)[:, None]
        mask: mx.array = (key <= query) & ((key < self.sink) | (key > query - self.window))
        return mask & (key > query - window_size) if window_size else mask

    def _step_mask(self, window_size: int) -> mx.array:
        """Rows that are younger than `window_size` once the next token is in: past the sinks they are a ring."""
        row = mx.arange(min(self.offset + 1, self.max_size))
        age = self.offset - row
        if self.offset >= self.max_size:
            entry = self._idx if self._idx < self.max_size else self.sink
            age = mx.where(row < self.sink, age, (entry - row) % self.window)
        return age < window_size

    @classmethod
    def merge(cls, caches: Sequence[SinkWindowKVCache]) -> BatchSinkWindowKVCache:
        """The caches of several sequences as one batch that decodes."""
        return BatchSinkWindowKVCache.merge(caches)


class BatchSinkWindowKVCache(_BaseCache):
    """Sink + window caches of several sequences that are decoded together, one token a step.

    Every row starts at slot 0, so nothing is padded on the left and a long row costs the others no more than a mask.
    `offset` is an array, as the models' RoPE wants it; `lengths` are the same numbers on the host.
    """

    step = 256

    def __init__(self, sink: int, window: int, lengths: Sequence[int]) -> None:
        self.sink = sink
        self.window = window
        self.keys: mx.array | None = None
        self.values: mx.array | None = None
        self.lengths = list(lengths)
        self.offset = mx.array(self.lengths, mx.int32)

    @property
    def max_size(self) -> int:
        """The most rows that one sequence keeps."""
        return self.sink + self.window

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Add one token to every row; all rows' keys and values. Raises `ValueError` for more than one token."""
        if keys.shape[2] != 1:
            raise ValueError(f"a batch decodes one token a step, not {keys.shape[2]}")
        self.keys = self._put(self._grown(self.keys, keys), keys)
        self.values = self._put(self._grown(self.values, values), values)
        self.offset = self.offset + 1
        self.lengths = [length + 1 for length in self.lengths]
        return self.keys_and_values()

    def keys_and_values(self) -> tuple[mx.array, mx.array]:
        """What the last `update_and_fetch` returned."""
        assert self.keys is not None
        assert self.values is not None
        return self.keys[..., : self.size(), :], self.values[..., : self.size(), :]

    def _capacity(self) -> int:
        """Slots that the next token needs: a multiple of `step` until the ring is closed."""
        return min((max(self.lengths, default=0) // self.step + 1) * self.step, self.max_size)

    def _grown(self, stored: mx.array | None, like: mx.array) -> mx.array:
        """`stored` with room for the next token; `like` gives the shape when there is nothing yet."""
        if stored is None:
            stored = mx.zeros((like.shape[0], like.shape[1], 0, like.shape[3]), like.dtype)
        missing = self._capacity() - stored.shape[2]
        if missing <= 0:
            return stored
        return mx.concatenate([stored, mx.zeros((*stored.shape[:2], missing, stored.shape[3]), stored.dtype)], axis=2)

    def _put(self, stored: mx.array, new: mx.array) -> mx.array:
        """`stored` with one new row for each sequence, in the slot of its position."""
        slot = mx.where(self.offset < self.sink, self.offset, self.sink + (self.offset - self.sink) % self.window)
        stored[mx.arange(len(self.lengths)), :, slot] = new[:, :, 0]
        return stored

    def make_mask(self, N: int, window_size: int | None = None, return_array: bool = False) -> mx.array | None:
        """The mask for the next token of every row, shape ``(rows, 1, 1, slots)``; None when all see every slot.

        Raises `ValueError` for more than one token.
        """
        if N != 1:
            raise ValueError(f"a batch decodes one token a step, not {N}")
        slots = min(max(self.lengths) + 1, self.max_size)
        if window_size is None and min(self.lengths) + 1 >= slots:
            return None
        slot, query = mx.arange(slots), self.offset[:, None]
        mask = slot <= query
        if window_size is not None:
            age = mx.where(slot < self.sink, query - slot, (query - slot) % self.window)
            mask = mask & (age < window_size)
        return mask[:, None, None]

    def filter(self, batch_indices: Sequence[int]) -> None:
        """Keep just these rows, in this order, and no more room than they need."""
        kept = mx.array(list(batch_indices))
        self.lengths = [self.lengths[index] for index in batch_indices]
        self.offset = self.offset[kept]
        if self.keys is not None and self.values is not None:
            capacity = self._capacity()
            self.keys = self.keys[..., :capacity, :][kept]
            self.values = self.values[..., :capacity, :][kept]

    def extend(self, other: BatchSinkWindowKVCache) -> None:
        """Add the rows of `other` after these."""
        ours, theirs = len(self.lengths), len(other.lengths)
        self.lengths = self.lengths + other.lengths
        self.offset = mx.concatenate([self.offset, other.offset])
        self.keys = self._joined([(self.keys, ours), (other.keys, theirs)])
        self.values = self._joined([(self.values, ours), (other.values, theirs)])

    def _joined(self, parts: Sequence[tuple[mx.array | None, int]]) -> mx.array | None:
        """``(slots, rows)`` of several batches one below the other; None when all are empty."""
        like = next((stored for stored, _ in parts if stored is not None), None)
        if like is None:
            return None
        _, heads, _, width = like.shape
        empty = [mx.zeros((rows, heads, 0, width), like.dtype) if part is None else part for part, rows in parts]
        return mx.concatenate([self._grown(part, part) for part in empty])

    def extract(self, idx: int) -> SinkWindowKVCache:
        """One row as a cache of its own."""
        length = self.lengths[idx]
        if length == 0 or self.keys is None or self.values is None:
            return SinkWindowKVCache(self.sink, self.window)
        kept = min(length, self.max_size)
        keys = mx.contiguous(self._turn(self.keys[idx : idx + 1, :, :kept], length, -1))
        values = mx.contiguous(self._turn(self.values[idx : idx + 1, :, :kept], length, -1))
        return SinkWindowKVCache.from_rows(keys, values, length, sink=self.sink, window=self.window)

    def _turn(self, rows: mx.array, length: int, direction: int) -> mx.array:
        """One sequence's rows from temporal order into their slots (1), or back (-1)."""
        if length <= self.max_size:
            return rows
        ring = mx.roll(rows[:, :, self.sink :], direction * ((length - self.sink) % self.window), 2)
        return mx.concatenate([rows[:, :, : self.sink], ring], axis=2)

    @classmethod
    def merge(cls, caches: Sequence[SinkWindowKVCache]) -> BatchSinkWindowKVCache:
        """One batch of these sequences. Raises `ValueError` when their sinks or windows differ."""
        first = caches[0]
        if any((cache.sink, cache.window) != (first.sink, first.window) for cache in caches):
            raise ValueError("only caches with equal sinks and windows can be decoded together")
        batch = cls(first.sink, first.window, [cache.offset for cache in caches])
        keys, values = zip(*(batch._slots_of(cache) for cache in caches), strict=True)
        batch.keys = batch._joined([(part, 1) for part in keys])
        batch.values = batch._joined([(part, 1) for part in values])
        return batch

    def _slots_of(self, cache: SinkWindowKVCache) -> tuple[mx.array | None, mx.array | None]:
        if cache.keys is None:
            return None, None
        keys, values = cache.rows()
        return self._turn(keys, cache.offset, 1), self._turn(values, cache.offset, 1)

    def size(self) -> int:
        """Slots in use by the longest row."""
        return min(max(self.lengths, default=0), self.max_size)

    def empty(self) -> bool:
        """True until the first token."""
        return self.keys is None

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, used or not."""
        return 0 if self.keys is None or self.values is None else self.keys.nbytes + self.values.nbytes

    @property
    def state(self) -> tuple[Any, ...]:
        """Everything, arrays first, as mlx-lm evaluates and stores caches."""
        return self.keys, self.values, self.offset, self.lengths, self.sink, self.window

    @state.setter
    def state(self, value: tuple[Any, ...]) -> None:
        self.keys, self.values, self.offset, self.lengths, self.sink, self.window = value


def apply_window(cache: Sequence[Any], sink: int, window: int | None, *, model_type: str = "") -> list[Any]:
    """The cache list of ``make_prompt_cache``, full-attention leaves cut to `sink` and `window` (None: left whole).

    A model's own sliding layers keep their window. Raises `UnsupportedModel` for a leaf whose KV cannot be carried
    exactly, window or not, and for a `model_type` that is refused.
    """
    reason = (REFUSED_FAMILIES if window is None else NO_WINDOW_FAMILIES).get(model_type)
    if reason:
        always = model_type in REFUSED_FAMILIES
        how = "in batches" if always else "with a sink + window cache"
        hint = None if always else "set cache.window to null"
        raise UnsupportedModel(f"{model_type} cannot be served {how}: {reason}", hint=hint)
    return [_windowed(leaf, f"layer {index}", sink, window) for index, leaf in enumerate(cache)]


def _windowed(leaf: Any, place: str, sink: int, window: int | None) -> Any:
    """`leaf` itself, or what stands for it; by exact class, since a subclass may keep something else."""
    kind = type(leaf)
    if kind is KVCache:
        return leaf if window is None else SinkWindowKVCache(sink, window)
    if kind is CacheList:
        children = enumerate(leaf.caches)
        return CacheList(*(_windowed(child, f"{place}.{index}", sink, window) for index, child in children))  # type: ignore[no-untyped-call]
    if kind in (ArraysCache, SinkWindowKVCache) or (kind is RotatingKVCache and leaf.keep == 0):
        return leaf
    name = f"{kind.__name__}(keep={leaf.keep})" if kind is RotatingKVCache else kind.__name__
    raise UnsupportedModel(f"{place} of the model keeps a {name}, whose KV cannot be carried exactly")


__all__ = ["NO_WINDOW_FAMILIES", "REFUSED_FAMILIES", "BatchSinkWindowKVCache", "SinkWindowKVCache", "apply_window"]
