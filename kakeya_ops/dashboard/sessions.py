"""Who is logged in, and who has tried too often: in memory, bounded, gone with the process."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 256
MOST_TRIES = 5
"""Wrong keys from one address within `TRY_SECONDS`."""
TRY_SECONDS = 60.0
_MOST_ADDRESSES = 1024

Clock = Callable[[], float]


class Sessions:
    """Random tokens with the tenant of each, good for `SESSION_SECONDS`. Thread-safe.

    When there are too many, the oldest goes. Only digests of the tokens are kept, so that nothing here is of use to
    whoever reads this memory.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()

    def open(self, tenant: str) -> str:
        """A new session's token."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[_digest(token)] = (tenant, self._clock() + SESSION_SECONDS)
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return token

    def tenant_of(self, token: str) -> str | None:
        """The tenant of the session; None when there is no such session, or not any more."""
        with self._lock:
            tenant, until = self._sessions.get(_digest(token), ("", 0.0))
        return tenant if self._clock() < until else None

    def close(self, token: str) -> None:
        """End the session, if there is one."""
        with self._lock:
            self._sessions.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Tries:
    """Wrong keys by the address that sent them; the address longest silent is forgotten first. Thread-safe."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_seconds(self, address: str) -> float:
        """How long `address` has to wait until it may try again; 0 when it may now."""
        with self._lock:
            wrong = self._wrong.get(address)
            if wrong is None or len(wrong) < MOST_TRIES:
                return 0.0
            return max(wrong[0] + TRY_SECONDS - self._clock(), 0.0)

    def wrong(self, address: str) -> None:
        """Put down that `address` sent a wrong key."""
        with self._lock:
            self._wrong.setdefault(address, deque(maxlen=MOST_TRIES)).append(self._clock())
            self._wrong.move_to_end(address)
            while len(self._wrong) > _MOST_ADDRESSES:
                self._wrong.popitem(last=False)

    def right(self, address: str) -> None:
        """Forget what `address` did wrong."""
        with self._lock:
            self._wrong.pop(address, None)


__all__ = ["MOST_SESSIONS", "MOST_TRIES", "SESSION_SECONDS", "TRY_SECONDS", "Sessions", "Tries"]
