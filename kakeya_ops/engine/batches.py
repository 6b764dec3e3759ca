"""Batches of sequences that decode: how one is opened, joined and divided. Compute thread only.

mlx-lm's `GenerationBatch` can be extended and filtered, but it copies a sequence's whole KV to make a batch of it, and
cannot be divided.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.generate import GenerationBatch
from mlx_lm.models.cache import BatchKVCache, CacheList, KVCache

_STACKED_DIMENSIONS = 3


def batch_of_one(leaf: Any) -> Any:
    """The batched twin of one sequence's cache leaf. A plain `KVCache` is taken over without a copy, spare rows and
    all; what is bounded by a window, or a mere state, is merged as mlx-lm does it.
    """
    if isinstance(leaf, CacheList):
        return CacheList(*(batch_of_one(child) for child in leaf.caches))  # type: ignore[no-untyped-call]
    if type(leaf) is not KVCache or leaf.keys is None:
        return leaf.merge([leaf])
    batch = BatchKVCache([0])
    batch.keys, batch.values = leaf.keys, leaf.values
    batch.offset, batch._idx = mx.array([leaf.offset]), leaf.offset
    return batch


def divide(batch: GenerationBatch, leaving: Sequence[int]) -> GenerationBatch:
    """Take the rows with the indices `leaving` out of `batch`, as a batch of their own."""
    gone = set(leaving)
    other = copy.copy(batch)
    other.prompt_cache = [_twin(leaf) for leaf in batch.prompt_cache]
    other.filter(list(leaving))
    batch.filter([index for index in range(len(batch.uids)) if index not in gone])
    return other


def _twin(leaf: Any) -> Any:
    """A leaf with the same arrays that can be filtered by itself."""
    if isinstance(leaf, CacheList):
        return CacheList(*(_twin(child) for child in leaf.caches))  # type: ignore[no-untyped-call]
    return copy.copy(leaf)


def shared_weights_bytes(model: Any) -> int:
    """Bytes of weights that a decode step reads once for all rows of a batch.

    Experts are left out: different rows choose different ones. They are the arrays of three dimensions, one matrix for
    each expert.
    """
    arrays: Any = tree_flatten(model.parameters())
    return sum(array.nbytes for _, array in arrays if array.ndim < _STACKED_DIMENSIONS)


__all__ = ["batch_of_one", "divide", "shared_weights_bytes"]
