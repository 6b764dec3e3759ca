"""Verdicts on memory for people: terms with their sources, inequalities, and what would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kakeya_ops.errors import KakeyaError
from kakeya_ops.memory.advice import Change
from kakeya_ops.memory.assessment import Assessment
from kakeya_ops.memory.footprint import Footprint
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.memory.observed import Comparison
from kakeya_ops.memory.verdict import Inequality, MemoryVerdict
from kakeya_ops.units import render_bytes
from kakeya_ops.views.printer import visible

_STYLES = {
    "fits": "green",
    "holds": "green",
    "tight": "yellow",
    "narrow": "yellow",
    "unknown": "yellow",
    "not applicable": "dim",
    "does not fit": "bold red",
    "fails": "bold red",
}


def assessment_view(assessment: Assessment, comparisons: Sequence[Comparison] = ()) -> Iterator[RenderableType]:
    """One host in one role: the verdict, what it follows from, and what would make it fit."""
    verdict, load = assessment.verdict, assessment.question.load
    yield headline(assessment)
    if verdict.need is not None:
        yield _term_table(verdict.need, f"{assessment.host} as a {load.role} needs")
        yield _inequality_table(verdict)
    yield _host_line(assessment.question.host, verdict)
    shape = assessment.question.shape
    for note in shape.notes if shape is not None and load.role != "cache" else ():
        yield Text(f"  note: {visible(note)}")
    if comparisons:
        yield _comparison_table(comparisons)
    for comparison in comparisons:
        if comparison.warning:
            yield Text(f"  warning: {visible(comparison.warning)}", style="yellow")
    yield from _changes(assessment)


def matrix_table(rows: Mapping[str, Mapping[str, str]], roles: Mapping[str, str]) -> Table:
    """Hosts by roles: each cell an answer, that of a host's own role marked."""
    table = _table("host", "own role", "head", "worker", "cache")
    table.caption = "* its own role; kakeya memory HOST shows every term, and what would help"
    table.caption_justify = "left"
    for host, answers in rows.items():
        own = roles[host]
        cells = (_cell(answers.get(role, "unknown"), role == own) for role in ("head", "worker", "cache"))
        table.add_row(_text(host), _text(own), *cells)
    return table


def headline(assessment: Assessment) -> Text:
    """The verdict on one host, and why, in a sentence."""
    verdict, load = assessment.verdict, assessment.question.load
    asked = f"{load.concurrency} × {load.context_tokens} tokens"
    about = "" if load.role == "cache" else f", {asked}"
    word = (verdict.answer, _STYLES[verdict.answer])
    return Text.assemble((assessment.host, "bold"), f" as a {load.role}{about}: ", word, f": {visible(verdict.reason)}")


def failure_line(host: str, error: KakeyaError) -> Text:
    """A host of which nothing is known, and why."""
    return Text.assemble((host, "bold"), ": ", ("unknown", _STYLES["unknown"]), f": {visible(error.message)}")


def _term_table(need: Footprint, title: str) -> Table:
    table = _table("term", "size", "on GPU", "where from", title=title)
    for term in need.terms:
        table.add_row(_text(term.name), render_bytes(term.nbytes), "yes" if term.on_gpu else "no", _text(term.source))
    table.add_section()
    table.add_row("on the GPU", render_bytes(need.gpu_bytes), "", "")
    table.add_row("altogether", render_bytes(need.total_bytes), "", "")
    table.add_row(
        "largest buffer", render_bytes(need.largest_buffer_bytes), "", _text(need.largest_buffer), end_section=True
    )
    return table


def _inequality_table(verdict: MemoryVerdict) -> Table:
    table = _table("inequality", "verdict", "need", "limit", "left", "in words")
    for one in verdict.inequalities:
        table.add_row(
            one.name,
            Text(one.outcome, style=_STYLES[one.outcome]),
            render_bytes(one.need_bytes),
            "-" if one.limit_bytes is None else render_bytes(one.limit_bytes),
            _left(one),
            _text(one.sentence.removeprefix(f"{one.name}: ")),
        )
    return table


def _left(one: Inequality) -> str:
    return "-" if one.left_bytes is None else render_bytes(one.left_bytes)


def _host_line(host: HostMemory, verdict: MemoryVerdict) -> Text:
    figure = host.total_bytes
    size = "unknown" if figure.nbytes is None else render_bytes(figure.nbytes)
    parts = [f"memory {size} ({'PINNED: ' if verdict.pinned else ''}{figure.source})"]
    if host.immediate_bytes is not None and host.optimistic_bytes is not None:
        parts.append(f"{render_bytes(host.immediate_bytes)} free at once")
        parts.append(f"{render_bytes(host.optimistic_bytes)} after dropping and swapping")
    if host.swap_used_bytes:
        parts.append(f"{render_bytes(host.swap_used_bytes)} swapped out")
    if host.compressor_bytes:
        parts.append(f"{render_bytes(host.compressor_bytes)} compressed")
    if host.version:
        parts.append(f"{'macOS' if host.system == 'macos' else host.system} {host.version} {host.build or ''}".rstrip())
    return Text(f"  host: {visible('; '.join(parts))}")


def _comparison_table(comparisons: Sequence[Comparison]) -> Table:
    table = _table("running now", "forecast", "observed", "off by")
    for one in comparisons:
        off = f"{one.off_percent:+.0f} %"
        table.add_row(one.name, render_bytes(one.forecast_bytes), render_bytes(one.observed_bytes), off)
    return table


def _changes(assessment: Assessment) -> Iterator[RenderableType]:
    answer, changes = assessment.verdict.answer, assessment.changes
    if answer not in ("tight", "does not fit"):
        return
    if not changes:
        yield Text("  No single change makes it fit.")
        return
    yield Text("  What would help, each by itself:")
    for change in changes:
        yield _change_line(change)
        if change.command:
            yield Text(f"      {change.command}")
        if change.risk:
            yield Text(f"      risk: {visible(change.risk)}", style="yellow")


def _change_line(change: Change) -> Text:
    return Text.assemble(f"  - {visible(change.sentence)} -> ", (change.answer, _STYLES[change.answer]))


def _cell(answer: str, own: bool) -> Text:
    return Text(f"{answer} *" if own else answer, style=_STYLES.get(answer, ""))


def _table(*headings: str, title: str | None = None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _text(value: object) -> Text:
    return Text(visible(str(value)))


__all__ = ["assessment_view", "failure_line", "headline", "matrix_table"]
