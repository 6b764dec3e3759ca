"""Work that is ordered and not done: what a head knows of its workers' queues before their cards tell it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from kakeya_ops.serving.estimates import Clock


class Engagements:
    """What this head has ordered of workers and still waits for, which their cards may not tell yet. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[str, list[float]] = {}

    @contextlib.contextmanager
    def engaged(self, node: str, seconds: float) -> Iterator[None]:
        """`node` is at work for this head within it, by its prediction for `seconds`."""
        end = self._clock() + seconds
        with self._lock:
            self._ends.setdefault(node, []).append(end)
        try:
            yield
        finally:
            with self._lock:
                self._ends[node].remove(end)

    def queue_seconds(self, node: str) -> float:
        """How long `node` has still to work for this head: as long as the last of its errands is predicted to take."""
        with self._lock:
            return max(max(self._ends.get(node, ()), default=0.0) - self._clock(), 0.0)


__all__ = ["Engagements"]
