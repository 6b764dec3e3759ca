"""What deploy would do, did and found, for people. Every word that carries meaning is there without colour too."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import Check
from kakeya_ops.deploy.diff import plan_diff
from kakeya_ops.deploy.lock import Holder
from kakeya_ops.deploy.plan import HostPlan, Plan
from kakeya_ops.units import render_seconds
from kakeya_ops.views.printer import visible

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_GOOD, _BAD, _DOUBTFUL = "green", "bold red", "yellow"
_STYLES = {
    "done": _GOOD,
    "nothing to do": _GOOD,
    "ok": _GOOD,
    "restored": _BAD,
    "failed": _BAD,
    "not restored": _BAD,
    "left as it is": _BAD,
    "unknown": _DOUBTFUL,
    "not begun": _DOUBTFUL,
}

_REMARKS = (("reason", "because"), ("gate", "memory"))


def plan_view(plan: Plan) -> Iterator[RenderableType]:
    """For each host what differs, the diff of its property list, and the steps."""
    for host in plan.hosts:
        yield from _host_view(host)
    for name, error in plan.failures.items():
        yield Text.assemble((f"{name}: ", "bold"), ("cannot be deployed to: ", _BAD), visible(error.message))
        if error.hint:
            yield Text(f"  hint: {visible(error.hint)}", style="cyan")


def result_table(results: Sequence[HostResult]) -> Table:
    """One row for each host: what it was, what it is, how long that took, and the verdict."""
    table = _table("host", "before", "after", "took", "verdict")
    for result in results:
        table.add_row(
            _text(result.host),
            _text(result.before or "-"),
            _text(result.after or "-"),
            render_seconds(result.seconds) if result.seconds else "-",
            Text(result.verdict, style=_STYLES[result.verdict]),
        )
    return table


def failure_view(results: Iterable[HostResult]) -> Iterator[RenderableType]:
    """What went wrong on each host that is not what it shall be, and what its service wrote last."""
    for result in results:
        if result.good or result.error is None:
            continue
        step = f"in the step {result.failed_step!r}: " if result.failed_step else ""
        yield Text.assemble((f"{result.host}: ", "bold"), visible(f"{step}{result.error.message}"))
        if result.error.hint:
            yield Text(f"  hint: {visible(result.error.hint)}", style="cyan")
        for failure in result.failures:
            yield Text(f"  could not be put back: {visible(failure.message)}", style=_BAD)
        if result.log:
            yield Text(f"  the end of {result.host}'s log:")
            yield Padding(Text(visible(result.log)), (0, 0, 0, 4))


def check_table(checks: Sequence[Check]) -> Table:
    """What was found between heads and the other nodes."""
    table = _table("verdict", "head", "node", "check", "found")
    for check in checks:
        verdict = Text(check.verdict, style=_STYLES[check.verdict])
        table.add_row(verdict, _text(check.head), _text(check.node), _text(check.what), _text(check.found))
    return table


def history_view(host: str, entries: Sequence[Mapping[str, object]]) -> Iterator[RenderableType]:
    """The audit log of a host, the oldest action first: a line for what it was, and below it by whom and why.

    The first is never wider than 80 columns with names of ours; the words below it are wrapped.
    """
    yield Text(host, style="bold")
    if not entries:
        yield Text("  nothing was done so far")
    for entry in entries:
        action, before, after = (visible(str(entry.get(name) or "-")) for name in ("action", "before", "after"))
        outcome = visible(str(entry.get("outcome") or "unknown"))
        yield Text.assemble(
            f"  {_when(entry.get('time')):<19}  ",
            (f"{action:<8}  ", "bold"),
            f"{before:>12} -> {after:<12}  ",
            (outcome, _STYLES.get(outcome, "")),
        )
        yield Padding(Text("; ".join(_words_of(entry)), style="dim"), (0, 0, 0, 6))


def _words_of(entry: Mapping[str, object]) -> Iterator[str]:
    """How long an action took, by whom it was done, and what there is to be said about it."""
    seconds = entry.get("seconds")
    if isinstance(seconds, int | float):
        yield f"took {render_seconds(seconds)}"
    yield f"by {visible(str(entry.get('who') or 'nobody knows whom'))}"
    yield from (f"{said}: {visible(str(entry[name]))}" for name, said in _REMARKS if entry.get(name))


def _host_view(host: HostPlan) -> Iterator[RenderableType]:
    before = host.state.generation or "nothing"
    if not host.steps:
        yield Text.assemble((host.host.name, "bold"), f" ({host.host.role}): nothing to do, generation {before}")
        return
    change = "nothing" if host.after is None else host.after
    yield Text.assemble((host.host.name, "bold"), f" ({host.host.role}): {before} -> {change}")
    if host.state.lock is not None:
        holder = Holder.parse(host.state.lock) or "somebody who left no note"
        yield Text(f"  its lock is held: {visible(str(holder))}", style=_DOUBTFUL)
    for reason in host.reasons:
        yield Text(f"  - {visible(reason)}")
    if host.gate is not None:
        yield Text(f"  memory: {host.gate.answer}: {visible(host.gate.reason)}")
    for line in plan_diff(host):
        yield Text(f"    {visible(line)}", style=_DIFF_STYLES.get(line[:1], ""))
    titles = ("take the lock", *(step.title for step in host.steps), "write the audit log, release the lock")
    for number, title in enumerate(titles, 1):
        yield Text(f"  {number:2}. {visible(title)}")


def _when(moment: object) -> str:
    if not isinstance(moment, int | float):
        return "unknown"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _text(value: object) -> Text:
    return Text(visible(str(value)))


__all__ = ["check_table", "failure_view", "history_view", "plan_view", "result_table"]
