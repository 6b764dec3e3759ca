"""Hosts being changed, several at once: on a terminal a line for each with its step, elsewhere lines of text."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from kakeya_ops.units import render_bytes, render_seconds
from kakeya_ops.views.printer import Printer, visible

_SHARE_TOLD = 0.25
"""Without a terminal, a transfer is told at each of these shares."""


class DeployScreen:
    """A `kakeya_ops.deploy.apply.Progress`. Made by `deploy_screen`."""

    def __init__(self, printer: Printer, steps: Progress | None, transfers: Progress | None) -> None:
        self._printer = printer
        self._steps = steps
        self._transfers = transfers
        self._lock = threading.Lock()

    @contextmanager
    def step(self, host: str, title: str) -> Iterator[None]:
        """See `Progress.step`."""
        began = time.monotonic()
        task = self._steps.add_task(visible(f"{host}: {title}"), total=None) if self._steps else None
        try:
            yield
        finally:
            if self._steps and task is not None:
                self._steps.remove_task(task)
        self.note(host, f"{title} ({render_seconds(time.monotonic() - began)})")

    def note(self, host: str, text: str) -> None:
        """See `Progress.note`."""
        with self._lock:
            self._printer.note(f"  {host}: {text}" if host else text)

    @contextmanager
    def transfer(self, host: str, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
        """See `Progress.transfer`."""
        name = f"{host}: {what}"
        if self._transfers is None:
            yield _Milestones(self.note, host, what, total_bytes)
            return
        task = self._transfers.add_task(visible(name), total=total_bytes)
        try:
            yield lambda done_bytes: self._show(task, done_bytes)
        finally:
            self._transfers.remove_task(task)

    def _show(self, task: TaskID, done_bytes: int) -> None:
        if self._transfers is not None:
            self._transfers.update(task, completed=done_bytes)


class _Milestones:
    """Tells a transfer in a few lines."""

    def __init__(self, note: Callable[[str, str], None], host: str, what: str, total_bytes: int) -> None:
        self._note = note
        self._host = host
        self._what = what
        self._total_bytes = max(total_bytes, 1)
        self._told = 0

    def __call__(self, done_bytes: int) -> None:
        reached = int(done_bytes / self._total_bytes / _SHARE_TOLD)
        if reached > self._told:
            self._told = reached
            amount = f"{render_bytes(done_bytes)} of {render_bytes(self._total_bytes)}"
            self._note(self._host, f"{self._what}: {amount}")


@contextmanager
def deploy_screen(printer: Printer) -> Iterator[DeployScreen]:
    """The screen for as long as hosts are changed."""
    if not printer.messages.is_terminal:
        yield DeployScreen(printer, None, None)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    sending = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    steps = Progress(*columns, console=printer.messages, transient=True)
    transfers = Progress(columns[1], *sending, console=printer.messages, transient=True)
    with Live(Group(steps, transfers), console=printer.messages, transient=True, refresh_per_second=8):
        yield DeployScreen(printer, steps, transfers)


__all__ = ["DeployScreen", "deploy_screen"]
