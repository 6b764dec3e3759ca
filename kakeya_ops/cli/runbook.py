"""``kakeya runbook``: what to do, with this fleet's own values, ready to paste."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kakeya_ops.cli.completing import offer_hosts, offer_runbooks
from kakeya_ops.cli.context import AppContext, app_context

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory


def runbook(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            help="The page; without one they are listed.",
            metavar="NAME",
            show_default=False,
            autocompletion=offer_runbooks,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="The host that it is about; default: the first worker.", metavar="HOST", autocompletion=offer_hosts
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the pages.")] = False,
) -> None:
    """Print a runbook with the values of the inventory filled in, ready to paste.

    Examples:
        kakeya runbook --list
        kakeya runbook worker-down
        kakeya runbook worker-down --host allens
    """
    from kakeya_ops.runbook import list_pages, render_page
    from kakeya_ops.views.runbook import pages_table

    context = app_context(ctx)
    if name is None or listed:
        pages = list_pages()
        context.printer.show({page.name: page.title for page in pages}, pages_table(pages))
        return
    text = render_page(name, _load(context, name), host, _named(context.inventory_path))
    context.printer.show({"name": name, "text": text}, Text(text.rstrip("\n")))


def _load(context: AppContext, page: str) -> Inventory:
    """The inventory, or for whoever is about to make one that of the example."""
    from kakeya_ops.errors import InputError
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.runbook import BEGINNING, load_example

    try:
        return load_inventory(find_inventory(context.inventory_path))
    except InputError:
        if page != BEGINNING or context.inventory_path is not None:
            raise
        context.printer.warn("there is no inventory yet: names and folders are those of an example")
        return load_example()


def _named(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()


__all__ = ["runbook"]
