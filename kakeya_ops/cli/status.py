"""``kakeya status``: what every node does now."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.asking_the_head import ApiKeyFileOption, certificates_for, read_api_key
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.errors import ExitCode, InputError

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory
    from kakeya_ops.status import Sources


def status(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on, once a second, until Ctrl-C.")] = False,
    no_ssh: Annotated[
        bool, typer.Option("--no-ssh", help="Do not ask hosts over SSH; what launchd says stays unknown.")
    ] = False,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Show what every host of the inventory does now, whether it serves, and why not.

    Exits with 0 when every host serves, 1 when one does not or that is not known. So does --watch, by what it showed
    last: Ctrl-C is how it ends.

    What the columns say of a node:

    - serves: yes when it does what its role is, in a fleet that agrees with it; no and unknown have their reasons
      in the lines below the table.
    - health: healthy when its engine computed something within seconds, failing when it answers and says no,
      unreachable when nothing answers, asking until the first answer.
    - identity: equal when it may share KV with the head (the same model, precision and blocks), differs when it may
      not (verify and its card say which field is the first), unknown before both are known. A head shows its own.
    - queue: requests that wait + requests under way; jobs: since it started, the prefills that a worker computed for
      heads, or the requests that a head answered.
    - tokens/s: prefill now, of what was measured as its own speed; prefill: the same over the last seconds.
    - pool: KV kept, of what it may keep; memory: what it takes, of what was forecast.
    - link: how the head reaches it: network, clear or TLS, round trip, rate; down or only one way is a fault.
    - service: launchd's word for it and the process id; no service when none is installed, not reached when SSH fails,
      not asked with --no-ssh or for a fleet on loopback.
    - uptime, version, model: those of the process that runs, which may be older than what is installed.
    - A dash stands for nothing to say. A column for which there is no room is in the lines below the table.

    Examples:
        kakeya status
        kakeya status --watch
        kakeya status --no-ssh
        kakeya --json status | jq '.nodes[].serves'
    """
    context = app_context(ctx)
    if watch and context.json:
        raise InputError("--watch is for people, and --json prints one document", hint="call status --json repeatedly")
    _show(context, watch, no_ssh, api_key_file)


def _show(context: AppContext, watch: bool, no_ssh: bool, api_key_file: Path | None) -> None:
    """Ask, show, and end the command by what was shown last."""
    from kakeya_ops.status import Collector
    from kakeya_ops.views.status import status_view
    from kakeya_ops.views.status_watch import watch as show_until_ended

    inventory, sources = _read(context, no_ssh, api_key_file)
    ended = None
    with Collector(inventory, sources) as collector:
        if watch:
            ended = show_until_ended(context.printer, collector.status)
            found = collector.status()
        else:
            with context.printer.progress("asking every node"):
                found = collector.first_status()
    out = context.printer.out
    context.printer.show(found.to_json(), status_view(found, out.width, ascii_only=out.options.ascii_only))
    if ended in (signal.SIGTERM, signal.SIGHUP):
        raise typer.Exit(128 + ended)
    raise typer.Exit(ExitCode.OK if found.serves else ExitCode.NO)


def _read(context: AppContext, no_ssh: bool, api_key_file: Path | None) -> tuple[Inventory, Sources]:
    """The inventory, and how its nodes are asked. Raises `InputError`."""
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.secret import read_fleet_key
    from kakeya_ops.settings import expand_here
    from kakeya_ops.status import Sources
    from kakeya_ops.status.forecast import forecast_needs
    from kakeya_ops.status.remote_asking import wants_ssh

    inventory = load_inventory(find_inventory(context.inventory_path))
    key_file = inventory.fleet.key_file
    open_runner = None
    if not no_ssh and any(wants_ssh(inventory, name) for name in inventory.hosts):
        from kakeya_ops.remote.connect import connect  # paramiko is slow to import

        open_runner = connect
    return inventory, Sources(
        key=read_fleet_key(expand_here(key_file)) if key_file else None,
        certificates=certificates_for(inventory, "kakeya-status"),
        api_key=read_api_key(api_key_file),
        open_runner=open_runner,
        needs=forecast_needs(inventory),
    )


__all__ = ["status"]
