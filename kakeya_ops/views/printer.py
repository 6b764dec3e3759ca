"""The one place that writes to the terminal: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from kakeya_ops.errors import InventoryError, KakeyaError
from kakeya_ops.units import render_seconds


def visible(text: str) -> str:
    """`text` with control characters written as escapes, so that words from elsewhere cannot steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


class Printer:
    """Prints data and messages.

    With `json`, stdout carries exactly the documents given to `show` and nothing else. Colour needs a terminal and
    `color`; the NO_COLOR convention is honoured.
    """

    def __init__(
        self,
        *,
        json: bool = False,
        color: bool = True,
        verbosity: int = 0,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.json = json
        self.verbosity = verbosity
        self.out = Console(file=stdout, no_color=None if color else True, highlight=False, emoji=False)
        self.messages = Console(
            file=stderr, stderr=True, no_color=None if color else True, highlight=False, emoji=False, soft_wrap=True
        )

    def show(self, document: Any, *renderables: RenderableType) -> None:
        """Print data: `document` as JSON in JSON mode, otherwise `renderables` one below the other."""
        if self.json:
            self.raw(json.dumps(document, indent=2, ensure_ascii=False))
            return
        for renderable in renderables:
            # A sentence is left to the terminal to wrap, and to a file as it is; a table has to know its width.
            self.out.print(renderable, markup=False, soft_wrap=isinstance(renderable, Text))

    def raw(self, text: str) -> None:
        """Print data that has its own form, such as YAML or a command to copy: never wrapped, never coloured."""
        self.out.print(Text(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """Tell what is going on."""
        self.messages.print(Text(visible(text)))

    def detail(self, text: str) -> None:
        """Tell it only with ``-v``."""
        if self.verbosity:
            self.note(text)

    @contextmanager
    def progress(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show that something is under way, on a terminal as a spinner; call what it yields to change the text."""
        if not self.messages.is_terminal:
            yield self.detail
            return
        with self.messages.status(Text(visible(text))) as status:
            yield lambda now: status.update(Text(visible(now)))

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Show one step under way, and once it succeeded how long it took."""
        began = time.monotonic()
        with self.progress(text):
            yield
        self.note(f"  done  {text} ({render_seconds(time.monotonic() - began)})")

    def warn(self, text: str) -> None:
        """Tell what may surprise."""
        self._labelled("warning", "yellow", text)

    def error(self, error: KakeyaError) -> None:
        """Tell what is wrong, where, and what to do about it; the traceback only with ``-vv``."""
        self._traceback(error)
        self._labelled("error", "bold red", error.message)
        if isinstance(error, InventoryError):
            for fault in error.faults:
                place = error.file if fault.line is None else f"{error.file}:{fault.line}"
                self.note(f"  {place}: {fault.path}: {fault.message}" if fault.path else f"  {place}: {fault.message}")
        if error.hint:
            self._labelled("hint", "cyan", error.hint)

    def bug(self, error: Exception) -> None:
        """Tell that Kakeya itself failed, in one line, and how to report it."""
        self._traceback(error)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._labelled("error", "bold red", f"Kakeya failed in a way it should not: {what.splitlines()[0]}")
        if self.verbosity < 2:
            self._labelled("hint", "cyan", "run the same command with -vv and report what it prints as a bug of Kakeya")
        else:
            self._labelled("hint", "cyan", "report the traceback above as a bug of Kakeya")

    def _labelled(self, label: str, style: str, text: str) -> None:
        self.messages.print(Text.assemble((f"{label}: ", style), visible(text)))

    def _traceback(self, error: Exception) -> None:
        if self.verbosity >= 2:
            self.note("".join(traceback.format_exception(error)).rstrip())


__all__ = ["Printer", "visible"]
