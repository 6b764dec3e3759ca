"""``kakeya serve``: the servers themselves, in this process."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.inventory import find_inventory, load_inventory
from kakeya_ops.serving.log_limit import BoundedStderr

app = typer.Typer(help="Run one node of the fleet in this process, until SIGTERM or Ctrl-C.", no_args_is_help=True)

HostArgument = Annotated[
    str | None,
    typer.Argument(help="The host in the inventory; default: the only one with this role.", show_default=False),
]


@app.callback()
def serve(ctx: typer.Context) -> None:
    """Run one node of the fleet in this process, until SIGTERM or Ctrl-C."""
    level = (
        logging.DEBUG if app_context(ctx).verbose > 1 else logging.INFO if app_context(ctx).verbose else logging.WARNING
    )
    form = "%(asctime)s %(levelname)s %(name)s: %(message)s"
    logging.basicConfig(level=level, format=form, handlers=[BoundedStderr()])


@app.command()
def worker(ctx: typer.Context, host: HostArgument = None) -> None:
    """Serve a worker: it loads the model, computes prefixes for heads, and keeps them."""
    from kakeya_ops.serving.worker import serve_worker

    context = app_context(ctx)
    serve_worker(load_inventory(find_inventory(context.inventory_path)), host, context.printer.note)


@app.command()
def head(ctx: typer.Context, host: HostArgument = None) -> None:
    """Serve a head: the OpenAI API, and every decode step."""
    from kakeya_ops.front.head_server import serve_head

    context = app_context(ctx)
    serve_head(load_inventory(find_inventory(context.inventory_path)), host, context.printer.note)


@app.command()
def cache(
    ctx: typer.Context,
    host: HostArgument = None,
    identity: Annotated[
        Path | None,
        typer.Option(help="Identity document of the KV to keep; default: beside the fleet key.", metavar="FILE"),
    ] = None,
) -> None:
    """Serve a cache peer: it has no model and keeps what others computed."""
    from kakeya_ops.serving.cache import serve_cache

    context = app_context(ctx)
    serve_cache(load_inventory(find_inventory(context.inventory_path)), host, identity, context.printer.note)


__all__ = ["app", "cache", "head", "serve", "worker"]
