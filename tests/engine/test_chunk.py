"""A chunk computed in pieces: the same bits, in as many pieces as there is time for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx
import pytest

from engine_bench import BLOCK_TOKENS, Bench, Recorder, prompt
from kakeya_ops.engine import chunk as chunks
from kakeya_ops.engine.blocks import seal_payloads, trace_block
from kakeya_ops.engine.chunk import Chunk
from kakeya_ops.engine.leaves import flatten, make_cache

MakeBench = Callable[[str], Bench]
FAMILIES = ["llama", "gemma3", "gpt_oss", "granite_hybrid", "deepseek_v3"]


class Clock:
    """Every look at it takes one second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 1.0
        return self.now


def begin(bench: Bench, cache: list[Any], block: int) -> Chunk:
    tokens = prompt(3 * BLOCK_TOKENS)[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS]
    return Chunk(bench.model, tokens, cache, lambda cache: trace_block(cache, bench.layout, with_state=True))


def blocks(bench: Bench, between: Callable[[Chunk], None]) -> Iterator[bytes]:
    """Every payload of three chunks."""
    cache = make_cache(bench.model, bench.settings)
    for block in range(3):
        chunk = begin(bench, cache, block)
        between(chunk)
        yield from (part.data.tobytes() for part in seal_payloads(chunk.payloads) if part)


def whole(chunk: Chunk) -> None:
    assert chunk.advance(None)


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_between_which_others_decode_give_the_same_bits(bench_of: MakeBench, family: str) -> None:
    bench = bench_of(family)
    other = bench.prefill(prompt(20, seed=5))

    def bit_by_bit(chunk: Chunk) -> None:
        pieces = 1
        while not chunk.advance(0.0):
            bench.logits(other, 70)
            pieces += 1
        assert pieces == len(flatten(other)) + 1

    assert list(blocks(bench, bit_by_bit)) == list(blocks(bench, whole))


def test_the_model_is_called_once_whatever_the_pieces(llama: Bench) -> None:
    recorder = Recorder(llama.model)
    cache = make_cache(llama.model, llama.settings)
    chunk = Chunk(recorder, prompt(BLOCK_TOKENS), cache, lambda cache: [])
    while not chunk.advance(0.0):
        pass
    assert recorder.chunks == [BLOCK_TOKENS]
    assert [leaf.offset for leaf in flatten(cache)] == [BLOCK_TOKENS, BLOCK_TOKENS]


@pytest.mark.parametrize(("budget_seconds", "rounds"), [(0.0, 3), (2.9, 3), (3.0, 2), (4.9, 2), (5.0, 1), (None, 1)])
def test_no_piece_is_begun_that_would_not_fit(
    llama: Bench, monkeypatch: pytest.MonkeyPatch, budget_seconds: float | None, rounds: int
) -> None:
    monkeypatch.setattr(chunks, "time", Clock())
    chunk = begin(llama, make_cache(llama.model, llama.settings), 0)
    assert [chunk.advance(budget_seconds) for _ in range(rounds)] == [False] * (rounds - 1) + [True]


def test_time_that_others_took_is_not_its_own(llama: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(chunks, "time", clock)
    chunk = begin(llama, make_cache(llama.model, llama.settings), 0)
    assert chunk.seconds == 1.0
    while not chunk.advance(0.0):
        clock.now += 1000
    assert chunk.seconds == 1.0 + 3 * 3.0


def test_without_time_left_over_nothing_of_a_chunk_is_computed_twice(llama: Bench) -> None:
    cache = make_cache(llama.model, llama.settings)
    chunk = begin(llama, cache, 0)
    while not chunk.advance(0.0):
        pass
    assert chunk.advance(0.0)
    expected = make_cache(llama.model, llama.settings)
    whole(begin(llama, expected, 0))
    for mine, theirs in zip(flatten(cache), flatten(expected), strict=True):
        assert mx.array_equal(mine.state[0], theirs.state[0]).item()
