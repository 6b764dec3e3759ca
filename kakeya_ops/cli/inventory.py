"""``kakeya inventory``: what the inventory says, whether it is right, and what it may say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from kakeya_ops.cli.completing import offer_hosts
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import InventoryError
from kakeya_ops.units import render_bytes

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory, ResolvedHost

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

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    hosts = [inventory.host(name) for name in ([host] if host else inventory.hosts)]
    table = _host_table(inventory, hosts[0]) if host else _fleet_table(inventory, hosts)
    context.printer.show(_document(inventory, hosts), table)


@app.command()
def check(ctx: typer.Context) -> None:
    """Tell every fault of the inventory with its path and line.

    Examples:
        kakeya inventory check
        kakeya inventory check --inventory two-macs.yaml
    """
    from kakeya_ops.inventory import find_inventory, load_inventory

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
    hosts = ", ".join(f"{name} ({host.role})" for name, host in inventory.hosts.items())
    context.printer.show({"file": str(path), "faults": []}, Text(f"{path} is valid: {hosts}{_secured(inventory)}"))


@app.command()
def schema(ctx: typer.Context) -> None:
    """Print the JSON Schema of an inventory, for completion in an editor.

    Examples:
        kakeya inventory schema > inventory.schema.json
    """
    from kakeya_ops.inventory.reference import inventory_schema

    app_context(ctx).printer.raw(json.dumps(inventory_schema(), indent=2))


def _secured(inventory: Inventory) -> str:
    """Which endpoints want certificates, for people."""
    ends = [
        f"{name} at {end.address}"
        for name, host in inventory.hosts.items()
        for end in host.endpoints
        if not end.in_clear
    ]
    return f"\nby TLS, with certificates from kakeya deploy: {', '.join(ends)}" if ends else ""


def _document(inventory: Inventory, hosts: list[ResolvedHost]) -> dict[str, Any]:
    """What `show` shows, as a plain value: the sections that are the fleet's, and the resolved hosts by name."""
    common = inventory.model_dump(mode="json", exclude={"hosts", "defaults"})
    return common | {"hosts": {host.name: host.model_dump(mode="json") for host in hosts}}


def _fleet_table(inventory: Inventory, hosts: list[ResolvedHost]) -> Table:
    window = "the whole context" if inventory.cache.window is None else f"{inventory.cache.window} tokens"
    caption = f"blocks of {inventory.cache.block_tokens} tokens, sink {inventory.cache.sink}, window {window}"
    table = Table(
        title=f"{inventory.fleet.name}: {inventory.model.id}", caption=caption, box=SIMPLE_HEAD, pad_edge=False
    )
    for column in ("host", "role", "memory", "pool", "API", "peer endpoints"):
        table.add_column(column, overflow="fold")
    for host in hosts:
        table.add_row(
            host.name,
            host.role,
            "ask" if host.memory_bytes is None else render_bytes(host.memory_bytes),
            render_bytes(host.pool_bytes),
            "-" if host.api is None else f"{host.api.bind}:{host.api.port}",
            "\n".join(f"{end.address}:{end.port} {'clear' if end.in_clear else 'TLS'}" for end in host.endpoints)
            or "-",
        )
    return table


def _host_table(inventory: Inventory, host: ResolvedHost) -> Table:
    table = Table("key", "value", title=f"{inventory.fleet.name}: {host.name}", box=SIMPLE_HEAD)
    first = {"name": host.name, "role": host.role}
    for key, value in _leaves(first | host.model_dump(mode="json"), ""):
        table.add_row(Text(key), Text(value, overflow="fold"))
    return table


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".removeprefix("."))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


__all__ = ["app", "check", "schema", "show"]
