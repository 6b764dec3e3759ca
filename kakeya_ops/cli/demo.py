"""``kakeya demo``: a whole fleet on this machine, with proof."""

from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.errors import ExitCode


def demo(
    ctx: typer.Context,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the fleet running until Ctrl-C.")] = False,
    model: Annotated[
        str | None,
        typer.Option(help="An MLX model directory, or smollm2; default: a tiny one made now.", metavar="DIR|smollm2"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="The API's port; default: any free one.", metavar="N")
    ] = None,
) -> None:
    """Start a head and a worker here, ask a question, and prove that the worker computed its prefix.

    Needs no Mac and no download. Exits with 0 when every check of the probe is ok, and leaves nothing behind.

    Examples:
        kakeya demo
        kakeya demo --keep --port 8080
    """
    from kakeya_ops.demo.run import DemoOptions, run_demo
    from kakeya_ops.settings import own_command
    from kakeya_ops.views.demo import DemoScreen

    report = run_demo(DemoOptions(model, port, keep), DemoScreen(app_context(ctx).printer, own_command()))
    raise typer.Exit(ExitCode.OK if report.passed else ExitCode.NO)


__all__ = ["demo"]
