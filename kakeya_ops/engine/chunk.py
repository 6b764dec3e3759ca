"""One grid chunk of a prompt, computed in pieces so that those who decode need not wait for the whole of it.

The model is called once for the whole chunk, and once only: KV is bit-identical on two nodes just when both make the
same calls. But MLX computes lazily, and what the call leaves is a graph. Evaluated leaf by leaf it is the same graph,
of the same operations on the same values; between two leaves other work may run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from kakeya_ops.engine.leaves import flatten

Payloads = list[mx.array | None]


class Chunk:
    """The computation of `tokens` after what is in `cache`; `trace` then says what of it is exported."""

    def __init__(
        self, model: Any, tokens: tuple[int, ...], cache: list[Any], trace: Callable[[list[Any]], Payloads]
    ) -> None:
        began = time.perf_counter()
        self.tokens = len(tokens)
        model(mx.array([tokens]), cache=cache)
        self.payloads = trace(cache)
        self._pieces: deque[Any] = deque([*(leaf.state for leaf in flatten(cache)), self.payloads])
        self.seconds = time.perf_counter() - began
        """Spent on it so far, what other work took in between left out."""

    def advance(self, budget_seconds: float | None) -> bool:
        """Compute at least one piece more, as many as `budget_seconds` have room for, or all; True when it is done."""
        began = time.perf_counter()
        if budget_seconds is None:
            mx.eval(list(self._pieces))
            self._pieces.clear()
        while self._pieces:
            piece_began = time.perf_counter()
            mx.eval(self._pieces.popleft())
            now = time.perf_counter()
            if 2 * now - piece_began - began > (budget_seconds or 0.0):  # the next would take as long as this one
                break
        self.seconds += time.perf_counter() - began
        return not self._pieces


__all__ = ["Chunk", "Payloads"]
