"""What ``kakeya deploy`` and the commands for installed services do, apart from their options.

A module of its own because it imports nearly everything, which ``kakeya --help`` need not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import typer

from kakeya_ops.cli.applying import Applying, ask, carry_out, load, open_hosts
from kakeya_ops.cli.context import AppContext
from kakeya_ops.deploy.actions import Actions, PlanHost
from kakeya_ops.deploy.apply import ApplySettings
from kakeya_ops.deploy.audit import read_history
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.plan import Plan, Planner
from kakeya_ops.deploy.report import describe_plan
from kakeya_ops.deploy.sources import read_material
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.errors import ExitCode
from kakeya_ops.views.deploy_tables import history_table, plan_view

Choose = Callable[[Actions], PlanHost]


@dataclass(frozen=True)
class DeployOptions:
    """The options of ``kakeya deploy``; `force` is the reason for which a gate is overruled."""

    check: bool
    yes: bool
    parallel: int
    force: str | None
    rollback: bool


def run_deploy(context: AppContext, targets: Sequence[str], options: DeployOptions) -> None:
    """Observe, plan, show, ask, apply, prove. Ends the command with its exit code."""
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts:
        plan = make_deploy_plan(context, hosts, names, options.force)
        if options.check or not plan.pending:
            context.printer.show(describe_plan(plan), *plan_view(plan))
            raise typer.Exit(_code_without_changes(plan))
        _show_plan(context, plan)
        ask(context, Applying(yes=options.yes))
        settings = ApplySettings("deploy", options.parallel, options.rollback, reason=options.force)
        carry_out(context, hosts, plan, settings, Applying(yes=True, cross_check=True))


def run_action(
    context: AppContext, targets: Sequence[str], settings: ApplySettings, choose: Choose, asking: Applying | None = None
) -> None:
    """Do one of `Actions` on the hosts that `targets` name; with `asking` the plan is shown and agreed on first."""
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts:
        actions = Actions(inventory, hosts.asker, hosts.runner)
        with context.printer.progress(f"reading {', '.join(names)}"):
            plan = actions.plan(hosts.observe(names), choose(actions))
        if asking is not None and plan.pending:
            _show_plan(context, plan)
            ask(context, asking)
        carry_out(context, hosts, plan, settings, asking or Applying(yes=True))


def show_history(context: AppContext, targets: Sequence[str]) -> None:
    """Show the audit logs of the hosts."""
    inventory = load(context)
    names = select_hosts(inventory, targets)
    with open_hosts(context, inventory) as hosts:
        histories = {name: read_history(hosts.runner(name), hosts.places(name)) for name in names}
    context.printer.show(histories, *(history_table(name, entries) for name, entries in histories.items()))


def make_deploy_plan(context: AppContext, hosts: Hosts, names: tuple[str, ...], force: str | None) -> Plan:
    """Observe the hosts while this machine reads what it contributes; what is then to be done."""
    with context.printer.progress(f"reading {', '.join(names)}"), ThreadPoolExecutor(1) as thread:
        states = thread.submit(hosts.observe, names)
        planner = Planner(hosts.inventory, read_material(hosts.inventory), force=force)
        return planner.plan(states.result())


def _show_plan(context: AppContext, plan: Plan) -> None:
    """For people only: a JSON document is the outcome, and there is one."""
    if not context.json:
        context.printer.show(None, *plan_view(plan))


def _code_without_changes(plan: Plan) -> ExitCode:
    if plan.failures:
        codes = [error.exit_code for error in plan.failures.values()]
        return ExitCode.PARTIAL if plan.hosts else max(codes)
    return ExitCode.CHANGES_PENDING if plan.pending else ExitCode.OK


__all__ = ["Choose", "DeployOptions", "make_deploy_plan", "run_action", "run_deploy", "show_history"]
