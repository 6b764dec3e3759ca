"""``kakeya inventory``: what the inventory says, whether it is right, and what it may say."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from kakeya_ops.cli.completing import offer_hosts
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import InventoryError

app = typer.Typer(
    help="""Show and check the inventory.

    Examples:
        kakeya inventory check
        kakeya inventory show
    """,
    no_args_is_help=True,
)


@app.command()
def show(
    ctx: typer.Context,
    host: Annotated[
        str | None,
        typer.Argument(
            help="Only this host, in full; default: all.",
            metavar="HOST",
            show_default=False,
            autocompletion=offer_hosts,
        ),
    ] = None,
) -> None:
    """Show what holds for each host once the defaults are merged in.

    Examples:
        kakeya inventory show
        kakeya inventory show allens
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.views.inventory import host_table, hosts_table, inventory_document

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    hosts = [inventory.host(name) for name in ([host] if host else inventory.hosts)]
    table = host_table(inventory, hosts[0]) if host else hosts_table(inventory, hosts)
    context.printer.show(inventory_document(inventory, hosts), table)


@app.command()
def check(ctx: typer.Context) -> None:
    """Tell every fault of the inventory with its path and line.

    Examples:
        kakeya inventory check
        kakeya inventory check --inventory two-macs.yaml
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.views.inventory import validity

    context = app_context(ctx)
    path = find_inventory(context.inventory_path)
    try:
        inventory = load_inventory(path)
    except InventoryError as error:
        if not context.json:
            raise
        faults = [dataclasses.asdict(fault) for fault in error.faults]
        context.printer.show({"file": error.file, "faults": faults})
        raise typer.Exit(error.exit_code) from error
    context.printer.show({"file": str(path), "faults": []}, validity(str(path), inventory))


@app.command()
def schema(ctx: typer.Context) -> None:
    """Print the JSON Schema of an inventory, for completion in an editor.

    Examples:
        kakeya inventory schema > inventory.schema.json
    """
    from kakeya_ops.inventory.reference import inventory_schema

    app_context(ctx).printer.raw(json.dumps(inventory_schema(), indent=2))


__all__ = ["app", "check", "schema", "show"]
