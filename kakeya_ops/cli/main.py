"""The root of the command line: global options, the commands, and the one place that turns errors into words."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from kakeya_ops import __version__
from kakeya_ops.cli import (
    bench,
    demo,
    deploy,
    doctor,
    drill,
    explain,
    init,
    inventory,
    key,
    lock,
    logs,
    memory,
    quarantine,
    render,
    runbook,
    serve,
    service,
    status,
    verify,
)
from kakeya_ops.cli.context import AppContext, app_context
from kakeya_ops.cli.help import GLOBAL_OPTIONS, Command, Group
from kakeya_ops.errors import EnvironmentFault, ExitCode, KakeyaError
from kakeya_ops.spelling import did_you_mean
from kakeya_ops.views.printer import Printer

_FLAGS = frozenset(GLOBAL_OPTIONS) - {"--inventory"} | {"-v", "-vv"}
_DISK_FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Which are never a bug of the program that meets them."""


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


class RootGroup(Group):
    """The root command: global options anywhere, errors as sentences, exit codes as documented."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run as a program; that help or the version cannot be written is said too."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            Printer().error(_cannot_write(error))
            sys.exit(ExitCode.FAILED)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the global options; what is wrong with them is a document where ``--json`` is among them."""
        if extra.get("resilient_parsing"):
            return super().make_context(info_name, join_assignments(args), parent, **extra)
        wants_json = "--json" in hoist_global_options(list(args))
        try:
            return super().make_context(info_name, args, parent, **extra)
        except typer.TyperException as error:
            raise _wrong_usage(Printer(json=wants_json), error) from error

    def _main_shell_completion(self, ctx_args: Any, prog_name: str, complete_var: str | None = None) -> None:
        """Offer a shell what may come next; an error would stand in the middle of what is being typed."""
        try:
            super()._main_shell_completion(ctx_args, prog_name, complete_var)
        except Exception as error:
            raise SystemExit(ExitCode.OK) from error

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse `args` with the global options first."""
        return super().parse_args(ctx, hoist_global_options(args))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command called `cmd_name`; with ``--json``, one that shows no help instead of an error."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and ctx.params.get("json"):
            command.no_args_is_help = False
        return command

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what goes wrong on purpose ends in its exit code, anything else in that of a bug."""
        try:
            return super().invoke(ctx)
        except KakeyaError as error:
            _printer(ctx).error(error)
            raise typer.Exit(error.exit_code) from error
        except typer.TyperException as error:
            raise _wrong_usage(_printer(ctx), error) from error
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _DISK_FAULTS:
                _printer(ctx).error(fault := _cannot_write(error))
                raise typer.Exit(fault.exit_code) from error
            _printer(ctx).bug(error)
            raise typer.Exit(ExitCode.BUG) from error


def join_assignments(arguments: list[str]) -> list[str]:
    """`arguments` with ``--option``, ``=`` and its value as one word, which bash takes apart to complete it."""
    joined: list[str] = []
    for word in arguments:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _wrong_usage(printer: Printer, error: Exception) -> Exception:
    """What ends the command over a wrong command line, once that is said; help that was shown instead says enough."""
    if not (message := _message(error)):
        return error
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "kakeya"
    sentence = f"{message[0].lower()}{message[1:]}".removesuffix(".")
    printer.usage(" ".join(sentence.split()), f"{path} --help says how it is called")
    return typer.Exit(ExitCode.INPUT)


def _message(error: Any) -> str:
    if hasattr(error, "possibilities"):
        return f"there is no option {error.option_name}{did_you_mean(error.option_name, error.possibilities or ())}"
    return str(error.format_message())


def _printer(ctx: Any) -> Printer:
    """The command's printer; one as the options say where an error came before there was any."""
    return app_context(ctx).printer if ctx.obj else Printer(json=bool(ctx.params.get("json")))


def _cannot_write(error: OSError) -> EnvironmentFault:
    return EnvironmentFault(f"{error.filename or 'standard output'} cannot be written: {error.strerror or error}")


app = typer.Typer(
    cls=RootGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Global options may also stand after the command. "
    "Exit codes: 0 fine, 1 the answer is no, 2 wrong input, 3 could not be carried out, 4 done on some hosts only, "
    "5 changes pending, 70 a bug, 130 interrupted.",
)


def _show_version(ctx: typer.Context, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
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
    """A few Apple Silicon Macs as one private LLM service.

    Examples:
        kakeya demo
        kakeya init --host allens.local --model ~/kakeya-models/MODEL
        kakeya status --watch
        kakeya --install-completion
    """
    printer = Printer(json=json, color=not no_color, verbosity=verbose)
    ctx.obj = AppContext(inventory_path, json, verbose, printer)


_PANELS = {
    "Begin": (init.init, doctor.doctor, memory.memory, demo.demo, runbook.runbook),
    "Change": (
        deploy.deploy,
        render.render,
        service.rollback,
        service.undeploy,
        service.start,
        service.stop,
        service.restart,
    ),
    "Look": (status.status, logs.logs, explain.explain, bench.bench, drill.drill),
}
_GROUPS = {
    "Begin": (("inventory", inventory.app), ("key", key.app)),
    "Change": (("lock", lock.app), ("quarantine", quarantine.app)),
    "Look": (("verify", verify.app),),
    "Run": (("serve", serve.app),),
}
for _panel, _functions in _PANELS.items():
    for _function in _functions:
        app.command(cls=Command, rich_help_panel=_panel)(_function)
for _panel, _apps in _GROUPS.items():
    for _name, _app in _apps:
        for _command in _app.registered_commands:
            _command.cls = Command
        app.add_typer(_app, name=_name, cls=Group, rich_help_panel=_panel)


def run() -> None:
    """Entry point of the `kakeya` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character is no reason to fail.
            stream.reconfigure(errors="replace")
    try:
        app(prog_name="kakeya")
    finally:
        for stream in (sys.stdout, sys.stderr):
            _drop_unwritten(stream)


def _drop_unwritten(stream: TextIO) -> None:
    """Let go of what `stream` could not be given, which was told, so that Python does not fail over it at its end."""
    try:
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


__all__ = ["RootGroup", "app", "hoist_global_options", "join_assignments", "root", "run"]

if __name__ == "__main__":
    run()
