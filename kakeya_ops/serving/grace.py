"""Work whose client has left goes on for a while, since many clients send the same request again."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

_logger = logging.getLogger(__name__)

Act = Callable[[], None]


class Later(Protocol):
    """Has something done after some time."""

    def __call__(self, seconds: float, act: Act) -> None:
        """Have `act` called on another thread after `seconds`."""


class Alarms:
    """`Later`, all on one thread, which there is while anything waits and which does not keep the process.

    What is done must not take long: the others wait for it. Thread-safe.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Act]] = []
        self._order = itertools.count()  # for two of one moment: acts have no order of their own
        self._runs = False

    def __call__(self, seconds: float, act: Act) -> None:
        """See `Later`."""
        with self._changed:
            heapq.heappush(self._waiting, (time.monotonic() + seconds, next(self._order), act))
            if self._runs:
                self._changed.notify()
            else:
                threading.Thread(target=self._run, name="grace", daemon=True).start()
                self._runs = True

    def _run(self) -> None:
        while (act := self._next()) is not None:
            try:
                act()
            except Exception:
                _logger.exception("work that nobody waits for could not be ended")

    def _next(self) -> Act | None:
        """The next, when its time has come; None when nothing waits, and the thread ends."""
        with self._changed:
            while self._waiting:
                left_seconds = self._waiting[0][0] - time.monotonic()
                if left_seconds <= 0:
                    return heapq.heappop(self._waiting)[-1]
                self._changed.wait(left_seconds)
            self._runs = False
            return None


@dataclass(frozen=True)
class Grace:
    """How long work goes on that nobody waits for; 0: not at all."""

    seconds: float = 0.0
    later: Later = field(default_factory=Alarms, compare=False)


NO_GRACE = Grace()

__all__ = ["NO_GRACE", "Act", "Alarms", "Grace", "Later"]
