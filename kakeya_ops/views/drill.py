"""A drill's report and its catalogue on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from kakeya_ops.drill.catalogue import Kind
from kakeya_ops.drill.report import DrillReport, Result
from kakeya_ops.views.printer import visible

_STYLES = {"safe": "green", "failed": "bold red", "unknown": "yellow", "skipped": "dim"}


def drill_table(report: DrillReport) -> Table:
    """One row for each kind; it names the worker where there were several."""
    several = ("worker",) if len(report.workers) > 1 else ()
    table = _table("verdict", "kind", *several, "ended as", "tokens", "lost", "back after", "what was said")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for result in report.results:
        table.add_row(
            Text(result.verdict, style=_STYLES[result.verdict]),
            result.kind,
            *(Text(visible(result.worker or "")) for _ in several),
            Text(visible(result.outcome or "no answer")),
            {True: "equal", False: "DIFFER", None: "none"}[result.tokens_equal],
            _seconds(result.lost_seconds),
            _seconds(result.recovered_seconds),
            Text(visible(result.detail)),
        )
    return table


def drill_verdict(report: DrillReport) -> Text:
    """The whole drill in one sentence."""
    safe, tried = report.count("safe"), len(report.results) - report.count("skipped")
    skipped = f", {report.count('skipped')} skipped" if report.count("skipped") else ""
    if report.passed:
        return Text(f"PASSED: {safe} kinds of fault, every answer the local one{skipped}", style="green")
    return Text(f"FAILED: {tried - safe} of {tried} kinds of fault did not end as they must{skipped}", style="bold red")


def result_line(result: Result) -> str:
    """One result as a note."""
    return f"  {result.verdict:<8}{result.kind}: {result.outcome or result.detail}"


def catalogue_table(kinds: Iterable[Kind]) -> Table:
    """What a drill can do."""
    table = _table("kind", "what goes wrong", "a request ends as", "undone")
    for kind in kinds:
        table.add_row(kind.name, kind.what, " or ".join(sorted(kind.expected)), kind.undone)
    return table


def catalogue_json(kinds: Iterable[Kind]) -> list[dict[str, Any]]:
    """The same as a plain value."""
    return [
        {"name": kind.name, "what": kind.what, "expected": sorted(kind.expected), "undone": kind.undone}
        for kind in kinds
    ]


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


__all__ = ["catalogue_json", "catalogue_table", "drill_table", "drill_verdict", "result_line"]
