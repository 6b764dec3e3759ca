"""``kakeya start``, ``stop``, ``restart``, ``rollback`` and ``undeploy``: what is done with what is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from kakeya_ops.cli.applying import Applying, ask, carry_out, load, open_hosts
from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.deploy import ParallelOption, TargetsArgument, YesOption
from kakeya_ops.deploy.actions import Actions, PlanHost
from kakeya_ops.deploy.apply import ApplySettings
from kakeya_ops.deploy.report import describe_plan
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.views.deploy_tables import plan_view

Choose = Callable[[Actions], PlanHost]


def start(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Start the installed service where it does not run, and wait until it is healthy."""
    _act(ctx, targets, ApplySettings("start", parallel), lambda actions: actions.start)


def stop(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Stop the service; it comes back with start, or when the user logs in the next time."""
    _act(ctx, targets, ApplySettings("stop", parallel), lambda actions: actions.stop)


def restart(ctx: typer.Context, targets: TargetsArgument, parallel: ParallelOption = 4) -> None:
    """Stop the service, start it again, and wait until it is healthy."""
    _act(ctx, targets, ApplySettings("restart", parallel), lambda actions: actions.restart)


def rollback(
    ctx: typer.Context, targets: TargetsArgument, yes: YesOption = False, parallel: ParallelOption = 4
) -> None:
    """Return to the generation before the current one, and prove it healthy."""
    settings = ApplySettings("rollback", parallel)
    _act(ctx, targets, settings, lambda actions: actions.rollback, Applying(yes, True))


def undeploy(
    ctx: typer.Context,
    targets: TargetsArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the model, the fleet key and the audit log too.")
    ] = False,
    yes: YesOption = False,
    parallel: ParallelOption = 4,
) -> None:
    """Remove the service from hosts; model, fleet key and audit log stay."""
    settings = ApplySettings("undeploy", parallel)
    _act(ctx, targets, settings, lambda actions: actions.undeploy(purge), Applying(yes))


def _act(
    ctx: typer.Context, targets: list[str], settings: ApplySettings, choose: Choose, asking: Applying | None = None
) -> None:
    context = app_context(ctx)
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts:
        actions = Actions(inventory, hosts.asker, hosts.runner)
        with context.printer.progress(f"reading {', '.join(names)}"):
            plan = actions.plan(hosts.observe(names), choose(actions))
        if asking is not None and plan.pending:
            if not context.json:
                context.printer.show(describe_plan(plan), *plan_view(plan))
            ask(context, asking)
        carry_out(context, hosts, plan, settings, asking or Applying(yes=True))


__all__ = ["restart", "rollback", "start", "stop", "undeploy"]
