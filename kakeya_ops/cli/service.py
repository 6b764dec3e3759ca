"""``kakeya start``, ``stop``, ``restart``, ``rollback`` and ``undeploy``: what is done with what is installed."""

from __future__ import annotations

from typing import Annotated

import typer

from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import ParallelOption, TargetsArgument, YesOption


def start(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Start the installed service where it does not run, and wait until it is healthy.

    Examples:
        kakeya start allens
        kakeya start workers
    """
    from kakeya_ops.cli.deploying import run_action
    from kakeya_ops.deploy.apply import ApplySettings

    run_action(app_context(ctx), targets, ApplySettings("start", parallel), lambda actions: actions.start)


def stop(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Stop the service; it comes back with start, or when the user logs in the next time.

    Examples:
        kakeya stop allens
    """
    from kakeya_ops.cli.deploying import run_action
    from kakeya_ops.deploy.apply import ApplySettings

    run_action(app_context(ctx), targets, ApplySettings("stop", parallel), lambda actions: actions.stop)


def restart(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Stop the service, start it again, and wait until it is healthy.

    Examples:
        kakeya restart allens
        kakeya restart all --parallel 2
    """
    from kakeya_ops.cli.deploying import run_action
    from kakeya_ops.deploy.apply import ApplySettings

    run_action(app_context(ctx), targets, ApplySettings("restart", parallel), lambda actions: actions.restart)


def rollback(
    ctx: typer.Context, targets: TargetsArgument, yes: YesOption = False, parallel: ParallelOption = 4
) -> None:
    """Return to the generation before the current one, and prove it healthy.

    Examples:
        kakeya rollback allens
        kakeya rollback all --yes
    """
    from kakeya_ops.cli.applying import Applying
    from kakeya_ops.cli.deploying import run_action
    from kakeya_ops.deploy.apply import ApplySettings

    settings, asking = ApplySettings("rollback", parallel), Applying(yes, cross_check=True)
    run_action(app_context(ctx), targets, settings, lambda actions: actions.rollback, asking)


def undeploy(
    ctx: typer.Context,
    targets: TargetsArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the model, the fleet key and the audit log too.")
    ] = False,
    yes: YesOption = False,
    parallel: ParallelOption = 4,
) -> None:
    """Remove the service from hosts; model, fleet key and audit log stay.

    Examples:
        kakeya undeploy allens
        kakeya undeploy allens --purge --yes
    """
    from kakeya_ops.cli.applying import Applying
    from kakeya_ops.cli.deploying import run_action
    from kakeya_ops.deploy.apply import ApplySettings

    settings = ApplySettings("undeploy", parallel)
    run_action(app_context(ctx), targets, settings, lambda actions: actions.undeploy(purge), Applying(yes))


__all__ = ["restart", "rollback", "start", "stop", "undeploy"]
