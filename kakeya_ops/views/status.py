"""A fleet's status for a person, at any width. Every word that carries meaning is there without colour too."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kakeya_ops.status import FleetStatus, NodeStatus
from kakeya_ops.units import render_bytes, render_seconds
from kakeya_ops.views.printer import visible
from kakeya_ops.views.status_columns import GAP, NOTHING, Column, choose_columns, columns

_SEPARATOR = " · "


def status_view(status: FleetStatus, width: int, *, ascii_only: bool = False) -> Group:
    """Everything in `status`: a table of the columns that fit into `width`, the others in lines below it."""
    every = columns(status.nodes, ascii_only=ascii_only)
    count = choose_columns(every, width)
    return Group(*_parts(status, every, count))


def _parts(status: FleetStatus, every: Sequence[Column], count: int) -> Iterator[RenderableType]:
    yield _title(status)
    yield _table(status.nodes, every[:count])
    yield from _remarks(status)
    yield _totals(status)
    if every[count:]:
        yield _rest(status.nodes, every[count:])


def _title(status: FleetStatus) -> Text:
    serving = sum(node.serves is True for node in status.nodes)
    every = len(status.nodes)
    style = "green" if serving == every else "bold red"
    when = time.strftime("%H:%M:%S", time.localtime(status.at))
    return Text.assemble(
        ("fleet ", "dim"),
        (visible(status.fleet), "bold"),
        "  ",
        (f"{serving} of {every} hosts serve", style),
        f"  {when}",
    )


def _table(nodes: Iterable[NodeStatus], chosen: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    for column in chosen:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(column.heading, width=column.width, justify=justify, no_wrap=True, overflow="ellipsis")
    for node in nodes:
        table.add_row(*(_cell(column, node) for column in chosen))
    return table


def _cell(column: Column, node: NodeStatus) -> Text:
    text, style = column.cell(node)
    return Text(visible(text), style=style)


def _remarks(status: FleetStatus) -> Iterator[RenderableType]:
    """What is wrong, and then what is worth knowing."""
    rows = [
        *(
            (node.node, problem, "yellow" if node.serves is None else "bold red")
            for node in status.nodes
            for problem in node.problems
        ),
        *(("fleet", conflict, "bold red") for conflict in status.conflicts),
        *((node.node, note, "yellow") for node in status.nodes for note in node.notes),
        *(("fleet", note, "yellow") for note in status.notes),
    ]
    if rows:
        grid = _grid()
        for name, text, style in rows:
            grid.add_row(Text(visible(name), style="bold"), Text(visible(text), style=style))
        yield Text("")
        yield grid


def _rest(nodes: Iterable[NodeStatus], left: Sequence[Column]) -> Group:
    """What had no room in the table, a paragraph for each node."""
    grid = _grid()
    for node in nodes:
        cells = ((column.heading, _cell(column, node)) for column in left)
        known = [Text.assemble((f"{heading} ", "dim"), cell) for heading, cell in cells if cell.plain != NOTHING]
        grid.add_row(Text(visible(node.node), style="bold"), Text(_SEPARATOR).join(known))
    return Group(Text(""), grid)


def _totals(status: FleetStatus) -> Group:
    grid = _grid()
    totals = status.totals
    known = any(value is not None for value in totals.counters.values())
    grid.add_row(Text("total", style="bold"), _counters(totals.counters) if known else Text("not known: no head tells"))
    if totals.fallbacks_by_reason:
        grid.add_row(Text("fallbacks by reason", style="bold"), _counters(totals.fallbacks_by_reason))
    for worker, counters in (totals.by_worker or {}).items():
        grid.add_row(Text(visible(f"by {worker}"), style="bold"), _counters(counters))
    return Group(Text(""), grid)


def _counters(counters: Mapping[str, float | None]) -> Text:
    pairs = (Text.assemble((f"{visible(name)} ", "dim"), _amount(name, value)) for name, value in counters.items())
    return Text(_SEPARATOR).join(pairs)


def _amount(name: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if name.startswith("bytes_"):
        return render_bytes(value)
    return render_seconds(value) if name.endswith("_seconds") else f"{value:.0f}"


def _grid() -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


__all__ = ["status_view"]
