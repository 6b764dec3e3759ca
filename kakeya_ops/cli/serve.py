"""``kakeya serve``: the servers themselves, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from kakeya_ops.cli.completing import offer_served
from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.standard_input import stop_when_input_ends
from kakeya_ops.views.printer import Printer

app = typer.Typer(no_args_is_help=True)

HostArgument = Annotated[
    str | None,
    typer.Argument(
        help="The host in the inventory; default: the only one with this role.",
        metavar="HOST",
        show_default=False,
        autocompletion=offer_served,
    ),
]


SupervisedOption = Annotated[
    bool,
    typer.Option(
        "--supervised",
        help="Something starts this process again whenever it ends, as launchd does: "
        "when the model does not fit, stay up without it and say so, instead of ending.",
    ),
]


RevivedOption = Annotated[
    bool,
    typer.Option(
        "--revived", help="Something starts this process again when a drill has ended it, and gives up if it fails."
    ),
]


def _reason(text: str | None) -> str | None:
    """A blank reason is none."""
    return (text or "").strip() or None


ForceOption = Annotated[
    str | None,
    typer.Option(
        help="Load the model although it does not fit; the reason is logged.", metavar="REASON", callback=_reason
    ),
]


@app.callback()
def serve(
    ctx: typer.Context,
    stop_at_eof: Annotated[
        bool, typer.Option("--stop-at-eof", help="Stop also when standard input ends, as a pipe from a parent does.")
    ] = False,
) -> None:
    """Run one node of the fleet in this process, until SIGTERM or Ctrl-C.

    Examples:
        kakeya serve head
        kakeya serve worker allens
    """
    from kakeya_ops.serving.logs import set_up_logs

    set_up_logs(app_context(ctx).verbose)
    if stop_at_eof:
        stop_when_input_ends()


@app.command()
def worker(
    ctx: typer.Context,
    host: HostArgument = None,
    supervised: SupervisedOption = False,
    force: ForceOption = None,
    revived: RevivedOption = False,
) -> None:
    """Serve a worker: it loads the model, computes prefixes for heads, and keeps them.

    Exits with 1, and the figures, when the model does not fit this machine.

    Examples:
        kakeya serve worker allens
        kakeya serve worker --force 'only to try it'
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.serving.memory_gate import Admittance
    from kakeya_ops.serving.worker import serve_worker

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    with showing_why(context.printer):
        serve_worker(inventory, host, context.printer.note, Admittance(supervised, force, revived))


@app.command()
def head(
    ctx: typer.Context,
    host: HostArgument = None,
    supervised: SupervisedOption = False,
    force: ForceOption = None,
    revived: RevivedOption = False,
) -> None:
    """Serve a head: the OpenAI API, and every decode step.

    Exits with 1, and the figures, when the model does not fit this machine.

    Examples:
        kakeya serve head
        kakeya serve head mini --inventory two-macs.yaml
    """
    from kakeya_ops.dashboard.mount import dashboard
    from kakeya_ops.front.head_server import serve_head
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.serving.memory_gate import Admittance

    context = app_context(ctx)
    inventory = load_inventory(find_inventory(context.inventory_path))
    with showing_why(context.printer):
        serve_head(inventory, host, context.printer.note, Admittance(supervised, force, revived), dashboard)


@app.command()
def cache(
    ctx: typer.Context,
    host: HostArgument = None,
    identity: Annotated[
        Path | None,
        typer.Option(help="Identity document of the KV to keep; default: beside the fleet key.", metavar="FILE"),
    ] = None,
) -> None:
    """Serve a cache peer: it has no model and keeps what others computed.

    Examples:
        kakeya serve cache
    """
    from kakeya_ops.inventory import find_inventory, load_inventory
    from kakeya_ops.serving.cache import serve_cache

    context = app_context(ctx)
    serve_cache(load_inventory(find_inventory(context.inventory_path)), host, identity, context.printer.note)


@contextmanager
def showing_why(printer: Printer) -> Iterator[None]:
    """Show the figures of a verdict for which a node does not start; they are a message, not data."""
    from kakeya_ops.memory.assessment import DoesNotFit
    from kakeya_ops.views.memory_tables import assessment_view

    try:
        yield
    except DoesNotFit as error:
        for renderable in assessment_view(error.assessment):
            printer.messages.print(renderable)
        raise


__all__ = ["app", "cache", "head", "serve", "showing_why", "worker"]
