"""Sink + window caches, watched through keys that carry their own position: which are seen is then exact."""

from __future__ import annotations

import copy
from importlib.util import find_spec
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
)

from kakeya_ops.engine.sink_window import (
    NO_WINDOW_FAMILIES,
    REFUSED_FAMILIES,
    BatchSinkWindowKVCache,
    SinkWindowKVCache,
    apply_window,
)
from kakeya_ops.errors import UnsupportedModel

shapes = st.tuples(st.integers(0, 5), st.integers(1, 9))
own_windows = st.none() | st.integers(1, 16)


def expected(query: int, sink: int, window: int, own: int | None = None) -> set[int]:
    """The positions that `query` sees, by the definition."""
    seen = {p for p in range(query + 1) if p < sink or p > query - window}
    return seen if own is None else {p for p in seen if p > query - own}


def positions(start: int, count: int, rows: int = 1) -> mx.array:
    """Keys of shape ``(rows, 1, count, 1)`` whose value is their position."""
    return mx.broadcast_to(mx.arange(start, start + count)[None, None, :, None], (rows, 1, count, 1)).astype(mx.float32)


def add(cache: SinkWindowKVCache, count: int, *, own: int | None = None, as_array: bool = False) -> list[set[int]]:
    """Add `count` tokens; what each of them sees."""
    mask = cache.make_mask(count, window_size=own, return_array=as_array)
    keys, values = cache.update_and_fetch(positions(cache.offset, count), -positions(cache.offset, count))
    assert mx.array_equal(keys, -values)
    stored = np.array(keys)[0, 0, :, 0].astype(int)
    if mask is None:
        visible = np.ones((count, len(stored)), bool)
    elif isinstance(mask, str):
        assert mask == "causal"
        visible = np.tril(np.ones((count, len(stored)), bool), len(stored) - count)
    else:
        visible = np.broadcast_to(np.array(mask), (count, len(stored)))
    return [set(stored[row].tolist()) for row in visible]


def filled(sink: int, window: int, tokens: int, chunk: int = 4) -> SinkWindowKVCache:
    """A cache that saw `tokens` tokens in chunks."""
    cache = SinkWindowKVCache(sink, window)
    while cache.offset < tokens:
        add(cache, min(chunk, tokens - cache.offset))
    return cache


def remembered(sink: int, window: int, tokens: int) -> list[int]:
    return sorted(expected(tokens - 1, sink, window)) if tokens else []


class TestOneSequence:
    @given(shapes, st.lists(st.integers(1, 12), min_size=1, max_size=12), own_windows, st.booleans())
    @settings(max_examples=100, deadline=None)
    def test_any_chunking_sees_what_streaming_sees(
        self, shape: tuple[int, int], chunks: list[int], own: int | None, as_array: bool
    ) -> None:
        cache = SinkWindowKVCache(*shape)
        for count in chunks:
            start = cache.offset
            seen = add(cache, count, own=own, as_array=as_array)
            assert seen == [expected(start + i, *shape, own) for i in range(count)]
        assert cache.offset == sum(chunks)

    @given(shapes, st.lists(st.integers(1, 12), max_size=8))
    @settings(max_examples=40, deadline=None)
    def test_rows_are_those_that_are_remembered_in_order(self, shape: tuple[int, int], chunks: list[int]) -> None:
        cache = SinkWindowKVCache(*shape)
        for count in [3, *chunks]:
            add(cache, count)
        keys, values = cache.rows()
        assert np.array(keys)[0, 0, :, 0].tolist() == remembered(*shape, cache.offset)
        assert mx.array_equal(keys, -values)

    @given(shapes, st.integers(1, 40), st.lists(st.integers(1, 7), min_size=1, max_size=6))
    @settings(max_examples=40, deadline=None)
    def test_imported_rows_go_on_like_the_cache_they_came_from(
        self, shape: tuple[int, int], tokens: int, chunks: list[int]
    ) -> None:
        original = filled(*shape, tokens)
        keys, values = original.rows()
        imported = SinkWindowKVCache.from_rows(keys, values, tokens, sink=shape[0], window=shape[1])
        for count in chunks:
            assert add(imported, count) == add(original, count)

    def test_an_import_must_have_exactly_the_rows_that_are_remembered(self) -> None:
        for rows, tokens in ((5, 4), (6, 7), (8, 7), (8, 8), (6, 8)):
            with pytest.raises(ValueError, match="rows instead of"):
                SinkWindowKVCache.from_rows(positions(0, rows), positions(0, rows), tokens, sink=2, window=5)

    def test_short_sequences_need_no_mask_array(self) -> None:
        cache = SinkWindowKVCache(2, 6)
        assert cache.make_mask(8) == "causal"
        assert isinstance(cache.make_mask(9), mx.array)
        assert isinstance(cache.make_mask(8, return_array=True), mx.array)
        assert cache.make_mask(1) is None

    @pytest.mark.parametrize(("sink", "window"), [(-1, 4), (0, 0), (4, 0)])
    def test_impossible_sizes_are_refused(self, sink: int, window: int) -> None:
        with pytest.raises(ValueError, match="cannot be"):
            SinkWindowKVCache(sink, window)

    def test_the_stock_cache_loses_its_sinks_in_a_chunk(self) -> None:
        """Why this class exists: if mlx-lm ever sees the sinks, it can go."""
        stock = RotatingKVCache(max_size=8, keep=2)
        for start, count in ((0, 8), (8, 4)):
            mask = stock.make_mask(count)
            stock.update_and_fetch(positions(start, count), positions(start, count))
        assert isinstance(mask, mx.array)
        assert not mask[-1, 0].item()


