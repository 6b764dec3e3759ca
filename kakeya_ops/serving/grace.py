"""Work whose client has left goes on for a while, since many clients send the same request again."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Later(Protocol):
    """Has something done after some time."""

    def __call__(self, seconds: float, act: Callable[[], None]) -> None:
        """Have `act` called on another thread after `seconds`."""


def on_timer(seconds: float, act: Callable[[], None]) -> None:
    """`Later`, on a thread that does not keep the process."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


@dataclass(frozen=True)
class Grace:
    """How long work goes on that nobody waits for; 0: not at all."""

    seconds: float = 0.0
    later: Later = on_timer


NO_GRACE = Grace()

__all__ = ["NO_GRACE", "Grace", "Later", "on_timer"]
