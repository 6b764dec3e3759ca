"""What ``kakeya deploy`` and the commands for installed services do, apart from their options.

A module of its own because it imports nearly everything, which ``kakeya --help`` need not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer

from kakeya_ops.cli.applying import Applying, ask, carry_out
from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.reading import Reading, load, open_hosts
from kakeya_ops.deploy.actions import Actions, PlanHost
from kakeya_ops.deploy.apply import ApplySettings
from kakeya_ops.deploy.audit import read_history
from kakeya_ops.deploy.memory_gate import assess_states, gate_of, read_planned_model
from kakeya_ops.deploy.plan import Plan, Planner
from kakeya_ops.deploy.program import find_program
from kakeya_ops.deploy.report import describe_plan
from kakeya_ops.deploy.sources import read_material
from kakeya_ops.deploy.targets import select_hosts
from kakeya_ops.errors import ExitCode, RefusedError
from kakeya_ops.memory.assessment import Assessment
from kakeya_ops.memory.report import describe_assessment
from kakeya_ops.views.deploy_tables import history_view, plan_view
from kakeya_ops.views.memory_tables import assessment_view

Choose = Callable[[Actions], PlanHost]


@dataclass(frozen=True)
class DeployOptions:
    """The options of ``kakeya deploy``; `force` is the reason for which a gate is overruled."""

    check: bool
    yes: bool
    parallel: int
    force: str | None
    rollback: bool


def run_deploy(context: AppContext, found: Reading, options: DeployOptions) -> None:
    """Plan, show, ask, apply, prove. Ends the command with its exit code."""
    plan = make_deploy_plan(context, found, options.force)
    if options.check or not plan.pending:
        context.printer.show(describe_plan(plan), *plan_view(plan))
        raise typer.Exit(_code_without_changes(plan))
    _show_plan(context, plan)
    _ask_about(context, plan, options)
    settings = ApplySettings("deploy", options.parallel, options.rollback, reason=options.force)
    carry_out(context, found.hosts, plan, settings, Applying(yes=True, cross_check=True))


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
    with context.printer.progress(f"reading {', '.join(names)}"), open_hosts(context, inventory) as hosts:
        histories = {name: read_history(hosts.runner(name), hosts.places(name)) for name in names}
    views = [history_view(name, entries) for name, entries in histories.items()]
    context.printer.show(histories, *(renderable for view in views for renderable in view))


def make_deploy_plan(context: AppContext, found: Reading, force: str | None) -> Plan:
    """Assess the hosts that are being read; then what is to be done on them.

    Raises `RefusedError`, the figures shown, when the model does not fit one of them, unless there is a reason to
    `force` it: before anything that takes long, or changes anything, is begun.
    """
    inventory = found.hosts.inventory
    with context.printer.progress(f"reading {', '.join(found.names)}"):
        model = read_planned_model(inventory, found.names)
        program = find_program()
        states = found.states.result()
        assessments = assess_states(inventory, states, model)
    if force is None:
        _refuse(context, [found for found in assessments.values() if found.verdict.refuses])
    with context.printer.progress("reading what is to be deployed"):
        planner = Planner(inventory, read_material(inventory, program), gate_of(assessments), force)
    return planner.plan(states)


def _refuse(context: AppContext, refused: Sequence[Assessment]) -> None:
    """All or nothing: a fleet without one of its hosts is not what was asked for."""
    if not refused:
        return
    document = {"refused": {one.host: describe_assessment(one) for one in refused}}
    context.printer.show(document, *(part for one in refused for part in assessment_view(one)))
    hosts = "; ".join(f"{one.host} as a {one.question.load.role} {one.summary}" for one in refused)
    raise RefusedError(
        f"{hosts}; nothing was changed",
        hint="change the inventory, or say --force REASON, which is noted on the host",
    )


def _ask_about(context: AppContext, plan: Plan, options: DeployOptions) -> None:
    """Ask whether to go on, and name the hosts on which memory may not be enough; --yes has heard it."""
    doubtful = {host.host.name: host.gate for host in plan.pending if host.gate and host.gate.answer != "fits"}
    for name, verdict in doubtful.items():
        context.printer.warn(f"{name}: memory: {verdict.record(options.force)}")
    question = f"Do this, although memory is in doubt on {', '.join(doubtful)}?" if doubtful else "Do this?"
    ask(context, Applying(yes=options.yes, question=question))


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
