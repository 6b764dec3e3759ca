"""The nonces that were used within the window, so that nothing signed is accepted twice."""

from __future__ import annotations

import heapq
import threading

from kakeya_ops.errors import SignatureRejected

WINDOW_SECONDS = 60.0
"""How far the sender's clock may be from the receiver's, either way."""


class NonceBook:
    """Remembers each nonce for as long as its message would be accepted, from any thread.

    At most `limit` are remembered. When all of them still count, further messages are refused: forgetting one would
    let its message be replayed. A process that has just started, at `opened_at`, has forgotten what it was sent before,
    and therefore takes all messages from before as stale.
    """

    def __init__(
        self, window_seconds: float = WINDOW_SECONDS, limit: int = 65536, *, opened_at: float = float("-inf")
    ) -> None:
        self._window_seconds = window_seconds
        self._limit = limit
        self._lock = threading.Lock()
        self._used: set[str] = set()
        self._expiries: list[tuple[float, str]] = []
        self._forgotten_until = opened_at + window_seconds

    def __len__(self) -> int:
        return len(self._used)

    def admit(self, nonce: str, time_seconds: float, now: float) -> None:
        """Use `nonce` of a message of Unix time `time_seconds`, at `now`.

        Raises `SignatureRejected`: stale, replayed, or too many nonces.
        """
        expiry = time_seconds + self._window_seconds
        with self._lock:
            self._forget(now)
            if abs(now - time_seconds) > self._window_seconds:
                raise self._out_of_step(time_seconds - now)
            # Also when the clock is set back: what is forgotten must not become fresh again.
            if expiry <= self._forgotten_until:
                raise SignatureRejected(
                    "message rejected: stale, from before the receiver started or set its clock back"
                )
            if nonce in self._used:
                raise SignatureRejected("message rejected: replayed")
            if len(self._used) >= self._limit:
                raise SignatureRejected("message rejected: too many nonces")
            self._used.add(nonce)
            heapq.heappush(self._expiries, (expiry, nonce))

    def _out_of_step(self, ahead_seconds: float) -> SignatureRejected:
        apart = f"{abs(ahead_seconds):.1f} seconds {'ahead of' if ahead_seconds > 0 else 'behind'}"
        return SignatureRejected(
            f"message rejected: stale, the sender's clock is {apart} the receiver's",
            hint="turn on time synchronisation on both machines: "
            f"their clocks may differ by {self._window_seconds:g} seconds at most",
        )

    def _forget(self, now: float) -> None:
        while self._expiries and self._expiries[0][0] < now:
            self._forgotten_until, nonce = heapq.heappop(self._expiries)
            self._used.discard(nonce)


__all__ = ["WINDOW_SECONDS", "NonceBook"]
