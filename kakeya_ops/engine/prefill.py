"""Prefill on the one absolute grid: chunks of `block_tokens`, one after the other, in pieces between decode steps.

KV is bit-identical on two nodes only when both make the same calls, so every chunk ends at a multiple of the grid, and
the prompt's last token is never part of one. A partial chunk (the end of a prompt) is computed but never exported.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.blocks import seal_payloads, trace_block
from kakeya_ops.engine.chunk import Chunk, Payloads
from kakeya_ops.engine.contract import BlockSink, CacheSettings
from kakeya_ops.engine.leaves import make_cache
from kakeya_ops.engine.rate import PrefillRate
from kakeya_ops.errors import KakeyaError
from kakeya_ops.kv.layout import KvLayout

_STATE_STRIDE_BLOCKS = 16
"""A recurrent state is as large as hundreds of tokens of KV, so only every so many blocks become resume points."""

_logger = logging.getLogger(__name__)


class Cancelled(KakeyaError):
    """Nobody wants this work any more."""

    def __init__(self) -> None:
        super().__init__("cancelled")


@dataclass(frozen=True)
class PrefillJob:
    """Compute and export the blocks from where `prefix` ends (0 without one) up to `to_block`.

    `keep_states` names the blocks after which recurrent layers are exported too; None means the last block and every
    16th. `on_done` is called once, with None, `Cancelled` or the error. In the `background` it takes nobody's place,
    and is cancelled as soon as anything else is wanted of the engine.
    """

    tokens: tuple[int, ...]
    to_block: int
    on_block: BlockSink
    on_done: Callable[[Exception | None], None]
    prefix: Assembly | None = None
    keep_states: frozenset[int] | None = None
    background: bool = False


@dataclass(eq=False)
class PrefillTask:
    """Tokens on their way into a cache, up to `end` (exclusive).

    Ends with `on_ready`, which is given the cache, or with `on_failed` (also when `on_ready` raised), and keeps no KV
    afterwards. Belongs to the compute thread, but for `cancel` and `remaining_tokens`.
    """

    tokens: tuple[int, ...]
    end: int
    on_ready: Callable[[list[Any]], None]
    on_failed: Callable[[Exception], None]
    on_block: BlockSink | None = None
    on_progress: Callable[[int], None] | None = None
    prefix: Assembly | None = None
    keep_states: frozenset[int] | None = None
    background: bool = False
    cancelled: bool = False
    position: int = field(init=False)
    cache: list[Any] | None = field(default=None, init=False, repr=False)
    chunk: Chunk | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.position = self.prefix.tokens if self.prefix else 0

    def cancel(self) -> None:
        """Stop at the next chunk."""
        self.cancelled = True

    @property
    def remaining_tokens(self) -> int:
        """Tokens still to be computed."""
        return max(self.end - self.position, 0)

    def finish(self) -> None:
        """Hand the cache over."""
        cache, self.cache = self.cache, None
        assert cache is not None
        self.on_ready(cache)

    def fail(self, error: Exception) -> None:
        """Give up."""
        self.cache = self.prefix = self.chunk = None
        self.on_failed(error)


class PrefillQueue:
    """Tasks in order of arrival; up to `together` of them take turns, chunk by chunk, the rest wait."""

    def __init__(self, model: Any, layout: KvLayout, settings: CacheSettings, *, together: int) -> None:
        self.rate = PrefillRate()
        self._model = model
        self._layout = layout
        self._settings = settings
        self._together = together
        self._tasks: deque[PrefillTask] = deque()

    def add(self, task: PrefillTask) -> None:
        """Queue `task`."""
        self._tasks.append(task)

    def clear(self) -> None:
        """Forget every task."""
        self._tasks.clear()

    def __len__(self) -> int:
        return len(self._tasks)

    def step(self, budget_seconds: float | None = None) -> bool:
        """Go on with the chunk of the task whose turn it is; False when there is nothing to do.

        The whole chunk, or as much of it as `budget_seconds` have room for; a chunk that was begun is ended before
        another task has its turn.
        """
        self._drop_cancelled()
        if not self._tasks:
            return False
        task = self._tasks.popleft()
        try:
            self._advance(task, budget_seconds)
        except Exception as error:
            if not isinstance(error, KakeyaError):
                _logger.exception("a prefill failed")
            # The frames of its traceback hold the cache, for as long as anybody holds the error.
            task.fail(error.with_traceback(None))
        return True

    def _drop_cancelled(self) -> None:
        for task in [task for task in self._tasks if task.cancelled]:
            self._tasks.remove(task)
            task.fail(Cancelled())

    def _advance(self, task: PrefillTask, budget_seconds: float | None) -> None:
        """Go on with the task's chunk, and put it back where it belongs unless that was the last."""
        if task.cache is None:
            task.cache = self._open(task.prefix)
            task.prefix = None
        if task.chunk is None and task.remaining_tokens:
            task.chunk = self._begin_chunk(task, task.cache)
        if task.chunk:
            if not task.chunk.advance(budget_seconds):
                self._tasks.appendleft(task)
                return
            self._end_chunk(task, task.chunk)
        if task.remaining_tokens:
            self._tasks.insert(self._together - 1, task)
        else:
            task.finish()

    def _open(self, prefix: Assembly | None) -> list[Any]:
        if prefix is None:
            return make_cache(self._model, self._settings)
        return prefix.into_cache(self._model, self._settings)

    def _begin_chunk(self, task: PrefillTask, cache: list[Any]) -> Chunk:
        size = self._layout.block_tokens
        block = task.position // size
        stop = min((block + 1) * size, task.end)
        exported = task.on_block and stop - task.position == size
        trace = (lambda cache: self._trace(task, cache, block)) if exported else lambda cache: []
        return Chunk(self._model, task.tokens[task.position : stop], cache, trace)

    def _end_chunk(self, task: PrefillTask, chunk: Chunk) -> None:
        task.chunk = None
        block = task.position // self._layout.block_tokens
        if chunk.tokens == self._layout.block_tokens:
            self.rate.observe(chunk.tokens, chunk.seconds, task.position)
        task.position += chunk.tokens
        if chunk.payloads and task.on_block:
            task.on_block(block, seal_payloads(chunk.payloads))
        if task.on_progress:
            task.on_progress(task.position)

    def _trace(self, task: PrefillTask, cache: list[Any], block: int) -> Payloads:
        last = task.end // self._layout.block_tokens - 1
        if task.keep_states is None:
            with_state = block == last or (block + 1) % _STATE_STRIDE_BLOCKS == 0
        else:
            with_state = block in task.keep_states
        return trace_block(cache, self._layout, with_state=with_state)


__all__ = ["Cancelled", "PrefillJob", "PrefillQueue", "PrefillTask"]
