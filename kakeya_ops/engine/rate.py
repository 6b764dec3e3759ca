"""A running estimate of prefill speed."""

from __future__ import annotations

import statistics
import threading
from collections import deque

_KEPT = 33


class PrefillRate:
    """Tokens per second as the median of the last chunks, so that one disturbed chunk moves nothing. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds_per_token: deque[float] = deque(maxlen=_KEPT)

    def observe(self, tokens: int, seconds: float) -> None:
        """Record that `tokens` took `seconds`."""
        with self._lock:
            self._seconds_per_token.append(seconds / tokens)

    @property
    def tokens_per_second(self) -> float | None:
        """The estimate, or None before anything was measured."""
        with self._lock:
            return 1 / statistics.median(self._seconds_per_token) if self._seconds_per_token else None


__all__ = ["PrefillRate"]
