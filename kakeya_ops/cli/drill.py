"""``kakeya drill``: a fire drill on the own fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.asking_the_head import (
    ApiKeyFileOption,
    UrlOption,
    certificates_for,
    fleet_keys,
    head_url,
    read_api_key,
)
from kakeya_ops.cli.completing import offer_drills, offer_workers
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.errors import ExitCode, InputError, RefusedError
from kakeya_ops.spelling import did_you_mean

if TYPE_CHECKING:
    from kakeya_ops.drill.catalogue import Kind
    from kakeya_ops.drill.run import DrillPlan
    from kakeya_ops.inventory import Inventory
    from kakeya_ops.peer.connection import Endpoint


def drill(
    ctx: typer.Context,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only", help="Try only this kind; may be given again.", metavar="KIND", autocompletion=offer_drills
        ),
    ] = None,
    show_kinds: Annotated[bool, typer.Option("--list", help="Show the kinds of fault and try none.")] = False,
    worker: Annotated[
        str | None,
        typer.Option(
            help="The worker to drill; default: all that live share the kinds.",
            metavar="NODE",
            autocompletion=offer_workers,
        ),
    ] = None,
    url: UrlOption = None,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Break the fleet on purpose, one kind of fault at a time, and see that every answer is the right one.

    Each kind is met by a request of the drill's own, undone, and judged: tokens equal to those of a local prefill, the
    fallback counted by its reason, the seconds lost. Needs fleet.drill: true in the inventory. Ctrl-C disarms.
    Exits with 0 when all is safe, 1 when a request failed or a token differed, 3 when the fleet cannot be reached.

    Examples:
        kakeya drill --list
        kakeya drill --worker allens
        kakeya drill --only cut-middle --only killed-worker
    """
    from kakeya_ops.drill.run import run_drill
    from kakeya_ops.views.drill import catalogue_json, catalogue_table, drill_table, drill_verdict, result_line

    context = app_context(ctx)
    kinds = choose_kinds(only)
    if show_kinds:
        context.printer.show(catalogue_json(kinds), catalogue_table(kinds))
        return
    plan = make_plan(context, kinds, worker, url, api_key_file)
    with context.printer.progress(f"drilling {plan.url}") as tell:
        report = run_drill(plan, tell, lambda result: context.printer.note(result_line(result)))
    context.printer.show(report.to_json(), drill_table(report), drill_verdict(report))
    raise typer.Exit(ExitCode.OK if report.passed else ExitCode.NO)


def choose_kinds(only: Sequence[str] | None) -> Sequence[Kind]:
    """The kinds called `only`, or all of them. Raises `InputError` for a name that is none."""
    from kakeya_ops.drill.catalogue import CATALOGUE, kind_named

    if not only:
        return CATALOGUE
    unknown = [name for name in only if kind_named(name) is None]
    if unknown:
        near = did_you_mean(unknown[0], [kind.name for kind in CATALOGUE])
        raise InputError(f"there is no kind of fault {unknown[0]!r}{near}", hint="kakeya drill --list shows them")
    return [kind for kind in CATALOGUE if kind.name in only]


def make_plan(
    context: AppContext, kinds: Sequence[Kind], worker: str | None, url: str | None, api_key_file: Path | None
) -> DrillPlan:
    """The drill of the inventory's fleet. Raises `RefusedError` where a drill is not allowed or makes no sense."""
    from kakeya_ops.drill.nodes import Operator
    from kakeya_ops.drill.run import DrillPlan
    from kakeya_ops.inventory import find_inventory, load_inventory

    inventory = load_inventory(find_inventory(context.inventory_path))
    check_allowed(inventory)
    return DrillPlan(
        url=head_url(inventory, url),
        operator=Operator(
            fleet_keys(inventory)[0], inventory.fleet.tenant, certificates_for(inventory, "kakeya-drill")
        ),
        head=inventory.with_role("head")[0].name,
        ways=ways_of(inventory),
        worker=worker,
        kinds=kinds,
        least_tokens=inventory.prefill.min_tokens,
        api_key=read_api_key(api_key_file),
    )


def check_allowed(inventory: Inventory) -> None:
    """Raise `RefusedError` unless the fleet may be drilled."""
    if not inventory.fleet.drill:
        raise RefusedError(
            f"fleet {inventory.fleet.name} takes no part in drills",
            hint="set fleet.drill: true in the inventory and deploy it; false again afterwards",
        )
    if inventory.prefill.require_remote:
        raise RefusedError(
            "prefill.require_remote is set: there, a fault is an error to the client by intention",
            hint="drill with require_remote: false",
        )


def ways_of(inventory: Inventory) -> dict[str, Sequence[Endpoint]]:
    """Where each node listens for peers, the preferred endpoint first."""
    from kakeya_ops.peer.connection import Endpoint

    return {
        name: tuple(
            Endpoint(one.address, one.port, one.network, in_clear=one.in_clear)
            for one in sorted(inventory.host(name).endpoints, key=lambda one: -one.priority)
        )
        for name in inventory.hosts
    }


__all__ = ["check_allowed", "choose_kinds", "drill", "make_plan", "ways_of"]
