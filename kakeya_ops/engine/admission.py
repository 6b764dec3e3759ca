"""The prompts that are or wait to be prefilled: at most so many, and each leaves once."""

from __future__ import annotations

import threading

from kakeya_ops.engine.prefill import PrefillTask
from kakeya_ops.engine.rate import PrefillRate
from kakeya_ops.errors import EngineBusy

_SHORTEST_RETRY_SECONDS = 1.0


class Admitted:
    """The book of admitted prompts, from the moment of their request on. Thread-safe.

    Those in the background are among them, but take no place and count for no estimate: they end for whoever comes.
    """

    def __init__(self, limit: int, rate: PrefillRate) -> None:
        self._limit = limit
        self._rate = rate
        self._lock = threading.Lock()
        self._tasks: dict[PrefillTask, None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def enter(self, task: PrefillTask) -> None:
        """Admit `task`, and give up what is in the background for it. Raises `EngineBusy` when there are too many."""
        with self._lock:
            if not task.background:
                for other in self._tasks:
                    other.cancelled |= other.background
            if sum(not other.background for other in self._tasks) < self._limit:
                self._tasks[task] = None
                return
        raise EngineBusy(max(self.queue_seconds(), _SHORTEST_RETRY_SECONDS))

    def leave(self, task: PrefillTask) -> bool:
        """Let `task` go; False when it has gone before."""
        with self._lock:
            return task in self._tasks and self._tasks.pop(task) is None

    def present(self) -> tuple[PrefillTask, ...]:
        """Who is there now, in order of arrival."""
        with self._lock:
            return tuple(self._tasks)

    def queue_seconds(self) -> float:
        """Estimated seconds until all that are still wanted are in the cache; 0 when nothing was measured yet."""
        curve = self._rate.curve
        waiting = [task for task in self.present() if not task.background and not task.cancelled]
        return sum(curve.seconds(min(task.position, task.end), task.end) for task in waiting) if curve else 0.0


__all__ = ["Admitted"]
