"""Prompts that the head is prefilling now: an equal one waits for it, instead of computing the same beside it.

What a client has left goes on for a grace period, at most two at a time. So a client that gives up and sends its
request again, however often, costs one prefill, even of a model whose states can be resumed after only every thousand
tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kakeya_ops.engine.contract import DecodeEvent, FailedEvent, PrefillEvent
from kakeya_ops.serving.estimates import Clock
from kakeya_ops.serving.grace import NO_GRACE, Grace

MOST_LEFT = 2
_LOOK_SECONDS = 0.05
"""Between two looks whether whoever waits has left."""

Name = tuple[bytes, str]
"""The hash of a prompt's last block that may be resumed after, and the tenant."""
OnLost = Callable[[int], None]
"""Told how many tokens were computed here for a request that never came to its first token."""


class Lead:
    """One prefill under way. Thread-safe."""

    def __init__(self, book: Underway, name: Name) -> None:
        self.name = name
        self.wanted_at = 0.0
        self.resumed_tokens = 0
        self._book = book
        self._done = threading.Event()
        self._give_up: Callable[[], None] | None = None
        self._progress: PrefillEvent | None = None

    def hear(self, event: DecodeEvent) -> None:
        """Take note of what the engine says; when the prefill is over, however, those who wait look into the pool."""
        if isinstance(event, PrefillEvent):
            self._progress = event
            if self._give_up and event.node is None and event.done == event.total:
                self._end(lost=True)
        elif not self._done.is_set():
            self._end(lost=isinstance(event, FailedEvent))

    def linger(self, give_up: Callable[[], None]) -> bool:
        """Go on without a client for the grace period, at most to the prefill's end, then `give_up`; False if not."""
        self._give_up = give_up
        if self._book.linger(self):
            return True
        self._give_up = None
        return False

    def wait(self, stopped: Callable[[], bool], tell: Callable[[PrefillEvent], None]) -> None:
        """Wait until it ends, or until `stopped`; `tell` is given the progress of one that has lost its own client."""
        told: PrefillEvent | None = None
        while not self._done.wait(_LOOK_SECONDS) and not stopped():
            self._book.want(self)
            if self._give_up and self._progress and self._progress is not told:
                told = self._progress
                tell(told)

    def expire(self) -> None:
        """Give it up, if it is not over."""
        if self._give_up and not self._done.is_set():
            self._give_up()

    def _end(self, *, lost: bool) -> None:
        progress, give_up = self._progress, self._give_up
        self._book.forget(self)
        self._done.set()
        if lost and progress and progress.node is None:
            self._book.on_lost(max(progress.done - self.resumed_tokens, 0))
        if give_up:
            give_up()


class Underway:
    """All of them. Thread-safe; `clock` gives monotonic seconds."""

    def __init__(self, on_lost: OnLost, grace: Grace = NO_GRACE, clock: Clock = time.monotonic) -> None:
        self.on_lost = on_lost
        self._grace = grace
        self._clock = clock
        self._lock = threading.Lock()
        self._leads: dict[Name, Lead] = {}
        self._left: set[Lead] = set()

    def enter(self, name: Name) -> tuple[Lead, bool]:
        """The prefill under that name, and whether it is the caller's to do."""
        with self._lock:
            found = self._leads.get(name)
            if found is not None:
                return found, False
            lead = self._leads[name] = Lead(self, name)
            return lead, True

    def forget(self, lead: Lead) -> None:
        """Let nobody wait for `lead` any more."""
        with self._lock:
            self._left.discard(lead)
            if self._leads.get(lead.name) is lead:
                del self._leads[lead.name]

    def want(self, lead: Lead) -> None:
        """Somebody waits for `lead` now."""
        lead.wanted_at = self._clock()

    def linger(self, lead: Lead) -> bool:
        """See `Lead.linger`."""
        with self._lock:
            known = self._leads.get(lead.name) is lead
            if not known or not self._grace.seconds or len(self._left) >= MOST_LEFT:
                return False
            self._left.add(lead)
        self.want(lead)
        self._grace.later(self._grace.seconds, lambda: self._look(lead))
        return True

    def _look(self, lead: Lead) -> None:
        """Its grace counts anew from when somebody waited for it last."""
        left_seconds = lead.wanted_at + self._grace.seconds - self._clock()
        if left_seconds > 0 and lead in self._left:
            self._grace.later(left_seconds, lambda: self._look(lead))
        else:
            lead.expire()


__all__ = ["MOST_LEFT", "Lead", "Name", "OnLost", "Underway"]
