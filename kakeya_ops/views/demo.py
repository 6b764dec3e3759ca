"""The demo on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from rich.padding import Padding
from rich.text import Text

from kakeya_ops.demo.run import DemoOutcome
from kakeya_ops.views.printer import Printer, visible
from kakeya_ops.views.tables import checks_table, fleet_table, receipt_timeline, verdict_line


class DemoScreen:
    """A `kakeya_ops.demo.run.DemoView` on a printer: steps go to stderr, the outcome to stdout."""

    def __init__(self, printer: Printer, command: str = "kakeya") -> None:
        """`command` is what a person types to run this program again."""
        self._printer = printer
        self._command = command

    def step(self, text: str) -> AbstractContextManager[None]:
        """See `DemoView.step`."""
        return self._printer.step(text)

    def progress(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """See `DemoView.progress`."""
        return self._printer.progress(text)

    def note(self, text: str) -> None:
        """See `DemoView.note`."""
        self._printer.note(text)

    def outcome(self, outcome: DemoOutcome) -> None:
        """Show the fleet, the answer and how its prefix came to be, the probe's checks, and what to try next."""
        network = outcome.network
        self._printer.show(
            outcome.to_json(),
            fleet_table(network["head"], network["nodes"]),
            _heading("The question's answer" + (", random words from random weights" if outcome.tiny else "")),
            Padding(Text(visible(outcome.answer)), (0, 2)),
            _heading("How its prefix came to be"),
            receipt_timeline(outcome.receipt),
            _heading("kakeya verify remote-prefill"),
            checks_table(outcome.report),
            verdict_line(outcome.report),
        )
        if not self._printer.json:
            self._printer.raw("\n".join(self._next_steps(outcome)))

    def _next_steps(self, outcome: DemoOutcome) -> Iterator[str]:
        """What to try; of a fleet that is gone, only how to keep the next one."""
        if not outcome.kept:
            yield f"\nTo ask such a fleet yourself, and to watch it in a browser:\n  {self._command} demo --keep"
            return
        yield f"\nWatch it in a browser:\n  {outcome.dashboard}"
        yield f"\nAsk it something new in another terminal, and see who computed what:\n  {outcome.curl}"
        yield "and with the id in its answer for ID:"
        for arguments in ("explain ID", "status --watch", "verify remote-prefill", "drill"):
            yield f"  {self._command} --inventory {outcome.plan.inventory} {arguments}"


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


__all__ = ["DemoScreen"]
