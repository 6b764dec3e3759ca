"""The root of the command line: global options, the commands, and the one place that turns errors into words."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kakeya_ops import __version__
from kakeya_ops.cli import (
    demo,
    deploy,
    explain,
    inventory,
    key,
    lock,
    logs,
    memory,
    render,
    serve,
    service,
    status,
    verify,
)
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.errors import ExitCode, KakeyaError
from kakeya_ops.views.printer import Printer

_FLAGS = frozenset({"--json", "--no-color", "--verbose", "-v", "-vv"})


def hoist_global_options(arguments: list[str]) -> list[str]:
    """`arguments` with the global options in front, so that they may stand anywhere before a ``--``."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments[:end])
    for word in words:
        if word in _FLAGS or word.startswith("--inventory="):
            front.append(word)
        elif word == "--inventory":
            front += [word, *([value] if (value := next(words, None)) is not None else [])]
        else:
            rest.append(word)
    return [*front, *rest, *arguments[end:]]


class RootGroup(TyperGroup):
    """The root command: global options anywhere, errors as sentences, exit codes as documented."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args` with the global options first."""
        return super().parse_args(ctx, hoist_global_options(args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what goes wrong on purpose ends in its exit code, anything else in that of a bug."""
        try:
            return super().invoke(ctx)
        except KakeyaError as error:
            app_context(ctx).printer.error(error)
            raise typer.Exit(error.exit_code) from error
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise
        except Exception as error:
            app_context(ctx).printer.bug(error)
            raise typer.Exit(ExitCode.BUG) from error


app = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Global options may also stand after the command. "
    "Exit codes: 0 fine, 1 the answer is no, 2 wrong input, 3 could not be carried out, 4 done on some hosts only, "
    "5 changes pending, 70 a bug, 130 interrupted.",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kakeya {__version__}")
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    inventory_path: Annotated[
        Path | None,
        typer.Option(
            "--inventory",
            help="Inventory file; default: $KAKEYA_INVENTORY, ./inventory.yaml, then the user's configuration folder.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Say more; twice: tracebacks too.", show_default=False)
    ] = 0,
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; NO_COLOR does the same.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """A few Apple Silicon Macs as one private LLM service."""
    printer = Printer(json=json, color=not no_color, verbosity=verbose)
    ctx.obj = AppContext(inventory_path, json, verbose, printer)


app.command()(demo.demo)
app.command()(explain.explain)
app.command()(memory.memory)
app.command()(deploy.deploy)
app.command()(render.render)
app.command()(service.rollback)
app.command()(service.undeploy)
app.command()(service.start)
app.command()(service.stop)
app.command()(service.restart)
app.command()(logs.logs)
app.command()(status.status)
app.add_typer(key.app, name="key")
app.add_typer(lock.app, name="lock")
app.add_typer(verify.app, name="verify")
app.add_typer(serve.app, name="serve")
app.add_typer(inventory.app, name="inventory")


def run() -> None:
    """Entry point of the `kakeya` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character is no reason to fail.
            stream.reconfigure(errors="replace")
    app(prog_name="kakeya")


__all__ = ["RootGroup", "app", "hoist_global_options", "root", "run"]

if __name__ == "__main__":
    run()
