"""The one place that writes to the terminal: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from kakeya_ops.errors import EnvironmentFault, ExitCode, InventoryError, KakeyaError
from kakeya_ops.units import render_seconds


def visible(text: str) -> str:
    """`text` with control characters written as escapes, so that words from elsewhere cannot steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode("ascii") for c in text)


class _Messages(Console):
    """Standard error, without which a command goes on."""

    def on_broken_pipe(self) -> None:
        """Say no more: nobody reads it."""
        self.quiet = True


class Printer:
    """Prints data and messages.

    With `json`, stdout carries exactly the documents given to `show` and nothing else; where it would stay empty
    because of an error, the error is the document. Colour needs a terminal and `color`; the NO_COLOR convention is
    honoured. What cannot be written to stdout is an `EnvironmentFault`; messages that nobody can be given are dropped.
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
        self._has_shown = False
        self.out = Console(file=stdout, no_color=None if color else True, highlight=False, emoji=False)
        self.messages: Console = _Messages(
            file=stderr, stderr=True, no_color=None if color else True, highlight=False, emoji=False, soft_wrap=True
        )

    def show(self, document: Any, *renderables: RenderableType) -> None:
        """Print data: `document` as JSON in JSON mode, otherwise `renderables` one below the other."""
        if self.json:
            self.raw(json.dumps(document, indent=2, ensure_ascii=False))
            return
        with self._showing():
            for renderable in renderables:
                # A sentence is left to the terminal to wrap, and to a file as it is; a table has to know its width.
                self.out.print(renderable, markup=False, soft_wrap=isinstance(renderable, Text))

    def raw(self, text: str) -> None:
        """Print data that has its own form, such as YAML or a command to copy: never wrapped, never coloured."""
        with self._showing():
            self.out.print(Text(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """Tell what is going on."""
        with suppress(OSError):
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
        self._document(type(error).__name__, error.message, error.hint, error.exit_code, _faults(error))

    def bug(self, error: Exception) -> None:
        """Tell that Kakeya itself failed, in one line, and how to report it."""
        self._traceback(error)
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"Kakeya failed in a way it should not: {what.splitlines()[0]}"
        hint = "run the same command with -vv and report what it prints as a bug of Kakeya"
        if self.verbosity >= 2:
            hint = "report the traceback above as a bug of Kakeya"
        self._labelled("error", "bold red", message)
        self._labelled("hint", "cyan", hint)
        self._document(type(error).__name__, message, hint, ExitCode.BUG)

    def usage(self, message: str, hint: str) -> None:
        """Tell that the command line is wrong, and where it is said how it should be."""
        self._labelled("error", "bold red", message)
        self._labelled("hint", "cyan", hint)
        self._document("UsageError", message, hint, ExitCode.INPUT)

    def _document(self, kind: str, message: str, hint: str | None, code: ExitCode, more: Any = ()) -> None:
        """Print an error as the one document of JSON mode, unless there is one already."""
        if self.json and not self._has_shown:
            error = {"kind": kind, "message": message, "hint": hint, "exit_code": int(code)} | dict(more)
            with suppress(EnvironmentFault):
                self.show({"error": error})

    @contextmanager
    def _showing(self) -> Iterator[None]:
        self._has_shown = True
        try:
            yield
        except OSError as error:
            raise EnvironmentFault(f"standard output cannot be written: {error.strerror or error}") from error

    def _labelled(self, label: str, style: str, text: str) -> None:
        with suppress(OSError):
            self.messages.print(Text.assemble((f"{label}: ", style), visible(text)))

    def _traceback(self, error: Exception) -> None:
        if self.verbosity >= 2:
            self.note("".join(traceback.format_exception(error)).rstrip())


def _faults(error: KakeyaError) -> dict[str, Any]:
    """What an inventory's error has beside its sentence."""
    if not isinstance(error, InventoryError):
        return {}
    return {"file": error.file, "faults": [asdict(fault) for fault in error.faults]}


__all__ = ["Printer", "visible"]
