"""Writes the page of all commands, ``docs/cli.md``, from the commands themselves: ``make docs``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from kakeya_ops.cli.main import app

_PROGRAM = "kakeya"
_INTRODUCTION = "Made by `make docs` from the commands themselves; a change is made there."
_SHARED = frozenset({"help", "install_completion", "show_completion"})


def render_reference(application: typer.Typer) -> str:
    """The Markdown page about `application`: for each command what it does, its usage, arguments and options."""
    root: Any = get_command(application)
    sections = (section for command in _walk(root, None, _PROGRAM) for section in _sections(*command))
    return "\n\n".join(["# Commands", _INTRODUCTION, *sections]) + "\n"


def _walk(command: Any, parent: Any, name: str) -> Iterator[tuple[Any, Any]]:
    """Each command at and below `command`, with its context."""
    context = command.context_class(command, info_name=name, parent=parent)
    yield command, context
    for child_name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, context, child_name)


def _sections(command: Any, context: Any) -> Iterator[str]:
    yield f"## `{context.command_path}`"
    yield command.help or ""
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```"
    rows = [_row(parameter, context) for parameter in command.params if parameter.name not in _SHARED]
    if rows:
        yield "\n".join(["| argument or option | meaning |", "|---|---|", *rows])
    yield "\n".join(["```console", *(f"$ {example}" for example in command.examples), "```"])
    if command.remarks:
        yield command.remarks


def _row(parameter: Any, context: Any) -> str:
    names, text = (cell.replace("|", "\\|") for cell in parameter.get_help_record(context))
    return f"| `{names}` | {text} |"


__all__ = ["render_reference"]

if __name__ == "__main__":
    typer.echo(render_reference(app), nl=False)