class Rows:
    """A batch and, beside it, how many tokens each of its rows has seen."""

    def __init__(self, sink: int, window: int) -> None:
        self.shape = sink, window
        self.cache = BatchSinkWindowKVCache(sink, window, [])
        self.lengths: list[int] = []

    def join(self, tokens: int) -> None:
        self.cache.extend(SinkWindowKVCache.merge([filled(*self.shape, tokens)]))
        self.lengths.append(tokens)

    def step(self, own: int | None = None) -> None:
        mask = self.cache.make_mask(1, window_size=own)
        new = mx.array(self.lengths, mx.float32)[:, None, None, None]
        keys, values = self.cache.update_and_fetch(new, -new)
        assert mx.array_equal(keys, -values)
        stored = np.array(keys)[:, 0, :, 0].astype(int)
        visible = np.ones_like(stored, bool) if mask is None else np.array(mask)[:, 0, 0]
        for row, length in enumerate(self.lengths):
            assert sorted(stored[row][visible[row]].tolist()) == sorted(expected(length, *self.shape, own))
        self.lengths = [length + 1 for length in self.lengths]

    def keep(self, rows: list[int]) -> None:
        self.cache.filter(rows)
        self.lengths = [self.lengths[row] for row in rows]

    def check(self) -> None:
        assert self.cache.lengths == self.lengths
        assert self.cache.offset.tolist() == self.lengths
        assert self.cache.size() == min(max(self.lengths), sum(self.shape))
        for row, length in enumerate(self.lengths):
            single = self.cache.extract(row)
            assert single.offset == length
            if length:
                assert np.array(single.rows()[0])[0, 0, :, 0].tolist() == remembered(*self.shape, length)


