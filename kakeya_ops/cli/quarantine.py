"""``kakeya quarantine``: whom the self-audit has set aside, and their release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.asking_the_head import ApiKeyFileOption, UrlOption, fleet_keys, head_url, read_api_key
from kakeya_ops.cli.completing import offer_hosts
from kakeya_ops.cli.context import AppContext, app_context

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory

app = typer.Typer(no_args_is_help=True)


@app.callback()
def quarantine() -> None:
    """Show whom the self-audit has set aside, and release a node.

    Examples:
        kakeya quarantine list
        kakeya quarantine release allens --reason 'memory module replaced'
    """


@app.command("list")
def list_(ctx: typer.Context, url: UrlOption = None, api_key_file: ApiKeyFileOption = None) -> None:
    """List the nodes that the head asks no more, with the evidence against each.

    A node is held when the head computed KV again that had come from it, and found a difference. Exits with 0, also
    when somebody is held, and with 3 when the head cannot be reached.

    Examples:
        kakeya quarantine list
        kakeya --json quarantine list
    """
    from kakeya_ops.verify.head_client import HeadClient
    from kakeya_ops.verify.quarantine import read_quarantine
    from kakeya_ops.views.quarantine import quarantine_view

    context = app_context(ctx)
    address = url or head_url(_inventory(context))
    with HeadClient(address, read_api_key(api_key_file)) as client:
        listing = read_quarantine(client)
    context.printer.show(listing.to_json(), *quarantine_view(listing))


@app.command()
def release(
    ctx: typer.Context,
    node: Annotated[
        str, typer.Argument(help="The node to be asked again.", metavar="NODE", autocompletion=offer_hosts)
    ],
    reason: Annotated[
        str, typer.Option(help="Why it is to be trusted again; kept with the evidence.", metavar="TEXT")
    ] = "none given",
    url: UrlOption = None,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Let the head ask a node again that it holds in quarantine. Needs the fleet key.

    Its next KV is audited as that of a new process is, and nothing that was computed before the finding comes back.
    Exits with 0 when it was released, 1 when the head does not hold it, 3 when the head cannot be reached.

    Examples:
        kakeya quarantine release allens
        kakeya quarantine release allens --reason 'memory module replaced'
    """
    from kakeya_ops.verify.head_client import HeadClient
    from kakeya_ops.verify.quarantine import release as release_node
    from kakeya_ops.views.quarantine import released_line

    context = app_context(ctx)
    inventory = _inventory(context)
    keys, address = fleet_keys(inventory), head_url(inventory, url)
    with HeadClient(address, read_api_key(api_key_file)) as client:
        freed = release_node(client, keys, node, reason)
    context.printer.show(freed.to_json(), released_line(freed, address))


def _inventory(context: AppContext) -> Inventory:
    from kakeya_ops.inventory import find_inventory, load_inventory

    return load_inventory(find_inventory(context.inventory_path))


__all__ = ["app", "list_", "quarantine", "release"]
