from __future__ import annotations

import typer
from typer.testing import CliRunner

from kakeya_ops.cli.context import AppContext, app_context


def test_a_command_run_by_itself_gets_the_defaults() -> None:
    app = typer.Typer()
    seen = []

    @app.command()
    def work(ctx: typer.Context) -> None:
        seen.append(app_context(ctx))

    assert CliRunner().invoke(app, []).exit_code == 0
    ((context),) = seen
    assert (context.inventory_path, context.json, context.verbose) == (None, False, 0)


def test_the_root_commands_context_is_handed_on() -> None:
    app = typer.Typer()
    given = AppContext(json=True)
    seen = []

    @app.command()
    def work(ctx: typer.Context) -> None:
        seen.append(app_context(ctx))

    assert CliRunner().invoke(app, [], obj=given).exit_code == 0
    assert seen == [given]
