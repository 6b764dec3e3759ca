"""``kakeya doctor``: what is wrong, and how to put it right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.completing import offer_targets
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.errors import ExitCode

if TYPE_CHECKING:
    from kakeya_ops.doctor import Expected
    from kakeya_ops.inventory import Inventory
    from kakeya_ops.memory.assessment import Model


def doctor(
    ctx: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hosts or groups of the inventory; default: all.",
            metavar="HOST",
            show_default=False,
            autocompletion=offer_targets,
        ),
    ] = None,
) -> None:
    """Look at every host over SSH: what must be true before a deploy, and what only goes wrong on Macs.

    One finding a line, each with what to do about it. Nothing is changed. Exits with 1 when something failed.

    Examples:
        kakeya doctor
        kakeya doctor allens
        kakeya --json doctor workers
    """
    from kakeya_ops.cli.reading import load, open_hosts
    from kakeya_ops.deploy.targets import select_hosts
    from kakeya_ops.doctor import Examination
    from kakeya_ops.views.doctor import report_view

    context = app_context(ctx)
    inventory = load(context)
    names = select_hosts(inventory, hosts or ["all"])
    with context.printer.progress(f"looking at {', '.join(names)}"), open_hosts(context, inventory) as opened:
        expected, shape = _read_here(context, inventory)
        report = Examination(opened, expected, shape).run(names)
    context.printer.show(report.to_json(), *report_view(report))
    raise typer.Exit(ExitCode.NO if report.failed else ExitCode.OK)


def _read_here(context: AppContext, inventory: Inventory) -> tuple[Expected, Model | None]:
    """What this machine has to compare with; what it has not is said, and goes on without."""
    import hashlib

    from kakeya_ops.deploy.certificates import read_fleet_authority
    from kakeya_ops.deploy.material import read_key
    from kakeya_ops.deploy.model_sync import read_model
    from kakeya_ops.doctor import Expected
    from kakeya_ops.errors import KakeyaError
    from kakeya_ops.memory.assessment import read_model as read_shape
    from kakeya_ops.settings import expand_here

    key = read_key(inventory)
    digest = hashlib.sha256(key.reveal().hex().encode() + b"\n").hexdigest() if key else None
    try:
        authority = read_fleet_authority(inventory)
    except KakeyaError as error:
        context.printer.warn(error.message)
        authority = None
    try:
        return Expected(read_model(inventory), digest, authority), read_shape(expand_here(inventory.model.path))
    except KakeyaError as error:
        context.printer.warn(f"this machine's model cannot be compared with: {error.message}")
        return Expected(error, digest, authority), None


__all__ = ["doctor"]
