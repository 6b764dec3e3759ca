"""``kakeya verify``: proof that the fleet does what it is for."""

from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.asking_the_head import ApiKeyFileOption, UrlOption, fleet_keys, head_url, read_api_key
from kakeya_ops.cli.completing import offer_workers
from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import ExitCode

app = typer.Typer(no_args_is_help=True)


@app.callback()
def verify() -> None:
    """Prove that the fleet does what it is for.

    Examples:
        kakeya verify remote-prefill
    """


@app.command("remote-prefill")
def remote_prefill(
    ctx: typer.Context,
    min_tokens: Annotated[int, typer.Option(min=1, help="Length of the probe's prompt, at least.", metavar="N")] = 128,
    worker: Annotated[
        str | None,
        typer.Option(help="Accept only this worker as proof.", metavar="NODE", autocompletion=offer_workers),
    ] = None,
    url: UrlOption = None,
    api_key_file: ApiKeyFileOption = None,
) -> None:
    """Prove that a worker computes, ships and serves the KV that the head decodes from.

    Exits with 0 when every check is ok, 1 when one is not, 3 when the head cannot be reached.

    Examples:
        kakeya verify remote-prefill
        kakeya verify remote-prefill --worker allens --min-tokens 1024
        kakeya --json verify remote-prefill --url http://head.local:8080
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.verify.probe import ProbeOptions, run_probe
    from kakeya_ops.views.tables import checks_table, verdict_line

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    options = ProbeOptions(
        url=head_url(inventory, url),
        fleet_keys=fleet_keys(inventory),
        min_tokens=min_tokens,
        worker=worker,
        api_key=read_api_key(api_key_file),
    )
    with context.printer.progress(f"asking {options.url}") as tell:
        report = run_probe(options, tell)
    context.printer.show(report.to_json(), checks_table(report), verdict_line(report))
    raise typer.Exit(ExitCode.OK if report.passed else ExitCode.NO)


__all__ = ["app", "remote_prefill", "verify"]
