"""What ``kakeya key rotate`` does."""

from __future__ import annotations

import typer

from kakeya_ops.cli.applying import Applying, ask
from kakeya_ops.cli.context import AppContext
from kakeya_ops.cli.giving_up import giving_up
from kakeya_ops.cli.reading import load, open_hosts
from kakeya_ops.deploy.apply import Application, ApplySettings
from kakeya_ops.deploy.cross_check import Check, CrossCheck
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.key_rotation import Pass, Pending, Rotation
from kakeya_ops.deploy.report import describe_results, exit_code
from kakeya_ops.errors import ExitCode
from kakeya_ops.views.deploy_screen import deploy_screen
from kakeya_ops.views.deploy_tables import check_table, failure_view, result_table


def run_rotation(context: AppContext, *, yes: bool) -> None:
    """Replace the fleet key on all hosts, or go on with what was interrupted, and show how it went."""
    inventory = load(context)
    pending = Pending.of(inventory)
    what = "go on replacing" if pending.exists else "replace"
    question = f"{what} the fleet key on {', '.join(inventory.hosts)}, restarting every node up to three times?"
    ask(context, Applying(yes, question=question.capitalize()))
    with open_hosts(context, inventory) as hosts:
        passes, interrupted = _rotate(context, hosts, pending)
        good = all(done.good for done in passes)
        with context.printer.progress("checking every card against the heads'"):
            checks = CrossCheck(hosts).run(inventory.hosts) if good else []
    _show(context, passes, checks)
    code = exit_code(passes[-1].results, checks, interrupted=interrupted)
    if not good:
        context.printer.note(_how_to_go_on(pending, interrupted=interrupted))
    if code is not ExitCode.OK:
        raise typer.Exit(code)


def _rotate(context: AppContext, hosts: Hosts, pending: Pending) -> tuple[list[Pass], bool]:
    keys = pending.begin()
    with deploy_screen(context.printer) as screen:
        settings = ApplySettings("key rotate", parallel=1, key=keys.new)
        application = Application(hosts.runner, screen, settings)
        passes = []
        with giving_up(application.cancelled, context.printer.note):
            for done in Rotation(hosts, pending, keys, application.run).run():
                passes.append(done)
                context.printer.note(f"  {done.title}: {'on every host' if done.good else 'not on every host'}")
    return passes, application.cancelled.is_set()


def _how_to_go_on(pending: Pending, *, interrupted: bool) -> str:
    what = "interrupted before all hosts had the new key" if interrupted else "not all hosts have the new key"
    return f"{what}; nodes take both until then. {pending.path} keeps them. Go on with: kakeya key rotate"


def _show(context: AppContext, passes: list[Pass], checks: list[Check]) -> None:
    document = {
        "passes": [{"state": done.state.name, **describe_results(done.results, ())} for done in passes],
        "checks": describe_results((), checks)["checks"],
    }
    tables = [result_table(passes[-1].results), *([check_table(checks)] if checks else [])]
    context.printer.show(document, *tables)
    for renderable in failure_view(passes[-1].results):
        context.printer.messages.print(renderable)


__all__ = ["run_rotation"]
