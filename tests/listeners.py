"""What an engine tells a request or a job, collected and waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kakeya_ops.engine.contract import DecodeEvent, FailedEvent, PrefillEvent, TokenEvent
from kakeya_ops.kv.pool import StoredPart

DEADLINE_SECONDS = 30.0


class Listener:
    """Collects the events of one decode request."""

    def __init__(self) -> None:
        self.events: list[DecodeEvent] = []
        self._changed = threading.Condition()

    def __call__(self, event: DecodeEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until an event makes `condition` true."""
        with self._changed:
            assert self._changed.wait_for(condition, DEADLINE_SECONDS), f"waited in vain after {self.events[-3:]}"

    def wait_for_tokens(self, count: int) -> list[int]:
        """The tokens so far, at least `count`."""
        self.wait_for(lambda: len(self.tokens) >= count or self.ended)
        return self.tokens

    def wait_for_end(self) -> list[int]:
        """All tokens of a request that ends well."""
        self.wait_for(lambda: self.ended)
        assert self.error is None, self.error
        return self.tokens

    def wait_for_error(self) -> Exception:
        """The error that the request ends with."""
        self.wait_for(lambda: self.ended)
        assert self.error is not None
        return self.error

    @property
    def token_events(self) -> list[TokenEvent]:
        return [event for event in self.events if isinstance(event, TokenEvent)]

    @property
    def tokens(self) -> list[int]:
        return [event.token for event in self.token_events]

    @property
    def progress(self) -> list[int]:
        return [event.done for event in self.events if isinstance(event, PrefillEvent)]

    @property
    def error(self) -> Exception | None:
        return next((event.error for event in self.events if isinstance(event, FailedEvent)), None)

    @property
    def ends(self) -> int:
        """How many events say that nothing follows."""
        return sum(isinstance(event, FailedEvent) or bool(getattr(event, "finish", None)) for event in self.events)

    @property
    def ended(self) -> bool:
        return self.ends > 0


class Blocks:
    """Collects the exported blocks of one prefill job, and how it ended."""

    def __init__(self) -> None:
        self.parts: dict[int, tuple[StoredPart | None, ...]] = {}
        self.ends: list[Exception | None] = []
        self._done = threading.Event()

    def keep(self, block: int, parts: tuple[StoredPart | None, ...]) -> None:
        self.parts[block] = parts

    def done(self, error: Exception | None) -> None:
        self.ends.append(error)
        self._done.set()

    def wait(self) -> Exception | None:
        """What the job ended with."""
        assert self._done.wait(DEADLINE_SECONDS)
        return self.ends[0]


__all__ = ["DEADLINE_SECONDS", "Blocks", "Listener"]
