"""A status that goes on: on a terminal as a screen of its own, elsewhere as a block of text now and then."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from kakeya_ops.status import FleetStatus
from kakeya_ops.views.printer import Printer
from kakeya_ops.views.status import status_view

PERIOD_SECONDS = 1.0
PLAIN_PERIOD_SECONDS = 10.0
"""Blocks of text are read afterwards, in a log."""
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Take = Callable[[], FleetStatus]


def watch(printer: Printer, take: Take) -> signal.Signals:
    """Show what `take` gives, over and over, until a signal ends it; that signal.

    Within it Ctrl-C, SIGTERM and SIGHUP end it, and Ctrl-Z leaves the screen first. For the main thread.
    """
    console = printer.out
    with _Signals() as signals:
        if not console.is_terminal or console.is_dumb_terminal:
            _watch_plainly(console, take, signals)
        while not signals.ended:
            signals.suspended = False
            with _quiet_keys(), Live(console=console, screen=True, auto_refresh=False, transient=True) as live:
                while not signals.ended and not signals.suspended:
                    live.update(_Cropped(_view(console, take())), refresh=True)
                    signals.wait(PERIOD_SECONDS)
            if signals.suspended:
                os.kill(os.getpid(), signal.SIGSTOP)
    return signals.ended or signal.SIGINT


def _watch_plainly(console: Console, take: Take, signals: _Signals) -> None:
    while not signals.ended:
        console.print(_view(console, take()), Text(""))
        console.file.flush()
        signals.wait(PLAIN_PERIOD_SECONDS)


def _view(console: Console, status: FleetStatus) -> RenderableType:
    return status_view(status, console.width, ascii_only=console.options.ascii_only)


class _Cropped:
    """`view` as far as it fits into the screen, which says so where it does not."""

    def __init__(self, view: RenderableType) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._view, options.update(height=None), pad=False)
        height = options.height or options.max_height
        shown = lines if len(lines) <= height else lines[: height - 1]
        for line in shown:
            yield from line
            yield Segment.line()
        if len(lines) > len(shown):
            yield Text(f"{len(lines) - len(shown)} more lines: enlarge the window", style="yellow", overflow="ellipsis")


class _Signals:
    """Turns signals into wishes. Those that were ignored before stay ignored."""

    def __init__(self) -> None:
        self.ended: signal.Signals | None = None
        self.suspended = False
        self._news = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = dict.fromkeys(_ENDS, self._end)
        handlers |= {signal.SIGTSTP: self._suspend, signal.SIGWINCH: self._resize}
        for number, handler in handlers.items():
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or for the next signal."""
        self._news.wait(seconds)
        self._news.clear()

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.ended = signal.Signals(number)
        self._news.set()

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        self.suspended = True
        self._news.set()

    def _resize(self, _number: int, _frame: FrameType | None) -> None:
        self._news.set()


@contextlib.contextmanager
def _quiet_keys() -> Iterator[None]:
    """Keys that are pressed within it are neither shown on the screen nor left for whoever reads next."""
    if not sys.stdin.isatty():
        yield
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    quiet = termios.tcgetattr(keyboard)
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    try:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, quiet)
        yield
    finally:
        # A terminal that was closed has nothing to be restored.
        with contextlib.suppress(termios.error):
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, before)


__all__ = ["PERIOD_SECONDS", "PLAIN_PERIOD_SECONDS", "watch"]
