"""Rows as mlx-lm allocates them: the published figures, and the caches themselves."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import BatchKVCache, KVCache, RotatingKVCache

from kakeya_ops.memory.model_shape import read_shape
from kakeya_ops.memory.rows import (
    batch_rows,
    chunks_of,
    full_rows,
    largest_full_rows,
    largest_window_rows,
    sequence_bytes,
    window_rows,
)
from memory.checkpoints import write_checkpoint
from memory.golden import ROWS, Golden

lengths = st.integers(1, 1500)
steps = st.sampled_from([1, 7, 32, 64, 96, 256, 300, 512, 600])


def shape_of(row: Golden, tmp_path: Path):
    dtype = "F32" if row.float32 else "BF16"
    return read_shape(write_checkpoint(tmp_path / "model", row.config, {"model.norm.weight": (dtype, [64])}))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_sequence_takes_the_bytes_that_were_measured(row: Golden, tmp_path: Path) -> None:
    layers = shape_of(row, tmp_path).layers
    assert sequence_bytes(layers, row.prompt - 1, row.step, 4) == row.final_bytes


@pytest.mark.parametrize("row", [row for row in ROWS if row.largest_bytes], ids=lambda row: row.name)
def test_windows_are_larger_while_a_prompt_is_computed(row: Golden, tmp_path: Path) -> None:
    layers = shape_of(row, tmp_path).layers
    ends = [*range(row.step, row.prompt - 1, row.step), row.prompt - 1]
    assert max(sequence_bytes(layers, end, row.step) for end in ends) == row.largest_bytes


def grow(cache, chunks) -> int:
    for chunk in chunks:
        rows = mx.zeros((1, 1, chunk, 1))
        cache.update_and_fetch(rows, rows)
    return cache.keys.shape[2]


@settings(max_examples=60, deadline=None)
@given(tokens=lengths, step=steps, singles=st.integers(0, 3))
def test_a_full_cache_has_the_rows_of_mlx_lms(tokens: int, step: int, singles: int) -> None:
    rows = full_rows(tokens, step, singles)
    assert rows == grow(KVCache(), chunks_of(tokens, step, singles))
    assert tokens + singles <= rows <= largest_full_rows(tokens + singles, step)


@settings(max_examples=60, deadline=None)
@given(tokens=lengths, step=steps, window=st.integers(8, 700), singles=st.integers(0, 3), keep=st.integers(0, 4))
def test_a_window_has_the_rows_of_mlx_lms(tokens: int, step: int, window: int, singles: int, keep: int) -> None:
    rows = window_rows(tokens, window, step, singles)
    assert rows == grow(RotatingKVCache(window, keep), chunks_of(tokens, step, singles))
    if not singles and step > 1:
        assert rows <= largest_window_rows(tokens, window, step) + (255 if tokens % step == 1 else 0)


@settings(max_examples=20, deadline=None)
@given(lengths=st.lists(st.integers(1, 600), min_size=1, max_size=4), singles=st.integers(1, 300))
def test_a_batch_never_has_more_rows_than_its_longest_sequence_allows(lengths: list[int], singles: int) -> None:
    caches = []
    for tokens in lengths:
        grow(cache := KVCache(), chunks_of(tokens, 64))
        caches.append(cache)
    batch = KVCache.merge(caches)
    assert isinstance(batch, BatchKVCache)
    for _ in range(singles):
        row = mx.zeros((len(lengths), 1, 1, 1))
        batch.update_and_fetch(row, row)
    assert batch.keys.shape[2] <= batch_rows(max(lengths) + singles)


def test_the_bound_of_a_batch_is_reached() -> None:
    grow(cache := KVCache(), [1])
    batch = KVCache.merge([cache])
    batch.update_and_fetch(mx.zeros((1, 1, 1, 1)), mx.zeros((1, 1, 1, 1)))
    assert batch.keys.shape[2] == 257 == batch_rows(2)
