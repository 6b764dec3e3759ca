"""Payloads: the bytes that the layout says, and nothing that keeps a cache alive."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache

from engine_bench import BLOCK_TOKENS, Bench, memory_comes_back_to, prompt
from kakeya_ops.engine.blocks import seal_payloads, trace_block
from kakeya_ops.engine.leaves import flatten, make_cache
from kakeya_ops.kv.hashing import content_checksum
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout

MakeBench = Callable[[str], Bench]


def compute(bench: Bench, chunks: int) -> list[Any]:
    """A cache after `chunks` whole chunks."""
    cache = make_cache(bench.model, bench.settings)
    tokens = prompt(chunks * BLOCK_TOKENS)
    for start in range(0, len(tokens), BLOCK_TOKENS):
        bench.model(mx.array([tokens[start : start + BLOCK_TOKENS]]), cache=cache)
    mx.eval([leaf.state for leaf in flatten(cache)])
    return cache


def seal(bench: Bench, cache: list[Any], *, with_state: bool = True) -> tuple[Any, ...]:
    payloads = trace_block(cache, bench.layout, with_state=with_state)
    mx.eval(payloads)
    return seal_payloads(payloads)


def test_a_payload_is_the_newest_rows_of_each_leaf_back_to_back(llama: Bench) -> None:
    cache = compute(llama, 3)
    (stored,) = seal(llama, cache)
    rows = [getattr(leaf, slot) for leaf in cache for slot in ("keys", "values")]
    newest = [np.array(array)[0, :, 2 * BLOCK_TOKENS : 3 * BLOCK_TOKENS] for array in rows]
    assert bytes(stored.data) == b"".join(array.tobytes() for array in newest)
    assert stored.nbytes == llama.layout.parts[0].nbytes
    assert stored.checksum == content_checksum(stored.data)


@pytest.mark.parametrize("family", ["mamba2", "granite_hybrid", "gemma3", "deepseek_v3"])
def test_every_payload_is_as_long_as_the_layout_says(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    sealed = seal(bench, compute(bench, 2))
    assert [stored.nbytes for stored in sealed] == [part.nbytes for part in bench.layout.parts]


def test_a_state_that_is_not_wanted_is_not_there(bench_of: MakeBench) -> None:
    bench = bench_of("granite_hybrid")
    sealed = seal(bench, compute(bench, 1), with_state=False)
    assert [stored is None for stored in sealed] == [part.kind == "state" for part in bench.layout.parts]
    assert {part.kind for part in bench.layout.parts} == {"full", "state"}


def test_payloads_cannot_be_written_to(llama: Bench) -> None:
    (stored,) = seal(llama, compute(llama, 1))
    with pytest.raises(TypeError):
        stored.data[0] = 1


@pytest.mark.parametrize("family", ["llama", "deepseek_v3", "mamba2", "gemma3"])
def test_payloads_do_not_keep_the_cache_alive(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    gc.collect()
    before = mx.get_active_memory()
    sealed = seal(bench, compute(bench, 24))
    assert memory_comes_back_to(before + 1.1 * sum(stored.nbytes for stored in sealed) + 4096)


def test_a_state_that_is_a_view_of_something_larger_is_copied() -> None:
    leaf = ArraysCache(1)
    layout = KvLayout(1, ("ArraysCache",), (PartLayout("state", (ArrayLayout(0, "0", "float32", (4, 4)),)),))
    before = mx.get_active_memory()
    larger = mx.arange(16 * 4096, dtype=mx.float32).reshape(4096, 4, 4)
    mx.eval(larger)
    leaf.cache[0] = larger[-1:]
    payloads = trace_block([leaf], layout, with_state=True)
    mx.eval(payloads)
    (stored,) = seal_payloads(payloads)
    assert stored is not None
    del payloads, larger
    leaf.cache[0] = None
    assert np.frombuffer(stored.data, np.float32)[0] == 16 * 4095
    assert memory_comes_back_to(before + 4096)
