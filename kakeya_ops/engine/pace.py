"""How decoding and prefill share the compute thread.

While anybody decodes, each round of decode steps is followed by about as much time of prefill as the round took: a
stream then runs at no less than half its speed and stands still for two rounds and one piece of a chunk at most, and a
prompt takes no more than twice its time. With nobody decoding, chunks run through.
"""

from __future__ import annotations

import time

import mlx.core as mx

from kakeya_ops.engine.decode import Decoder
from kakeya_ops.engine.prefill import PrefillQueue

PREFILL_PER_DECODE = 1.0
"""Seconds of prefill for each second of decoding, while there is both."""


class Pace:
    """The two steps of the compute thread's round."""

    def __init__(self, decoder: Decoder, prefills: PrefillQueue) -> None:
        self._decoder = decoder
        self._prefills = prefills
        self._budget_seconds: float | None = None

    def decode(self) -> bool:
        """One token for every sequence; False when there is none."""
        began = time.perf_counter()
        working = self._decoder.step()
        if working and len(self._prefills):
            # Otherwise the next chunk would queue behind the step that is under way, and its time be taken for its own.
            mx.synchronize()
        self._budget_seconds = PREFILL_PER_DECODE * (time.perf_counter() - began) if working else None
        return working

    def prefill(self) -> bool:
        """As much prefill as is due; False when there is nothing to do."""
        return self._prefills.step(self._budget_seconds)


__all__ = ["PREFILL_PER_DECODE", "Pace"]
