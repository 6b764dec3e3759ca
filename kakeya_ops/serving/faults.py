"""The faults that a drill has armed in this process: at most one, for a short time, and only where that is allowed.

A drill that dies leaves nothing behind: a fault is gone after so many uses or seconds, and with the process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from kakeya_ops.errors import RefusedError
from kakeya_ops.wire.drills import FATAL, Fault, On

EXIT_CODE = 75
"""Of a process that a drill ended, so that whoever supervises it can tell."""

_logger = logging.getLogger(__name__)


class Faults:
    """Thread-safe. `allowed` is the inventory's ``fleet.drill``; `clock` gives monotonic seconds.

    `revived` is whether something starts this process again when it ends.
    """

    def __init__(self, *, allowed: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.allowed = allowed
        self.revived = False
        self._clock = clock
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._until = 0.0
        self._met = 0

    def check(self) -> None:
        """Raise `RefusedError` unless drills are allowed here."""
        if not self.allowed:
            raise RefusedError(
                "this node takes no part in drills",
                hint="set fleet.drill: true in the inventory and deploy it; false again afterwards",
            )

    def arm(self, fault: Fault) -> None:
        """Let `fault`, in place of any other, happen from now on.

        Raises `RefusedError` where drills are not allowed, and for a fault that ends a process which nothing revives.
        """
        self.check()
        if fault.act in FATAL and not self.revived:
            raise RefusedError(
                "nothing would start this process again",
                hint="run it as deploy installs it, or with --revived under something that starts it again",
            )
        with self._lock:
            self._fault, self._until, self._met = fault, self._clock() + fault.lifetime_seconds, 0
        _logger.warning("a drill has armed: %s on %s", fault.act, fault.on)

    def disarm(self) -> int:
        """Let nothing happen any more; how many requests have met the fault since it was armed."""
        with self._lock:
            self._fault = None
            met, self._met = self._met, 0
            return met

    @property
    def armed(self) -> Fault | None:
        """What would happen to a request now."""
        fault = self._fault
        if fault is None:
            return None
        with self._lock:
            if self._clock() >= self._until or self._met >= fault.uses:
                self._fault = None
            return self._fault

    def take(self, on: On, nonce: str | None) -> Fault | None:
        """The fault that a request of that kind, which carries `nonce`, meets; it counts as one use."""
        fault = self.armed
        if fault is None or fault.on != on or fault.nonce not in (None, nonce):
            return None
        with self._lock:
            self._met += 1
        _logger.warning("a request meets the drill's fault: %s on %s", fault.act, on)
        return fault


def end_process() -> NoReturn:
    """End this process as a power cut would: nothing is finished, told or closed."""
    os._exit(EXIT_CODE)


__all__ = ["EXIT_CODE", "Faults", "end_process"]
