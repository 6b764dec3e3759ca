"""What all commands that change hosts have in common: observe, show, ask, apply, show again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import typer

from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.giving_up import giving_up
from kakeya_ops.deploy.apply import Application, ApplySettings, HostResult
from kakeya_ops.deploy.cross_check import Check, CrossCheck
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.plan import Plan
from kakeya_ops.deploy.report import describe_results, exit_code
from kakeya_ops.errors import ExitCode, InputError
from kakeya_ops.views.deploy_screen import deploy_screen
from kakeya_ops.views.deploy_tables import check_table, failure_view, result_table


@dataclass(frozen=True)
class Applying:
    """How a plan is carried out: without a question, with the checks between nodes afterwards."""

    yes: bool = False
    cross_check: bool = False
    question: str = "Do this?"


def ask(context: AppContext, applying: Applying) -> None:
    """Ask whether to go on. Raises `InputError` where nobody can be asked, and ends the command on a no."""
    if applying.yes:
        return
    if not sys.stdin.isatty():
        raise InputError("nobody can be asked here: standard input is no terminal", hint="say --yes, or --check")
    if not typer.confirm(applying.question, err=True):
        context.printer.note("nothing was changed")
        raise typer.Exit(ExitCode.NO)


def carry_out(
    context: AppContext, hosts: Hosts, plan: Plan, settings: ApplySettings, applying: Applying
) -> Sequence[HostResult]:
    """Apply `plan`, show what became of it, and end the command with the exit code that says so."""
    with deploy_screen(context.printer) as screen:
        application = Application(hosts.runner, screen, replace(settings, key=hosts.asker.key))
        with giving_up(application.cancelled, context.printer.note):
            results = application.run(plan)
    checks: list[Check] = []
    interrupted = application.cancelled.is_set()
    if applying.cross_check and not interrupted and (done := [r.host for r in results if r.verdict == "done"]):
        with context.printer.progress("checking every card against the heads'"):
            checks = CrossCheck(hosts).run(done)
    tables = [result_table(results), *([check_table(checks)] if checks else [])]
    context.printer.show(describe_results(results, checks), *tables)
    for renderable in failure_view(results):
        context.printer.messages.print(renderable)
    code = exit_code(results, checks, interrupted=interrupted)
    if code is not ExitCode.OK:
        raise typer.Exit(code)
    return results


__all__ = ["Applying", "ask", "carry_out"]
