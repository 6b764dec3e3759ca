"""``kakeya lock``: who is changing a host, and how to go on when they have gone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import HostArgument, YesOption
from kakeya_ops.views.printer import visible

if TYPE_CHECKING:
    from kakeya_ops.deploy.lock import Holder

app = typer.Typer(
    help="""Show and break the lock that whoever changes a host holds.

    Examples:
        kakeya lock show allens
        kakeya lock break allens
    """,
    no_args_is_help=True,
)


@app.command()
def show(ctx: typer.Context, host: HostArgument) -> None:
    """Show who holds the lock of a host, since when, and what for.

    Examples:
        kakeya lock show allens
    """
    from kakeya_ops.cli.reading import load, open_hosts
    from kakeya_ops.deploy.lock import read_lock

    context = app_context(ctx)
    inventory = load(context)
    inventory.host(host)
    with context.printer.progress(f"reading {host}"), open_hosts(context, inventory) as hosts:
        holder = read_lock(hosts.runner(host), hosts.places(host))
    context.printer.show(_document(host, holder), Text(visible(_sentence(host, holder))))


@app.command("break")
def break_(ctx: typer.Context, host: HostArgument, yes: YesOption = False) -> None:
    """Take the lock of a host away from whoever holds it; do this only when they have gone.

    Examples:
        kakeya lock break allens
    """
    from kakeya_ops.cli.applying import Applying, ask
    from kakeya_ops.cli.reading import load, open_hosts
    from kakeya_ops.deploy.lock import break_lock, read_lock

    context = app_context(ctx)
    inventory = load(context)
    inventory.host(host)
    with open_hosts(context, inventory) as hosts:
        with context.printer.progress(f"reading {host}"):
            runner, places = hosts.runner(host), hosts.places(host)
            holder = read_lock(runner, places)
        if holder is not None:
            context.printer.note(_sentence(host, holder))
            ask(context, Applying(yes, question=f"Break the lock of {host}?"))
            break_lock(runner, places)
        context.printer.show({"host": host, "broken": holder is not None}, Text(f"the lock of {host} is free"))


def _document(host: str, holder: Holder | str | None) -> dict[str, object]:
    if holder is None or isinstance(holder, str):
        return {"host": host, "held": holder is not None, "holder": holder, "stale": None}
    return {"host": host, "held": True, "holder": dataclasses.asdict(holder), "stale": holder.stale}


def _sentence(host: str, holder: Holder | str | None) -> str:
    if holder is None:
        return f"nobody holds the lock of {host}"
    stale = None if isinstance(holder, str) else holder.stale
    return f"{holder} holds the lock of {host}" + (f"; it looks abandoned: {stale}" if stale else "")


__all__ = ["app", "break_", "show"]
