"""Ctrl-C, a closed terminal or SIGTERM while hosts are changed: nothing is broken off, everything is put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def giving_up(cancelled: threading.Event, tell: Callable[[str], None]) -> Iterator[None]:
    """Within it, these signals set `cancelled` and raise nothing; in other threads than the main one it does nothing.

    The children that carry connections are in sessions of their own, so a terminal's Ctrl-C does not reach them.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def heed(number: int, frame: FrameType | None) -> None:
        cancelled.set()
        threading.Thread(target=tell, args=("giving up: what was begun is put back, please wait",)).start()

    before = {number: signal.signal(number, heed) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["giving_up"]
