"""``kakeya verify``: proof that the fleet does what it is for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import ExitCode, InputError
from kakeya_ops.secret import Secret, read_fleet_keys
from kakeya_ops.settings import expand_here

if TYPE_CHECKING:
    from kakeya_ops.inventory import Inventory

app = typer.Typer(help="Prove that the fleet does what it is for.", no_args_is_help=True)


@app.callback()
def verify() -> None:
    """Prove that the fleet does what it is for."""


@app.command("remote-prefill")
def remote_prefill(
    ctx: typer.Context,
    min_tokens: Annotated[int, typer.Option(min=1, help="Length of the probe's prompt, at least.", metavar="N")] = 128,
    worker: Annotated[str | None, typer.Option(help="Accept only this worker as proof.", metavar="NODE")] = None,
    url: Annotated[
        str | None, typer.Option(help="The head's API; default: that of the inventory's head.", metavar="URL")
    ] = None,
    api_key_file: Annotated[
        Path | None, typer.Option(help="File that holds an API key, where the head asks for one.", metavar="FILE")
    ] = None,
) -> None:
    """Prove that a worker computes, ships and serves the KV that the head decodes from.

    Exits with 0 when every check is ok, 1 when one is not, 3 when the head cannot be reached.
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.verify.probe import ProbeOptions, run_probe
    from kakeya_ops.views.tables import checks_table, verdict_line

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    options = ProbeOptions(
        url=url or head_url(inventory),
        fleet_keys=fleet_keys(inventory),
        min_tokens=min_tokens,
        worker=worker,
        api_key=read_api_key(api_key_file) if api_key_file else None,
    )
    with context.printer.progress(f"asking {options.url}") as tell:
        report = run_probe(options, tell)
    context.printer.show(report.to_json(), checks_table(report), verdict_line(report))
    raise typer.Exit(ExitCode.OK if report.passed else ExitCode.NO)


def head_url(inventory: Inventory) -> str:
    """Where the first head of `inventory` serves its API: its bind address, or where peers reach it if that is all."""
    from kakeya_ops.inventory.fields import is_unspecified

    head, api = next((host, host.api) for host in inventory.with_role("head") if host.api)
    elsewhere = head.endpoints[0].address if head.endpoints else head.ssh_host
    address = elsewhere if is_unspecified(api.bind) else api.bind
    return f"http://{f'[{address}]' if ':' in address else address}:{api.port}"


def fleet_keys(inventory: Inventory) -> tuple[Secret, ...]:
    """The fleet's keys on this machine, two while they are being rotated.

    Raises `InputError` if there is none.
    """
    if inventory.fleet.key_file is None:
        raise InputError(
            "the fleet is unsigned, so nothing that it says can be proved",
            hint="name a key file in fleet.key_file of the inventory",
        )
    return read_fleet_keys(expand_here(inventory.fleet.key_file))


def read_api_key(path: Path) -> Secret:
    """The API key in `path`. Raises `InputError` if it cannot be read or is no key."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise InputError(f"API key file {path} cannot be read: {error}") from error
    if not key.isprintable() or " " in key or not key:
        raise InputError(f"API key file {path} must hold one key and nothing else")
    return Secret(key.encode())


__all__ = ["app", "fleet_keys", "head_url", "read_api_key", "remote_prefill", "verify"]
