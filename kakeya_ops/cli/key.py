"""``kakeya key``: the fleet key."""

from __future__ import annotations

import typer
from rich.text import Text

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import YesOption
from kakeya_ops.errors import InputError

app = typer.Typer(help="The key that the fleet's nodes know each other by.", no_args_is_help=True)


@app.callback()
def key() -> None:
    """The key that the fleet's nodes know each other by."""


@app.command()
def new(ctx: typer.Context) -> None:
    """Make the fleet key that the inventory names, readable by its owner alone.

    Never replaces a key: that is `kakeya key rotate`. Exits with 3 if there is one.
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.secret import write_fleet_key
    from kakeya_ops.settings import expand_here

    context = app_context(ctx)
    key_file = load_inventory(find_inventory(context.inventory_path)).fleet.key_file
    if key_file is None:
        raise InputError("the inventory names no key file", hint="set fleet.key_file to where the key is to be")
    path = expand_here(key_file)
    write_fleet_key(path)
    context.printer.show({"key_file": str(path)}, Text(f"made {path}; kakeya deploy brings it to every host"))


@app.command()
def rotate(ctx: typer.Context, yes: YesOption = False) -> None:
    """Replace the fleet key on all hosts while the fleet serves; both keys are accepted until all have the new one.

    Every node is restarted three times, one node after the other. What was interrupted is gone on with by another run.
    """
    from kakeya_ops.cli.rotating import run_rotation

    run_rotation(app_context(ctx), yes=yes)


__all__ = ["app", "key", "new", "rotate"]
