"""Assemblies: any order, any thread, and the rows just where the model's cache has them."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from engine_bench import BLOCK_TOKENS, SETTINGS, Bench, memory_comes_back_to, prompt
from kakeya_ops.engine import engine as engines
from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.contract import CacheSettings, DecodeRequest
from kakeya_ops.engine.leaves import flatten
from kakeya_ops.engine.sink_window import SinkWindowKVCache
from kakeya_ops.errors import EngineError
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from listeners import Listener


class Shell:
    """As much of a model as a cache list needs."""

    def __init__(self, *leaves: Any) -> None:
        self._leaves = leaves

    def make_cache(self) -> list[Any]:
        return list(self._leaves)


def rows_layout(block_tokens: int, *, sink: int = 0, window: int | None = None) -> KvLayout:
    """One leaf of one head whose rows are one number wide."""
    arrays = tuple(ArrayLayout(0, slot, "float32", (1, block_tokens, 1)) for slot in ("keys", "values"))
    return KvLayout(block_tokens, ("",), (PartLayout("full" if window is None else "window", arrays, sink, window),))


def positions(block: int, block_tokens: int) -> bytes:
    """Payload whose keys are their own positions, and whose values are those negated."""
    keys = np.arange(block * block_tokens, (block + 1) * block_tokens, dtype=np.float32)
    return np.concatenate([keys, -keys]).tobytes()


def placed(layout: KvLayout, blocks: int) -> Assembly:
    assembly = Assembly(layout, blocks)
    for block, part in random.Random(blocks).sample(layout.needed(blocks), len(layout.needed(blocks))):
        assembly.place(block, part, positions(block, layout.block_tokens))
    return assembly


@settings(deadline=None)
@given(
    block_tokens=st.integers(1, 8),
    blocks=st.integers(1, 12),
    sink=st.integers(0, 9),
    window=st.integers(1, 20),
)
def test_a_windowed_leaf_holds_the_sinks_and_the_window_in_order(
    block_tokens: int, blocks: int, sink: int, window: int
) -> None:
    leaf = SinkWindowKVCache(sink, window)
    assembly = placed(rows_layout(block_tokens, sink=sink, window=window), blocks)
    assembly.into_cache(Shell(leaf), CacheSettings(block_tokens))
    tokens = blocks * block_tokens
    expected = [position for position in range(tokens) if position < sink or position >= tokens - window]
    assert leaf.keys[0, 0, :, 0].tolist() == expected
    assert leaf.values[0, 0, :, 0].tolist() == [-position for position in expected]
    assert (leaf.offset, leaf._idx) == (tokens, len(expected))


@pytest.mark.parametrize("blocks", [1, 15, 16, 17])
def test_a_full_leaf_holds_every_row_and_room_to_grow_as_mlx_lm_does(blocks: int) -> None:
    leaf = KVCache()
    placed(rows_layout(16), blocks).into_cache(Shell(leaf), SETTINGS)
    assert leaf.keys[0, 0, : leaf.offset, 0].tolist() == list(range(blocks * 16))
    assert leaf.keys.shape[2] % KVCache.step == 0


def test_a_sliding_leaf_of_the_models_own_is_filled_like_a_window() -> None:
    leaf = RotatingKVCache(max_size=20, keep=0)
    placed(rows_layout(8, window=20), 5).into_cache(Shell(leaf), SETTINGS)
    assert leaf.keys[0, 0, :, 0].tolist() == list(range(20, 40))
    assert leaf._idx == 20


def test_states_of_mixed_types_come_through() -> None:
    arrays = (ArrayLayout(0, "0", "bfloat16", (3,)), ArrayLayout(0, "1", "float32", (2, 2)))
    layout = KvLayout(4, ("",), (PartLayout("state", arrays),))
    leaf = ArraysCache(2)
    assembly = Assembly(layout, 2)
    # Three numbers of two bytes leave the four of four bytes unaligned.
    half = mx.array([1.0, 2.0, 3.0], mx.bfloat16).view(mx.uint16)
    assembly.place(1, 0, bytes(memoryview(half)) + np.arange(4, dtype=np.float32).tobytes())
    assembly.into_cache(Shell(leaf), SETTINGS)
    assert leaf.cache[0].dtype == mx.bfloat16
    assert leaf.cache[0].tolist() == [[1.0, 2.0, 3.0]]
    assert leaf.cache[1].tolist() == [[[0.0, 1.0], [2.0, 3.0]]]


def test_it_is_complete_when_all_that_is_needed_is_there_and_not_before(llama: Bench) -> None:
    parts = llama.export(prompt(64), 3)
    assembly = Assembly(llama.layout, 3)
    for block in (2, 0):
        assembly.place(block, 0, parts[block][0].data)  # type: ignore[union-attr]
        assembly.place(block, 0, parts[block][0].data)  # type: ignore[union-attr]
    assert not assembly.complete
    with pytest.raises(EngineError, match="1 parts of 3 blocks"):
        assembly.into_cache(llama.model, llama.settings)
    assembly.place(1, 0, parts[1][0].data)  # type: ignore[union-attr]
    assert assembly.complete
    assert len(assembly.into_cache(llama.model, llama.settings)) == 2


def test_parts_that_are_not_needed_are_ignored() -> None:
    layout = rows_layout(4, window=4)
    assembly = Assembly(layout, 3)
    assembly.place(0, 0, b"what")
    assembly.place(9, 0, b"what")
    assembly.place(2, 7, b"what")
    assert not assembly.complete


@pytest.mark.parametrize("change", [-1, 1])
def test_a_payload_of_another_length_is_refused(change: int) -> None:
    layout = rows_layout(4)
    with pytest.raises(ValueError, match="instead of 32"):
        Assembly(layout, 1).place(0, 0, bytes(layout.parts[0].nbytes + change))


def test_threads_may_place_at_once(llama: Bench) -> None:
    blocks = 40
    tokens = prompt(blocks * BLOCK_TOKENS)
    parts = llama.export(tokens, blocks)
    assembly = Assembly(llama.layout, blocks)

    def place(seed: int) -> None:
        for block in random.Random(seed).sample(range(blocks), blocks):
            assembly.place(block, 0, parts[block][0].data)  # type: ignore[union-attr]

    threads = [threading.Thread(target=place, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ours, theirs = assembly.into_cache(llama.model, llama.settings), llama.prefill(tokens)
    for mine, other in zip(flatten(ours), flatten(theirs), strict=True):
        assert mx.array_equal(mine.keys[..., : mine.offset, :], other.keys[..., : other.offset, :]).item()
        assert mx.array_equal(mine.values[..., : mine.offset, :], other.values[..., : other.offset, :]).item()


def test_it_takes_the_memory_that_it_says_and_hands_it_over(llama: Bench) -> None:
    gc.collect()
    before = mx.get_active_memory()
    assembly = Assembly(llama.layout, 64)
    assert assembly.nbytes == (64 + 16) * llama.layout.parts[0].nbytes  # rows in steps of 256, with room for one more
    assert mx.get_active_memory() - before > assembly.nbytes / 2
    for block in range(64):
        assembly.place(block, 0, bytes(llama.layout.parts[0].nbytes))
    cache = assembly.into_cache(llama.model, llama.settings)
    assert assembly.nbytes == 0
    del cache
    assert memory_comes_back_to(before + 10_000)


def test_no_blocks_are_no_prefix(llama: Bench) -> None:
    with pytest.raises(ValueError, match="at least one block"):
        Assembly(llama.layout, 0)


def test_buffers_are_made_some_at_a_time_and_in_the_end_all_of_them(llama: Bench) -> None:
    whole = Assembly(llama.layout, 4)
    opening = Assembly(llama.layout, 4, allocated=False)
    one = opening.nbytes // len(llama.layout.parts[0].arrays)
    steps = [opening.allocate(most) for most in (0, 2 * one, 2 * one)]
    assert steps == [False, False, True]
    assert opening.nbytes == whole.nbytes
    for block in range(4):
        opening.place(block, 0, bytes(llama.layout.parts[0].nbytes))
    assert opening.complete


def test_an_import_is_opened_between_decode_steps(open_engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_ALLOCATED_BYTES", 1)
    engine = open_engine()
    running = Listener()
    engine.decode(DecodeRequest("r", prompt(8), 400), running)
    running.wait_for_tokens(1)
    assembly = engine.open_import(8)
    heard = len(running.tokens)
    engine.open_import(8)
    assert len(assembly.layout.parts[0].arrays) == 4
    assert len(running.tokens) - heard >= 2
