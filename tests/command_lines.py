"""Command lines in documents and in messages, read by the real command line's parser without running anything."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer import TyperException
from typer.main import get_command

from kakeya_ops.cli.help import GLOBAL_OPTIONS
from kakeya_ops.cli.main import app

ROOT: Any = get_command(app)
TARGETS = re.compile(r"^([a-z-]+):", re.MULTILINE)
MAKEFILE = Path(__file__).parents[1] / "Makefile"
_AT_ONCE = frozenset({"--help", "--version", "--install-completion", "--show-completion"})
"""Options that act while they are read."""
_OPERATORS = frozenset("|&;<>()")


def read_line(line: str) -> Iterator[list[str]]:
    """The commands of one line of a shell, without their comments and where their output goes."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    command: list[str] = []
    redirected = False
    for word in words:
        if not set(word) <= _OPERATORS:
            if not redirected:
                command.append(word)
            redirected = False
        elif word in (">", ">>", "<"):
            redirected = True
        else:
            yield command
            command = []
    yield command


def parse(words: list[str]) -> None:
    """Read a whole command of ours as far as that can be done without running it. Raises what the parser raises."""
    command: Any = ROOT
    given = [word for word in words[1:] if word not in _AT_ONCE]
    if not given:
        return
    context = command.make_context("kakeya", given)
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


def fault_of(words: list[str]) -> str | None:
    """What is wrong with one command of a document; None where nothing is, or it is no command of ours."""
    program = words[0].rpartition("/")[2] if words else ""
    if program == "make":
        unknown = [word for word in words[1:] if "=" not in word and word not in TARGETS.findall(MAKEFILE.read_text())]
        return f"make has no {unknown}" if unknown else None
    if program != "kakeya":
        return None
    try:
        parse(words)
    except TyperException as error:
        return f"{' '.join(words)}: {getattr(error, 'message', '') or error!r}"
    return None


def fault_in_prose(text: str) -> str | None:
    """What is wrong with a command of ours that a sentence names, perhaps without its arguments."""
    command, words = ROOT, text.split()[1:]
    while words and words[0] in GLOBAL_OPTIONS:
        words = words[2 if words[0] == "--inventory" else 1 :]
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return f"there is no command {words[0]} in {text!r}"
        command = command.commands[words.pop(0)]
    known = {option for one in (command, ROOT) for parameter in one.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts} | {"-h", "--help"}
    unknown = [word for word in (word.rstrip(".,;:)") for word in words) if re.fullmatch(r"--?[a-z][a-z-]*", word)]
    unknown = [word for word in unknown if word not in known and not re.fullmatch(r"-[a-z]+", word)]
    return f"there is no option {unknown[0]} in {text!r}" if unknown else None


__all__ = ["ROOT", "fault_in_prose", "fault_of", "parse", "read_line"]
