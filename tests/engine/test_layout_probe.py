"""Layouts read off real models that never compute anything."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import ArraysCache, KVCache

from engine_bench import BLOCK_TOKENS, Bench, memory_comes_back_to
from kakeya_ops.demo.tiny_model import TinySizes, make_tiny_llama
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.identify import load_weights
from kakeya_ops.engine.layout_probe import probe_layout
from kakeya_ops.errors import UnsupportedModel
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.model.directory import ModelDirectory

MakeBench = Callable[[str], Bench]


class Traced:
    """A model of one layer that keeps `array` in the cache `leaf`."""

    def __init__(self, leaf: Any, array: mx.array | None) -> None:
        self._leaf = leaf
        self._array = array

    def make_cache(self) -> list[Any]:
        return [self._leaf]

    def __call__(self, tokens: mx.array, cache: list[Any]) -> mx.array:
        if self._array is not None:
            if isinstance(self._leaf, ArraysCache):
                self._leaf[0] = self._array
            else:
                self._leaf.update_and_fetch(self._array, self._array)
        return tokens


def test_full_attention_is_one_part_with_the_rows_of_each_leaf(llama: Bench) -> None:
    (part,) = llama.layout.parts
    assert (part.kind, part.sink, part.window) == ("full", 0, None)
    assert [(a.leaf, a.slot, a.dtype, a.shape) for a in part.arrays] == [
        (leaf, slot, "float32", (2, BLOCK_TOKENS, 16)) for leaf in (0, 1) for slot in ("keys", "values")
    ]
    assert llama.layout.leaves == ("KVCache", "KVCache")


def test_a_hybrid_has_a_part_for_states_and_one_for_rows(bench_of: MakeBench) -> None:
    parts = {part.kind: part for part in bench_of("granite_hybrid").layout.parts}
    assert set(parts) == {"state", "full"}
    assert {array.leaf for array in parts["state"].arrays} == {0, 2}
    assert {array.leaf for array in parts["full"].arrays} == {1}
    # The state of one sequence, whatever the block: its convolution's last three inputs, and its matrix.
    assert parts["state"].arrays[0].shape[0] == 3


def test_a_window_of_the_inventorys_is_a_part_of_its_own_kind(llama: Bench) -> None:
    (part,) = probe_layout(llama.model, CacheSettings(BLOCK_TOKENS, sink=3, window=40)).parts
    assert (part.kind, part.sink, part.window) == ("window", 3, 40)


def test_layers_with_equal_windows_travel_together(bench_of: MakeBench) -> None:
    layout = bench_of("gemma3").layout
    assert [(part.kind, part.window) for part in layout.parts] == [("window", 64), ("full", None)]
    assert sum(len(part.arrays) for part in layout.parts) == 2 * len(layout.leaves)


@pytest.mark.parametrize("family", ["llama", "granite_hybrid", "gemma3", "mamba2"])
def test_a_layout_survives_its_json(bench_of: MakeBench, family: str) -> None:
    layout = bench_of(family).layout
    assert KvLayout.from_json(layout.to_json()) == layout


def test_probing_reads_no_weights(tmp_path: Any) -> None:
    path = make_tiny_llama(tmp_path / "larger", sizes=TinySizes(layers=4, hidden=256, intermediate=1024))
    gc.collect()
    before = mx.get_active_memory()
    model, _ = load_weights(ModelDirectory.open(path), lazy=True)
    layout = probe_layout(model, CacheSettings())
    assert len(layout.leaves) == 4
    assert memory_comes_back_to(before + 100_000)
    assert model is not None


def test_a_type_that_the_wire_does_not_know_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="int8"):
        probe_layout(Traced(ArraysCache(1), mx.zeros((1, 4), mx.int8)), CacheSettings())


def test_a_model_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(UnsupportedModel, match="no KV"):
        probe_layout(Traced(ArraysCache(1), None), CacheSettings())


def test_an_unknown_cache_is_refused_before_anything_is_traced() -> None:
    with pytest.raises(UnsupportedModel, match="SimpleNamespace"):
        probe_layout(Traced(SimpleNamespace(), None), CacheSettings())


def test_a_block_of_a_half_precision_model_is_half_as_long() -> None:
    rows = mx.zeros((1, 2, 8, 4), mx.bfloat16)
    layout = probe_layout(Traced(KVCache(), rows), CacheSettings(block_tokens=8))
    assert layout.parts[0].nbytes == 2 * (2 * 8 * 4) * 2
