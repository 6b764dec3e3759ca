"""What every command is given: the global options and the printer. Commands get it as `typer.Context.obj`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import typer

from kakeya_ops.views.printer import Printer


@dataclass(frozen=True)
class AppContext:
    """The global options. `inventory_path` is None when ``--inventory`` was not given."""

    inventory_path: Path | None = None
    json: bool = False
    verbose: int = 0
    printer: Printer = field(default_factory=Printer)


def app_context(ctx: typer.Context) -> AppContext:
    """The `AppContext` of a running command; a default one when a sub-command's app is run by itself."""
    return ctx.ensure_object(AppContext)


__all__ = ["AppContext", "app_context"]
