"""One prompt computed whole and from another engine's blocks: what both arithmetic legs of the family tests run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.contract import CacheSettings, DecodeRequest, Sampling, TokenEvent
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.prefill import PrefillJob
from kakeya_ops.kv.pool import StoredPart
from listeners import Blocks, Listener

BLOCK_TOKENS = 32
SINK, WINDOW = 4, 60
SETTINGS: Mapping[str, CacheSettings] = {
    "whole": CacheSettings(block_tokens=BLOCK_TOKENS),
    "sink-window": CacheSettings(block_tokens=BLOCK_TOKENS, sink=SINK, window=WINDOW),
}
VOCABULARY = 260
PROMPT: tuple[int, ...] = tuple(random.Random(7).choices(range(4, VOCABULARY), k=200))
"""Longer than every window; shorter prompts are its beginnings."""
BLOCKS = (len(PROMPT) - 1) // BLOCK_TOKENS

Parts = Mapping[int, tuple[StoredPart | None, ...]]


@dataclass(frozen=True)
class Answer:
    """What an engine made of a prompt: every log-probability of each token, and the blocks that it computed itself."""

    events: tuple[TokenEvent, ...]
    computed: Mapping[int, tuple[bytes | None, ...]]

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.events]

    @property
    def logprobs(self) -> NDArray[np.float64]:
        """Of each decoded token, in the order of token ids."""
        return np.array([[value for _, value in sorted(event.top)] for event in self.events])


@contextmanager
def uncompiled() -> Iterator[None]:
    """MLX without its compiler, which on CPU calls the C++ compiler for seconds at the first use of each function."""
    mx.disable_compile()
    try:
        yield
    finally:
        mx.enable_compile()


@contextmanager
def engine_of(path: Path, settings: CacheSettings) -> Iterator[Engine]:
    """An engine that is closed again."""
    engine = Engine.load(path, settings)
    try:
        yield engine
    finally:
        engine.close()


def export(engine: Engine, tokens: tuple[int, ...], blocks: int) -> Parts:
    """Every part of the first `blocks` blocks of `tokens`, each with its states."""
    kept = Blocks()
    engine.prefill(PrefillJob(tokens, blocks, kept.keep, kept.done, keep_states=frozenset(range(blocks))))
    assert kept.wait() is None
    return kept.parts


def assemble(
    engine: Engine, parts: Parts, blocks: int, *, forged: Mapping[tuple[int, int], bytes] | None = None
) -> Assembly:
    """The first `blocks` blocks placed from their bytes, those that are needed and no other but `forged` ones."""
    assembly = engine.open_import(blocks)
    for (block, part), data in (forged or {}).items():
        assembly.place(block, part, data)
    for block, part in engine.layout.needed(blocks):
        stored = parts[block][part]
        assert stored is not None
        assembly.place(block, part, bytes(stored.data))
    assert assembly.complete
    return assembly


def begin(
    engine: Engine, tokens: tuple[int, ...], count: int, *, prefix: Assembly | None = None
) -> tuple[Listener, Blocks]:
    """Start decoding `count` tokens after `tokens`."""
    listener, kept = Listener(), Blocks()
    request = DecodeRequest("r", tokens, count, Sampling(top_logprobs=VOCABULARY))
    engine.decode(request, listener, prefix=prefix, on_block=kept.keep)
    return listener, kept


def answer(engine: Engine, tokens: tuple[int, ...], *, prefix: Assembly | None = None, count: int = 3) -> Answer:
    """The next `count` tokens after `tokens`."""
    listener, kept = begin(engine, tokens, count, prefix=prefix)
    listener.wait_for_end()
    computed = {
        block: tuple(None if part is None else bytes(part.data) for part in parts)
        for block, parts in kept.parts.items()
    }
    return Answer(tuple(listener.token_events), computed)


def deviation(one: Answer, other: Answer) -> float:
    """The largest difference between the first tokens' log-probabilities, in units of their spread."""
    first, second = one.logprobs[0], other.logprobs[0]
    return float(np.abs(first - second).max() / first.std())


__all__ = [
    "BLOCKS",
    "BLOCK_TOKENS",
    "PROMPT",
    "SETTINGS",
    "SINK",
    "WINDOW",
    "Answer",
    "Parts",
    "answer",
    "assemble",
    "begin",
    "deviation",
    "engine_of",
    "export",
    "uncompiled",
]
