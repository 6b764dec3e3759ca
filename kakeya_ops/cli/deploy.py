"""``kakeya deploy``: bring hosts to what the inventory says, and prove that they are."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from kakeya_ops.cli.applying import Applying, ask, carry_out, load, open_hosts
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.deploy.apply import ApplySettings
from kakeya_ops.deploy.audit import read_history
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.plan import Plan, Planner
from kakeya_ops.deploy.report import describe_plan
from kakeya_ops.deploy.sources import read_material
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.errors import ExitCode, InputError
from kakeya_ops.views.deploy_tables import history_table, plan_view

TargetsArgument = Annotated[
    list[str], typer.Argument(help="Hosts or groups of the inventory, or all.", metavar="TARGET...", show_default=False)
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
    """
    context = app_context(ctx)
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts:
        if history:
            show_history(context, hosts, names)
            return
        plan = make_deploy_plan(context, hosts, names, force)
        if check or not plan.pending:
            context.printer.show(describe_plan(plan), *plan_view(plan))
            raise typer.Exit(_code_without_changes(plan))
        if not context.json:
            context.printer.show(None, *plan_view(plan))
        ask(context, Applying(yes=yes))
        settings = ApplySettings("deploy", parallel, not no_rollback, reason=force)
        carry_out(context, hosts, plan, settings, Applying(yes=True, cross_check=True))


def make_deploy_plan(context: AppContext, hosts: Hosts, names: tuple[str, ...], force: str | None) -> Plan:
    """Observe the hosts while this machine reads what it contributes; what is then to be done."""
    with context.printer.progress(f"reading {', '.join(names)}"), ThreadPoolExecutor(1) as thread:
        states = thread.submit(hosts.observe, names)
        planner = Planner(hosts.inventory, read_material(hosts.inventory), force=force)
        return planner.plan(states.result())


def show_history(context: AppContext, hosts: Hosts, names: tuple[str, ...]) -> None:
    """Show the audit logs of the hosts."""
    if not names:
        raise InputError("name the host whose history is wanted")
    histories = {name: read_history(hosts.runner(name), hosts.places(name)) for name in names}
    context.printer.show(histories, *(history_table(name, entries) for name, entries in histories.items()))


def _code_without_changes(plan: Plan) -> ExitCode:
    if plan.failures:
        codes = [error.exit_code for error in plan.failures.values()]
        return ExitCode.PARTIAL if plan.hosts else max(codes)
    return ExitCode.CHANGES_PENDING if plan.pending else ExitCode.OK


__all__ = ["ParallelOption", "TargetsArgument", "YesOption", "deploy", "make_deploy_plan", "show_history"]
