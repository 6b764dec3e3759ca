"""The list of runbooks."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Column, Table

from kakeya_ops.runbook import Page


def pages_table(pages: Iterable[Page]) -> Table:
    """A page a row: what to type, and what it is for."""
    table = Table(Column("type", overflow="fold"), Column("when", overflow="fold"), box=box.SIMPLE_HEAD)
    for page in pages:
        table.add_row(f"kakeya runbook {page.name}", page.title)
    return table


__all__ = ["pages_table"]
