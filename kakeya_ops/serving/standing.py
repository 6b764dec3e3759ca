"""How far each peer is trusted to be up: a failure keeps it out for a while, longer each time, a success resets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0


@dataclass
class _Record:
    pause_seconds: float = FIRST_PAUSE_SECONDS / 2
    until: float = float("-inf")


class Standing:
    """Thread-safe. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}

    def usable(self, node: str) -> bool:
        """Whether `node` may be asked now."""
        with self._lock:
            record = self._records.get(node)
            return record is None or self._clock() >= record.until

    def failed(self, node: str) -> None:
        """Keep `node` out: 1 s, then twice as long each time, up to a minute.

        Several requests that one fault breaks are one failure: what fails during a pause does not lengthen it.
        """
        with self._lock:
            record, now = self._records.setdefault(node, _Record()), self._clock()
            if now >= record.until:
                record.pause_seconds = min(record.pause_seconds * 2, LONGEST_PAUSE_SECONDS)
                record.until = now + record.pause_seconds

    def succeeded(self, node: str) -> None:
        """Forget the failures of `node`."""
        with self._lock:
            self._records.pop(node, None)


__all__ = ["FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS", "Standing"]
