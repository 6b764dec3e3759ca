"""The doctor's findings, one a line, with what to do below those that are not well."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from kakeya_ops.doctor import Finding, Report
from kakeya_ops.doctor.catalogue import TOPICS
from kakeya_ops.views.printer import visible

_STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "unknown": "magenta"}
_FIX_INDENT = 10


def report_view(report: Report) -> Iterator[RenderableType]:
    """The lines, and a last one that counts them."""
    host = None
    for finding in report.findings:
        if finding.host != host:
            host = finding.host
            yield Text(f"\n{visible(host)}", style="bold")
        yield _line(finding)
        if finding.fix is not None and finding.verdict != "ok":
            yield Padding(Text(f"-> {visible(finding.fix)}", style="cyan"), (0, 0, 0, _FIX_INDENT))
    yield _summary(report)


def _line(finding: Finding) -> Text:
    line = Text(f"{finding.verdict:<8}", style=_STYLES[finding.verdict])
    line.append(f"  {finding.code}: ", style="bold" if finding.verdict == "failed" else "default")
    line.append(f"{TOPICS[finding.code].title}: " if finding.verdict != "ok" else "", style="dim")
    return line.append(visible(finding.found), style="default")


def _summary(report: Report) -> Text:
    counts = [f"{report.count(verdict)} {verdict}" for verdict in ("failed", "warning", "unknown", "ok")]
    return Text(f"\n{', '.join(counts)}", style="bold red" if report.failed else "bold")


__all__ = ["report_view"]