class TestBatch:
    @given(shapes, st.data())
    @settings(max_examples=40, deadline=None)
    def test_rows_come_go_and_step_without_touching_each_other(
        self, shape: tuple[int, int], data: st.DataObject
    ) -> None:
        rows = Rows(*shape)
        rows.join(data.draw(st.integers(0, 30)))
        for _ in range(data.draw(st.integers(1, 12))):
            match data.draw(st.sampled_from(["step", "step", "join", "keep"])):
                case "step":
                    rows.step(data.draw(own_windows))
                case "join":
                    rows.join(data.draw(st.integers(0, 30)))
                case "keep":
                    count = len(rows.lengths)
                    rows.keep(sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
            rows.check()

    def test_growth_past_a_step_of_slots_keeps_everything(self) -> None:
        rows = Rows(4, 600)
        for tokens in (250, 0, 510, 700):
            rows.join(tokens)
        for _ in range(12):
            rows.step()
        rows.check()
        rows.keep([0, 1])
        assert rows.cache.nbytes == 2 * 2 * 512 * 4
        rows.step()
        rows.check()

    def test_a_merge_of_many_equals_joining_one_by_one(self) -> None:
        singles = [filled(2, 5, tokens) for tokens in (0, 3, 7, 19)]
        together, one_by_one = SinkWindowKVCache.merge(singles), SinkWindowKVCache.merge(singles[:1])
        for single in singles[1:]:
            one_by_one.extend(SinkWindowKVCache.merge([single]))
        assert together.lengths == one_by_one.lengths == [0, 3, 7, 19]
        assert together.keys is not None
        assert mx.array_equal(together.keys, one_by_one.keys)

    def test_fresh_prompts_start_without_slots(self) -> None:
        batch = SinkWindowKVCache.merge([SinkWindowKVCache(2, 5), SinkWindowKVCache(2, 5)])
        assert batch.empty()
        assert batch.nbytes == batch.size() == 0
        assert batch.extract(1).empty()
        batch.filter([1])
        assert batch.lengths == [0]

    def test_equal_rows_need_no_mask(self) -> None:
        rows = Rows(2, 6)
        for tokens in (4, 4):
            rows.join(tokens)
        assert rows.cache.make_mask(1) is None
        rows.join(3)
        assert rows.cache.make_mask(1) is not None

    def test_a_copy_goes_its_own_way(self) -> None:
        rows = Rows(2, 5)
        rows.join(9)
        twin = copy.deepcopy(rows.cache)
        twin.update_and_fetch(positions(9, 1), positions(9, 1))
        assert twin.lengths == [10]
        rows.check()

    def test_a_restored_state_is_the_same_batch(self) -> None:
        rows = Rows(2, 5)
        rows.join(9)
        rows.cache = BatchSinkWindowKVCache.from_state(rows.cache.state)
        rows.check()
        rows.step()
        rows.check()

    def test_only_one_token_a_step(self) -> None:
        batch = SinkWindowKVCache.merge([filled(2, 5, 3)])
        with pytest.raises(ValueError, match="one token a step"):
            batch.update_and_fetch(positions(3, 2), positions(3, 2))
        with pytest.raises(ValueError, match="one token a step"):
            batch.make_mask(2)

    def test_different_windows_do_not_mix(self) -> None:
        with pytest.raises(ValueError, match="equal sinks and windows"):
            SinkWindowKVCache.merge([SinkWindowKVCache(2, 5), SinkWindowKVCache(2, 6)])


class TestApplyWindow:
    def test_full_attention_is_cut_and_the_rest_is_left(self) -> None:
        sliding, state = RotatingKVCache(max_size=32), ArraysCache(2)
        cut = apply_window([KVCache(), sliding, CacheList(state, KVCache())], 4, 60)
        assert [type(leaf) for leaf in cut] == [SinkWindowKVCache, RotatingKVCache, CacheList]
        assert cut[1] is sliding
        assert cut[2].caches[0] is state
        for leaf in (cut[0], cut[2].caches[1]):
            assert isinstance(leaf, SinkWindowKVCache)
            assert (leaf.sink, leaf.window, leaf.max_size) == (4, 60, 64)

    def test_without_a_window_everything_is_left(self) -> None:
        cache = [KVCache(), RotatingKVCache(max_size=32), ArraysCache(2)]
        assert apply_window(cache, 4, None) == cache

    @pytest.mark.parametrize("window", [None, 64])
    @pytest.mark.parametrize(
        ("leaf", "name"),
        [
            (QuantizedKVCache(), "QuantizedKVCache"),
            (ChunkedKVCache(64), "ChunkedKVCache"),
            (ConcatenateKVCache(), "ConcatenateKVCache"),
            (RotatingKVCache(max_size=64, keep=4), "RotatingKVCache(keep=4)"),
            (type("HomeMadeCache", (KVCache,), {})(), "HomeMadeCache"),
            (CacheList(KVCache(), ChunkedKVCache(64)), "ChunkedKVCache"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_what_cannot_be_carried_is_refused_by_name(self, leaf: Any, name: str, window: int | None) -> None:
        with pytest.raises(UnsupportedModel) as refusal:
            apply_window([KVCache(), leaf], 4, window)
        assert name in refusal.value.message
        assert "layer 1" in refusal.value.message

    @pytest.mark.parametrize("model_type", sorted(NO_WINDOW_FAMILIES))
    def test_families_that_take_rows_for_positions_are_refused(self, model_type: str) -> None:
        assert find_spec(f"mlx_lm.models.{model_type}"), "renamed in mlx-lm?"
        with pytest.raises(UnsupportedModel, match=model_type):
            apply_window([KVCache()], 4, 64, model_type=model_type)
        if model_type not in REFUSED_FAMILIES:
            assert len(apply_window([KVCache()], 4, None, model_type=model_type)) == 1
            return
        with pytest.raises(UnsupportedModel, match=model_type):
            apply_window([KVCache()], 4, None, model_type=model_type)
