"""How long a remote part is waited for: until its prediction is overrun *and* the head would be done sooner by itself.

Nothing is hedged: while it waits the head computes nothing that it may throw away, since its one compute thread decodes
for others. Giving up is cheap instead: the blocks that came are kept and the local prefill begins after them
(``docs/adr/0007`` has the reasons). A worker that is worth waiting for by its progress is waited for, however long.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kakeya_ops.errors import PeerError
from kakeya_ops.peer.connection import StopFlag
from kakeya_ops.serving.estimates import Clock
from kakeya_ops.serving.scheduler import CLEARLY

OVERRUN_FACTOR = 1.5
OVERRUN_SLACK_SECONDS = 2.0
"""A part is late when it takes longer than its prediction times the factor and this; only then is it looked at."""
STALL_SECONDS = 5.0
"""Where the operator prefers a slower worker, only one of which nothing was heard for so long is given up."""
_LEAST_LOOK_SECONDS = 0.25
_MOST_LOOK_SECONDS = 5.0


class Overrun(PeerError):
    """A peer takes so much longer than predicted that the head is done sooner without it."""

    reason = "overrun"

    def __init__(self, peer: str) -> None:
        super().__init__(peer, "takes so much longer than predicted that the head goes on by itself")


@dataclass(frozen=True)
class Terms:
    """What was promised: `blocks` more blocks after `predicted_seconds`. `local_seconds` tells what the head would need
    from now on after so many of them. With `even_slower` the peer is preferred to a head that would be quicker.
    """

    predicted_seconds: float
    blocks: int
    local_seconds: Callable[[int], float]
    even_slower: bool = False

    @property
    def late_seconds(self) -> float:
        """After this it is late."""
        return self.predicted_seconds * OVERRUN_FACTOR + OVERRUN_SLACK_SECONDS


@dataclass(frozen=True)
class Seen:
    """What came so far: `blocks` in `seconds`, of which the last `silent_seconds` brought none.

    `queue_seconds` is how long the peer says that the work has still to wait.
    """

    seconds: float
    blocks: int = 0
    silent_seconds: float = 0.0
    queue_seconds: float = 0.0

    def remaining_seconds(self, terms: Terms) -> float:
        """How long the rest will take, at the pace so far. What has been silent may be silent for as long again."""
        if self.blocks:
            pace = (self.seconds - self.silent_seconds) / self.blocks
            return max(pace * (terms.blocks - self.blocks), self.silent_seconds)
        return max(self.queue_seconds + terms.predicted_seconds, 0.0 if self.queue_seconds else self.seconds)


def judge(seen: Seen, terms: Terms) -> float | None:
    """In how many seconds to look again; None when it is time to give up. Pure."""
    if seen.seconds < terms.late_seconds:
        return terms.late_seconds - seen.seconds
    remaining_seconds = seen.remaining_seconds(terms)
    if terms.even_slower:
        heard = seen.queue_seconds > 0 or seen.silent_seconds < STALL_SECONDS
        remaining_seconds = 0.0 if heard else seen.silent_seconds
    if terms.local_seconds(seen.blocks) * CLEARLY < remaining_seconds:
        return None
    return min(max(remaining_seconds / 2, _LEAST_LOOK_SECONDS), _MOST_LOOK_SECONDS)


class Patience:
    """One errand's. `stop` ends its calls, when nobody waits any more or when it is given up. Thread-safe."""

    def __init__(self, terms: Terms | None, parent: StopFlag, clock: Clock = time.monotonic) -> None:
        """Without `terms` it never ends by itself."""
        self.stop = StopFlag()
        self._terms = terms
        self._clock = clock
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._over = False
        self._gave_up = False
        self._began = self._heard = clock()
        self._blocks = 0
        self._queue_seconds = 0.0
        parent.relay(self.stop)

    @property
    def gave_up(self) -> bool:
        """Whether it was ended for being late."""
        return self._gave_up

    def arrived(self) -> None:
        """Take note of one more block."""
        with self._lock:
            self._blocks += 1
            self._heard, self._queue_seconds = self._clock(), 0.0

    def queued(self, seconds: float) -> None:
        """Take note that the peer says how long the work has still to wait."""
        with self._lock:
            self._queue_seconds = seconds

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Look from time to time within it."""
        try:
            self.look()
            yield
        finally:
            with self._lock:
                self._over = True
                if self._timer:
                    self._timer.cancel()

    def look(self) -> None:
        """Look once; give up, or look again when there may be something new to see."""
        if self._terms is None:
            return
        again = judge(self._seen(), self._terms)
        with self._lock:
            if self._over or self.stop.stopped:
                return
            if again is not None:
                self._timer = threading.Timer(again, self.look)
                self._timer.daemon = True
                self._timer.start()
                return
            self._gave_up = True
        self.stop.stop()

    def _seen(self) -> Seen:
        with self._lock:
            now = self._clock()
            return Seen(now - self._began, self._blocks, now - self._heard, self._queue_seconds)


__all__ = ["OVERRUN_FACTOR", "OVERRUN_SLACK_SECONDS", "STALL_SECONDS", "Overrun", "Patience", "Seen", "Terms", "judge"]
