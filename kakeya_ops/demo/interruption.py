"""Ctrl-C and its like, so that whatever was begun is either not there yet or cleaned up wholly."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Within it the first SIGINT, SIGTERM or SIGHUP raises `KeyboardInterrupt`, and later ones are ignored.

    So nothing cuts short the clean-up that the first one begins. Within `held` that first one waits, so that nothing
    is half made or half cleaned up either. A signal that was ignored before stays ignored. For the main thread.
    """

    def __init__(self) -> None:
        self._previous: dict[signal.Signals, Any] = {}
        self._holders = 0
        self._waiting = False
        self._came = False

    def __enter__(self) -> Interruption:
        handlers = {one: signal.getsignal(one) for one in SIGNALS}
        self._previous = {one: handler for one, handler in handlers.items() if handler != signal.SIG_IGN}
        for one in self._previous:
            signal.signal(one, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        for one, handler in self._previous.items():
            signal.signal(one, handler)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Within it an interruption waits; it is raised at the end."""
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
        if self._waiting and not self._holders:
            self._waiting = False
            raise KeyboardInterrupt

    def insist(self) -> None:
        """Raise `KeyboardInterrupt` if an interruption has come: Python drops one that it raises in a callback, such as
        those that end an import. Not for the clean-up.
        """
        if self._came:
            raise KeyboardInterrupt

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        for one in self._previous:
            signal.signal(one, signal.SIG_IGN)
        self._came = True
        if not self._holders:
            raise KeyboardInterrupt
        self._waiting = True


__all__ = ["SIGNALS", "Interruption"]
