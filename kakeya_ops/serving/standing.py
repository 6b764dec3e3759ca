"""How far each peer, or each way to one, is trusted: a failure keeps it out for a while, longer each time, a success
resets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
DOUBT_HALF_LIFE_SECONDS = 30.0
"""After a pause has ended, the doubt halves in this time, so that nobody is left out for ever."""


@dataclass
class _Record:
    pause_seconds: float = FIRST_PAUSE_SECONDS / 2
    until: float = float("-inf")
    failures: int = 0


class Standing:
    """Thread-safe. `clock` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._records: dict[str, _Record] = {}

    def usable(self, node: str) -> bool:
        """Whether `node` may be asked now."""
        with self._lock:
            record = self._records.get(node)
            return record is None or self.clock() >= record.until

    def failed(self, node: str) -> None:
        """Keep `node` out: 1 s, then twice as long each time, up to a minute.

        Several requests that one fault breaks are one failure: what fails during a pause does not lengthen it.
        """
        with self._lock:
            record, now = self._records.setdefault(node, _Record()), self.clock()
            if now >= record.until:
                record.pause_seconds = min(record.pause_seconds * 2, LONGEST_PAUSE_SECONDS)
                record.until = now + record.pause_seconds
                record.failures += 1

    def doubt(self, node: str) -> float:
        """The probability that `node` fails again: a half after one failure, more after each, less as time passes."""
        with self._lock:
            record = self._records.get(node)
            if record is None:
                return 0.0
            passed_seconds = max(self.clock() - record.until, 0.0)
            return float((1 - 0.5**record.failures) * 0.5 ** (passed_seconds / DOUBT_HALF_LIFE_SECONDS))

    def succeeded(self, node: str) -> None:
        """Forget the failures of `node`."""
        with self._lock:
            self._records.pop(node, None)


__all__ = ["DOUBT_HALF_LIFE_SECONDS", "FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS", "Standing"]
