"""Batches of one without a copy, batches that are divided, and what a step reads of the weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.generate import GenerationBatch, StopSequences
from mlx_lm.models.cache import BatchKVCache, CacheList, KVCache, RotatingKVCache
from mlx_lm.sample_utils import greedy_sampler

from engine_bench import BLOCK_TOKENS, Bench, prompt
from kakeya_ops.engine.batches import batch_of_one, divide, shared_weights_bytes

MakeBench = Callable[[str], Bench]


def address(array: mx.array) -> int:
    return int(np.array(array, copy=False).ctypes.data)


def generating(bench: Bench, *prompts: tuple[int, ...]) -> GenerationBatch:
    """A batch of `prompts`, opened one by one."""
    batch = GenerationBatch.empty(bench.model, greedy_sampler)
    for uid, tokens in enumerate(prompts):
        batch.extend(
            GenerationBatch(
                bench.model,
                uids=[uid],
                inputs=mx.array([tokens[-1]]),
                prompt_cache=[batch_of_one(leaf) for leaf in bench.prefill(tokens[:-1])],
                tokens=[list(tokens[:-1])],
                samplers=[greedy_sampler],
                fallback_sampler=greedy_sampler,
                logits_processors=[[]],
                stop_sequences=[StopSequences(None)],
                max_tokens=[1000],
            )
        )
    return batch


def tokens_of(batch: GenerationBatch, steps: int) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {uid: [] for uid in batch.uids}
    for _ in range(steps):
        for response in batch.next():
            found[response.uid].append(response.token)
    return found


def test_a_plain_cache_becomes_a_batch_without_a_copy_and_keeps_its_spare_rows(llama: Bench) -> None:
    leaves = llama.prefill(prompt(40))
    before = [(address(leaf.keys), address(leaf.values)) for leaf in leaves]
    batches = [batch_of_one(leaf) for leaf in leaves]
    assert [(address(batch.keys), address(batch.values)) for batch in batches] == before
    assert {type(batch) for batch in batches} == {BatchKVCache}
    assert {batch.keys.shape[2] for batch in batches} == {256}
    assert {batch.size() for batch in batches} == {40}


def test_an_imported_prefix_is_decoded_where_it_was_placed(llama: Bench) -> None:
    """Neither joining nor the first token copies it: it has room for one token more, also where it fills its rows."""
    tokens = prompt(16 * BLOCK_TOKENS)
    (cache,) = [llama.prefill(tokens, prefix=llama.assemble(llama.export(tokens, 16), 16))]
    batches = [batch_of_one(leaf) for leaf in cache]
    before = [address(batch.keys) for batch in batches]
    cache.clear()
    mx.eval(llama.model(mx.array([[65]]), cache=batches), [batch.keys for batch in batches])
    assert [address(batch.keys) for batch in batches] == before


def test_leaves_of_other_kinds_are_merged_also_inside_of_lists() -> None:
    rows = mx.zeros((1, 2, 5, 4))
    plain, rotating = KVCache(), RotatingKVCache(8)
    for leaf in (plain, rotating):
        leaf.update_and_fetch(rows, rows)
    batch = batch_of_one(CacheList(plain, rotating))
    assert [type(leaf).__name__ for leaf in batch.caches] == ["BatchKVCache", "BatchRotatingKVCache"]
    assert batch_of_one(KVCache()).empty()


@pytest.mark.parametrize("family", ["llama", "gemma3", "granite_hybrid", "gpt_oss"])
@pytest.mark.parametrize("leaving", [(1,), (0, 2), (2,)])
def test_a_divided_batch_goes_on_as_if_nothing_had_been(
    bench_of: MakeBench, family: str, leaving: tuple[int, ...]
) -> None:
    bench = bench_of(family)
    prompts = [prompt(length, seed=length) for length in (50, 7, 90)]
    expected = tokens_of(generating(bench, *prompts), 12)
    batch = generating(bench, *prompts)
    found = tokens_of(batch, 4)
    other = divide(batch, leaving)
    assert tuple(other.uids) == leaving
    for part in (other, batch, other, batch):
        for uid, tokens in tokens_of(part, 4).items():
            found[uid] += tokens
    assert found == expected


def test_experts_are_no_part_of_what_all_rows_share() -> None:
    class Model:
        def parameters(self) -> dict[str, Any]:
            return {"head": mx.zeros((10, 4)), "layers": [{"norm": mx.zeros(4), "experts": mx.zeros((8, 10, 4))}]}

    assert shared_weights_bytes(Model()) == 4 * (40 + 4)
