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


@dataclass(frozen=True)
class Running:
    """A prompt that is being answered."""

    listener: Listener
    kept: Blocks

    def wait(self) -> Answer:
        """The whole answer."""
        self.listener.wait_for_end()
        computed = {
            block: tuple(None if part is None else bytes(part.data) for part in parts)
            for block, parts in self.kept.parts.items()
        }
        return Answer(tuple(self.listener.token_events), computed)


def start(engine: Engine, tokens: tuple[int, ...], *, prefix: Assembly | None = None, count: int = 3) -> Running:
    """Begin to decode `count` tokens after `tokens`."""
    running = Running(Listener(), Blocks())
    request = DecodeRequest("r", tokens, count, Sampling(top_logprobs=VOCABULARY))
    engine.decode(request, running.listener, prefix=prefix, on_block=running.kept.keep)
    return running


def answer(engine: Engine, tokens: tuple[int, ...], *, prefix: Assembly | None = None, count: int = 3) -> Answer:
    """The next `count` tokens after `tokens`."""
    return start(engine, tokens, prefix=prefix, count=count).wait()


def answer_together(engine: Engine, parts: Parts, *, count: int) -> tuple[list[Answer], list[Answer]]:
    """Prompts of three lengths answered alone, and again with the later ones joining while the first is decoded.

    The last to join is imported from `parts`.
    """
    prompts = [PROMPT, PROMPT[: BLOCK_TOKENS + 1], PROMPT[: 3 * BLOCK_TOKENS + 5]]
    alone = [answer(engine, tokens, count=count) for tokens in prompts]
    first = start(engine, prompts[0], count=count)
    first.listener.wait_for_tokens(2)
    second = start(engine, prompts[1], count=count)
    second.listener.wait_for_tokens(2)
    third = start(engine, prompts[2], count=count, prefix=assemble(engine, parts, 3))
    return alone, [running.wait() for running in (first, second, third)]


def deviation(one: Answer, other: Answer) -> float:
    """The largest difference between log-probabilities, in units of their spread, up to where the tokens differ."""
    equal = [mine == theirs for mine, theirs in zip(one.tokens, other.tokens, strict=True)]
    count = equal.index(False) + 1 if False in equal else len(equal)
    first, second = one.logprobs[:count], other.logprobs[:count]
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
    "answer_together",
    "assemble",
    "deviation",
    "engine_of",
    "export",
    "uncompiled",
]
