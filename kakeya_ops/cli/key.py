"""``kakeya key``: the fleet key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from kakeya_ops.cli.completing import offer_hosts
from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import YesOption
from kakeya_ops.errors import InputError

app = typer.Typer(no_args_is_help=True)


@app.callback()
def key() -> None:
    """The key that the fleet's nodes know each other by.

    Examples:
        kakeya key new
        kakeya key rotate
    """


@app.command()
def new(ctx: typer.Context) -> None:
    """Make the fleet key that the inventory names, and the authority of its certificates, for their owner alone.

    What is there already stays: to replace it is `kakeya key rotate`. Exits with 3 if nothing lacks.

    Examples:
        kakeya key new
    """
    from kakeya_ops.certificates.founding import make_secrets
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.settings import expand_here

    context = app_context(ctx)
    fleet = load_inventory(find_inventory(context.inventory_path)).fleet
    if fleet.key_file is None:
        raise InputError("the inventory names no key file", hint="set fleet.key_file to where the key is to be")
    made = make_secrets(expand_here(fleet.key_file), fleet.name)
    told = [f"made {made.key_file}; kakeya deploy brings it to every host"] if made.key_file else []
    told += [f"made {made.authority}; it stays on this machine"] if made.authority else []
    document = {"key_file": made.key_file and str(made.key_file), "authority": made.authority and str(made.authority)}
    context.printer.show(document, Text("\n".join(told)))


@app.command()
def certificate(
    ctx: typer.Context,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="The host whose certificate it is to be.", autocompletion=offer_hosts)
    ],
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where both files are to be; default: NODE, beside the fleet key."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over files that are there.")] = False,
) -> None:
    """Issue a certificate for a node that is served by hand: `kakeya deploy` does this for all others.

    Both files belong beside the fleet key on the node's machine. Exits with 3 where a file is there already.

    Examples:
        kakeya key certificate allens
        kakeya key certificate head --into ~/.kakeya
    """
    from kakeya_ops.certificates.handing import hand_out
    from kakeya_ops.deploy.certificates import addresses_of, read_fleet_authority
    from kakeya_ops.deploy.key_rotation import refuse_during_rotation
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.settings import expand_here

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    host, key_file = inventory.host(node), inventory.fleet.key_file
    refuse_during_rotation(inventory)
    authority = read_fleet_authority(inventory)
    if authority is None or key_file is None:
        raise InputError("no endpoint of this fleet speaks TLS, so that no node needs a certificate")
    here = expand_here(key_file)
    folder = here.parent / host.name if into is None else into
    files = hand_out(authority, host.name, addresses_of(host), folder / here.name, replace=replace)
    told = (
        f"made {files.certificate}, key and certificate of {host.name}, for its owner alone\n"
        f"made {files.authorities}, what it knows the others by\n"
        f"both belong beside the fleet key of {host.name}, {key_file}; it reads them when it is started"
    )
    document = {"node": host.name, "certificate": str(files.certificate), "authorities": str(files.authorities)}
    context.printer.show(document, Text(told))


@app.command()
def rotate(ctx: typer.Context, yes: YesOption = False) -> None:
    """Replace the fleet key on all hosts while the fleet serves; both keys are accepted until all have the new one.
    So is the authority of its certificates, where any endpoint needs them.

    Every node is restarted three times, one node after the other. What was interrupted is gone on with by another run.

    Examples:
        kakeya key rotate
        kakeya key rotate --yes
    """
    from kakeya_ops.cli.rotating import run_rotation

    run_rotation(app_context(ctx), yes=yes)


__all__ = ["app", "certificate", "key", "new", "rotate"]
