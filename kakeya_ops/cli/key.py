"""``kakeya key``: the fleet key."""

from __future__ import annotations

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import YesOption

app = typer.Typer(help="The key that the fleet's nodes know each other by.", no_args_is_help=True)


@app.callback()
def key() -> None:
    """The key that the fleet's nodes know each other by."""


@app.command()
def rotate(ctx: typer.Context, yes: YesOption = False) -> None:
    """Replace the fleet key on all hosts while the fleet serves; both keys are accepted until all have the new one.

    Every node is restarted three times, one node after the other. What was interrupted is gone on with by another run.
    """
    from kakeya_ops.cli.rotating import run_rotation

    run_rotation(app_context(ctx), yes=yes)


__all__ = ["app", "key", "rotate"]
