"""``kakeya logs``: what a host's service wrote."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import HostArgument
from kakeya_ops.views.printer import visible


def logs(
    ctx: typer.Context,
    host: HostArgument,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.", metavar="N")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is added, until Ctrl-C.")] = False,
) -> None:
    """Show the end of a service's log, with secrets taken out.

    On a terminal the servers' events are shown as words; elsewhere every line is as it was written.

    Examples:
        kakeya logs allens
        kakeya logs head -f
        kakeya --json logs allens -n 500
    """
    from kakeya_ops.cli.reading import load, open_hosts
    from kakeya_ops.deploy.service_log import LogFollower, tail_log
    from kakeya_ops.views.log_lines import log_line

    context = app_context(ctx)
    render = log_line if context.printer.out.is_terminal else _as_written
    inventory = load(context)
    inventory.host(host)
    with open_hosts(context, inventory) as hosts:
        with context.printer.progress(f"reaching {host}"):
            runner, places = hosts.runner(host), hosts.places(host)
        if not follow:
            written = tail_log(runner, places, hosts.asker.key, lines).split("\n")
            context.printer.show({"host": host, "lines": written}, *map(render, written))
            return
        for line in LogFollower(runner, places, hosts.asker.key).lines(lines):
            if context.json:
                context.printer.raw(visible(line))
            else:
                context.printer.show(None, render(line))


def _as_written(line: str) -> Text:
    return Text(visible(line))


__all__ = ["logs"]
