"""``kakeya deploy``: bring hosts to what the inventory says, and prove that they are."""

from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.completing import offer_hosts, offer_targets
from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.importing import importing

TargetsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Hosts or groups of the inventory, or all.",
        metavar="TARGET",
        show_default=False,
        autocompletion=offer_targets,
    ),
]
HostArgument = Annotated[
    str, typer.Argument(help="The host in the inventory.", metavar="HOST", autocompletion=offer_hosts)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ParallelOption = Annotated[int, typer.Option(min=1, max=64, help="Hosts at once, after the first.", metavar="N")]


def deploy(
    ctx: typer.Context,
    targets: TargetsArgument,
    check: Annotated[bool, typer.Option("--check", help="Show what would be done, and do nothing.")] = False,
    yes: YesOption = False,
    parallel: ParallelOption = 4,
    force: Annotated[
        str | None,
        typer.Option(help="Deploy although a gate refuses; the reason is noted on the host.", metavar="REASON"),
    ] = None,
    no_rollback: Annotated[
        bool, typer.Option("--no-rollback", help="Leave a host as it is when a step fails, to look at it.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Show what was done to the hosts so far, and do nothing.")
    ] = False,
) -> None:
    """Install the service on hosts over SSH, prove it healthy, and take it back where that fails.

    Exits with 0 when every host is what it shall be, 4 when only some are, 5 when --check finds something to do.

    Examples:
        kakeya deploy all --check
        kakeya deploy all
        kakeya deploy workers --yes --parallel 2
        kakeya deploy allens --force 'nothing else runs there'
        kakeya deploy allens --history
    """
    with importing():
        from kakeya_ops.cli.reading import reading

    if history:
        from kakeya_ops.cli.deploying import show_history

        show_history(app_context(ctx), targets)
        return
    with reading(app_context(ctx), targets) as found:
        with importing():
            from kakeya_ops.cli.deploying import DeployOptions, run_deploy

        options = DeployOptions(check, yes, parallel, (force or "").strip() or None, not no_rollback)
        run_deploy(app_context(ctx), found, options)


__all__ = ["HostArgument", "ParallelOption", "TargetsArgument", "YesOption", "deploy"]
