"""``kakeya render``: the exact files that deploy would install."""

from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import HostArgument


def render(
    ctx: typer.Context,
    host: HostArgument,
    inventory_copy: Annotated[
        bool, typer.Option("--inventory-copy", help="Print the inventory that the service would be served from.")
    ] = False,
) -> None:
    """Print the property list that deploy would install on a host, byte for byte.

    The host is asked for what it depends on: its home folder and its launchd domains.

    Examples:
        kakeya render allens
        kakeya render allens --inventory-copy
    """
    from kakeya_ops.cli.reading import load, open_hosts
    from kakeya_ops.deploy.desired import make_desired
    from kakeya_ops.deploy.sources import read_material
    from kakeya_ops.observe import observe_host

    context = app_context(ctx)
    inventory = load(context)
    resolved = inventory.host(host)
    with context.printer.progress(f"reading {host}"), open_hosts(context, inventory) as hosts:
        state = observe_host(hosts.runner(host), inventory, resolved, hosts.asker)
        desired = make_desired(inventory, resolved, state, read_material(inventory))
    document = {
        "host": host,
        "path": desired.places.plist,
        "generation": desired.generation,
        "domain": desired.domain.domain.target,
        "domain_reason": desired.domain.reason,
        "arguments": list(desired.service.program_arguments),
        "plist": desired.plist.decode(),
        "inventory": desired.inventory.decode(),
    }
    if context.json:
        context.printer.show(document)
    else:
        context.printer.raw((desired.inventory if inventory_copy else desired.plist).decode().rstrip("\n"))


__all__ = ["render"]
