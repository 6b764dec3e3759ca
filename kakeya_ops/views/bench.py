"""What a bench found, as tables. Every word that carries meaning is there without colour too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kakeya_ops.bench.crossover import Crossover
from kakeya_ops.bench.report import BenchReport, LinkLine, WorkerResult
from kakeya_ops.bench.spread import Spread
from kakeya_ops.bench.targets import Target
from kakeya_ops.units import render_rate, render_seconds
from kakeya_ops.views.printer import visible

_NOTHING = "–"
_VERDICTS: Mapping[bool | None, tuple[str, str]] = {
    True: ("met", "green"),
    False: ("MISSED", "bold red"),
    None: ("unknown", "yellow"),
}


def bench_view(report: BenchReport) -> Iterator[RenderableType]:
    """Everything in `report`, for a person."""
    yield _title(report)
    yield _lengths_table(report)
    if report.workers:
        yield _break_even_table(report)
        yield _links_table(report)
    if report.jitter:
        yield _jitter_table(report)
    if report.comparisons:
        yield _comparison_table(report)
    if report.targets:
        yield targets_table(report)
    yield from _remarks(report)


def _title(report: BenchReport) -> Text:
    rounds = f"{report.rounds} round{'s' if report.rounds != 1 else ''} in {render_seconds(report.seconds)}"
    return Text(f"bench of {visible(report.head)} at {visible(report.url)}: {rounds}; median (lowest to highest)")


def _lengths_table(report: BenchReport) -> Table:
    table = _table("prompt", "where", right=("prefill tokens/s", "first token", "where it is held"))
    for line in report.local:
        row = (_rate(line.tokens_per_second), _times(line.first_token), _times(line.hot_first_token))
        table.add_row(_text(f"{line.prompt_tokens:.0f} tokens"), _text(f"{report.head} (head)"), *row)
        for worker in report.workers:
            for other in (one for one in worker.lines if one.length == line.length):
                row = (_rate(other.tokens_per_second), _times(other.first_token), _times(other.hit_first_token))
                table.add_row("", _text(worker.node), *row)
    return table


def _break_even_table(report: BenchReport) -> Table:
    table = _table("worker", "helps from, measured", "predicted by the head", "predicted ÷ measured")
    for worker in report.workers:
        ratio = _NOTHING if worker.prediction_ratio is None else f"{worker.prediction_ratio:.2f}"
        table.add_row(_text(worker.node), _text(crossover_words(worker.crossover)), _text(_predicted(worker)), ratio)
    return table


def crossover_words(found: Crossover | None) -> str:
    """From which prompt length on a worker helps, in words."""
    if found is None:
        return "not measured"
    if found.side == "never":
        return f"never, up to {found.tokens:.0f} tokens"
    return f"{found.tokens:.0f} tokens" if found.side == "at" else f"at most {found.tokens:.0f} tokens"


def _predicted(worker: WorkerResult) -> str:
    if not worker.predicts:
        return "not told"
    return "never" if worker.predicted_tokens is None else f"{worker.predicted_tokens} tokens"


def _links_table(report: BenchReport) -> Table:
    table = _table("link to", "by", right=("RTT", "estimate", "measured", "raw TCP", "measured ÷ raw"))
    for worker in report.workers:
        link = worker.link
        share = link.measured.median / link.raw if link.measured and link.raw else None
        table.add_row(
            _text(worker.node),
            _text(_way(link)),
            _NOTHING if link.rtt_seconds is None else render_seconds(link.rtt_seconds),
            _NOTHING if link.estimated is None else render_rate(link.estimated),
            _NOTHING if link.measured is None else render_rate(link.measured.median),
            link.raw_source if link.raw is None else render_rate(link.raw),
            _NOTHING if share is None else f"{share:.2f}",
        )
    return table


def _way(link: LinkLine) -> str:
    return f"{link.network} {link.address}:{link.port}".strip() if link.address else "unknown"


def _jitter_table(report: BenchReport) -> Table:
    table = _table("a stream decodes", right=("tokens", "median gap", "99 % at most", "longest"))
    for line in report.jitter:
        gaps = line.gaps
        cells = (gaps.median_seconds, gaps.p99_seconds, gaps.longest_seconds)
        beside = f"beside {line.beside}" if line.beside else "alone"
        table.add_row(_text(beside), str(gaps.count), *(render_seconds(seconds) for seconds in cells))
    return table


def _comparison_table(report: BenchReport) -> Table:
    table = _table("beside mlx-lm", right=("the head", "mlx-lm", "ratio"))
    for one in report.comparisons:
        sides = (_amount(found.median, one.unit) for found in (one.ours, one.theirs))
        table.add_row(_text(one.name), *sides, f"{one.ratio:.3f}")
    return table


def _amount(value: float, unit: str) -> str:
    return render_seconds(value) if unit == "s" else f"{value:.1f} {unit}"


def targets_table(report: BenchReport) -> Table:
    """The targets, one a row, met or missed."""
    table = _table("verdict", "target", "of", right=("limit", "measured"))
    table.columns[0].no_wrap = True
    for target in report.targets:
        word, style = _VERDICTS[target.met]
        name = f"{target.kind.name}: {target.kind.description}"
        value = _NOTHING if target.value is None else f"{target.value:.3f}"
        table.add_row(Text(word, style=style), _text(name), _text(target.of), _limit(target), value)
    return table


def _limit(target: Target) -> str:
    sign = {"<=": "≤", ">=": "≥"}[target.kind.bound]
    return f"{sign} {target.kind.limit:g}{' (demanded)' if target.demanded else ''}"


def _remarks(report: BenchReport) -> Iterator[Text]:
    for note in report.notes:
        yield Text.assemble(("note: ", "yellow"), visible(note))
    for bystander in report.bystanders:
        yield Text.assemble(("not alone: ", "bold yellow"), visible(bystander))
    if report.bystanders:
        yield Text("These numbers were measured beside other work: they are no measure of the fleet alone.", "yellow")


def _rate(found: Spread | None) -> str:
    return _NOTHING if found is None else f"{found.median:.0f} ({found.low:.0f} to {found.high:.0f})"


def _times(found: Spread | None) -> str:
    if found is None:
        return _NOTHING
    middle, low, high = (render_seconds(value) for value in (found.median, found.low, found.high))
    return f"{middle} ({low} to {high})"


def _table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for heading in right:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _text(value: str) -> Text:
    return Text(visible(value))


__all__ = ["bench_view", "crossover_words", "targets_table"]
