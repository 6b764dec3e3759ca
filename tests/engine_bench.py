"""Parts of the engine on a bench: a model in the test's own thread, prefilled and asked without any other machinery."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.batches import shared_weights_bytes
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.grouping import StepCost
from kakeya_ops.engine.prefill import PrefillQueue, PrefillTask
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import StoredPart
from listeners import DEADLINE_SECONDS

BLOCK_TOKENS = 16
SETTINGS = CacheSettings(block_tokens=BLOCK_TOKENS)
VOCABULARY = range(4, 260)
"""The byte tokens of the tiny models; below are special ones."""

Parts = Mapping[int, tuple[StoredPart | None, ...]]


@dataclass(frozen=True)
class Bench:
    """A model, and what is needed to run parts of the engine on it."""

    model: Any
    layout: KvLayout
    settings: CacheSettings

    @property
    def cost(self) -> StepCost:
        """What a decode step of the model reads."""
        return StepCost.of_layout(self.layout, shared_weights_bytes(self.model))

    def queue(self, *, together: int = 1) -> PrefillQueue:
        """An empty queue."""
        return PrefillQueue(self.model, self.layout, self.settings, together=together)

    def prefill(self, tokens: tuple[int, ...], *, prefix: Assembly | None = None) -> list[Any]:
        """The cache of all `tokens`, computed by the queue."""
        caches: list[list[Any]] = []
        run(self.queue(), PrefillTask(tokens, len(tokens), caches.append, throw, prefix=prefix))
        return caches[0]

    def export(self, tokens: tuple[int, ...], blocks: int) -> Parts:
        """Every part of the first `blocks` blocks, every state among them."""
        kept: dict[int, tuple[StoredPart | None, ...]] = {}
        task = PrefillTask(
            tokens,
            blocks * BLOCK_TOKENS,
            lambda cache: None,
            throw,
            on_block=kept.__setitem__,
            keep_states=frozenset(range(blocks)),
        )
        run(self.queue(), task)
        return kept

    def assemble(self, parts: Parts, blocks: int) -> Assembly:
        """The assembly of the first `blocks` blocks."""
        assembly = Assembly(self.layout, blocks)
        for block, part in self.layout.needed(blocks):
            stored = parts[block][part]
            assert stored is not None
            assembly.place(block, part, stored.data)
        return assembly

    def logits(self, cache: list[Any], token: int) -> mx.array:
        """What the model says after one more token."""
        logits: mx.array = self.model(mx.array([[token]]), cache=cache)[0, -1]
        mx.eval(logits)
        return logits


@dataclass
class Recorder:
    """A model that notes how many tokens each call had, and fails at one on demand."""

    model: Any
    chunks: list[int] = field(default_factory=list)
    fails: Callable[[int], bool] = lambda calls: False

    def __call__(self, tokens: mx.array, **options: Any) -> mx.array:
        self.chunks.append(tokens.size)
        if self.fails(len(self.chunks)):
            raise RuntimeError("no such kernel")
        result: mx.array = self.model(tokens, **options)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


def prompt(length: int, *, seed: int = 0) -> tuple[int, ...]:
    """`length` tokens of a prompt of its own."""
    return tuple(random.Random(seed).choices(VOCABULARY, k=length))


def run(queue: PrefillQueue, *tasks: PrefillTask) -> None:
    """Prefill `tasks` to their ends."""
    for task in tasks:
        queue.add(task)
    while queue.step():
        pass


def memory_comes_back_to(most_bytes: float) -> bool:
    """Whether no more than `most_bytes` of arrays are left, at some moment before a deadline.

    Arrays of the whole process are counted; other engines of the run test themselves now and then.
    """
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        gc.collect()
        if mx.get_active_memory() <= most_bytes:
            return True
    return False


def throw(error: Exception) -> None:
    """Where no task may fail."""
    raise error


__all__ = [
    "BLOCK_TOKENS",
    "SETTINGS",
    "VOCABULARY",
    "Bench",
    "Parts",
    "Recorder",
    "memory_comes_back_to",
    "prompt",
    "run",
    "throw",
]
