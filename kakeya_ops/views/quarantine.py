"""A head's quarantine on the terminal: who is held, since when, and what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kakeya_ops.serving.quarantine import Evidence, Held
from kakeya_ops.verify.quarantine import Listing
from kakeya_ops.views.printer import visible


def quarantine_view(listing: Listing) -> list[RenderableType]:
    """All of it, to be printed one below the other."""
    head = visible(listing.head)
    if not listing.held:
        return [Text(f"{head} holds nobody in quarantine", style="green"), *_released_lines(listing)]
    nodes = "1 node" if len(listing.held) == 1 else f"{len(listing.held)} nodes"
    summary = Text(f"{head} holds {nodes} in quarantine: no KV of theirs is used", style="bold red")
    return [held_table(listing.held), summary, *_released_lines(listing)]


def held_table(held: tuple[Held, ...]) -> Table:
    """For each node since when it is held, and a row for each piece of the evidence against it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("node", "since", "evidence", ""):
        table.add_column(heading, overflow="fold")
    for one in held:
        node, since = Text(visible(one.node)), Text(moment(one.held_at))
        for name, value in _evidence(one.evidence):
            table.add_row(node, since, name, Text(visible(value)))
            node = since = Text()
    return table


def _evidence(evidence: Evidence) -> Iterator[tuple[str, str]]:
    yield "request", evidence.request_id
    yield "process", f"epoch {evidence.epoch}, started {moment(evidence.epoch / 1e9)}"
    yield "differs from", position(evidence)
    yield "greatest difference", deviation(evidence)
    yield "tolerance", tolerance(evidence)


def released_line(freed: Held, head: str) -> Text:
    """What a release has done."""
    return Text(
        f"{visible(freed.node)} is asked by {visible(head)} again; its next KV is audited before any other",
        style="green",
    )


def moment(unix_seconds: float) -> str:
    """A Unix time on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_seconds))


def position(evidence: Evidence) -> str:
    """Where in the prompt the KV begins to differ."""
    first = evidence.block * evidence.block_tokens
    place = f"tokens {first} to {first + evidence.block_tokens - 1}"
    return f"{place}: block {evidence.block}, part {evidence.part}, after {evidence.matching_parts} equal parts"


def deviation(evidence: Evidence) -> str:
    """The greatest difference of two numbers, in words."""
    if evidence.max_deviation is None:
        return "not known: its block was gone, or is no number"
    return f"{evidence.max_deviation:.3g} standard deviations"


def tolerance(evidence: Evidence) -> str:
    """What would have been let pass, in words."""
    return f"{evidence.tolerance:.3g} standard deviations" if evidence.tolerance else "none: equal to the bit"


def _released_lines(listing: Listing) -> list[RenderableType]:
    return [
        Text(visible(f"released {moment(one.released_at or 0.0)}: {one.node} ({one.release_reason or 'no reason'})"))
        for one in listing.released
    ]


__all__ = ["deviation", "held_table", "moment", "position", "quarantine_view", "released_line", "tolerance"]
