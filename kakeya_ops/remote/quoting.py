"""The one place where a command becomes text that a shell reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kakeya_ops.errors import InputError

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@+-]+")
_QUOTED_APART = {"'": """'"'"'""", "\\": """'"\\\\"'"""}


def quote_command(argv: Sequence[str]) -> str:
    """`argv` as a command line that sh, bash, zsh and fish all read as exactly `argv`.

    `shlex.join` is not enough for login shells: zsh takes a word that begins with ``=`` for the path of a program,
    every shell takes a first word with ``=`` in it for an assignment, and fish unescapes a backslash between single
    quotes. Raises `InputError` if no shell can express `argv`.
    """
    return " ".join(_quote(argument) for argument in check_argv(argv))


def check_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` itself. Raises `InputError` if no system can run it: nothing, an empty first word, a NUL."""
    if isinstance(argv, str) or not argv or not argv[0]:
        raise InputError("a command must have at least a name, as the first of its words")
    if any("\0" in argument for argument in argv):
        raise InputError(f"{argv[0]}: a word of a command cannot hold a NUL character")
    return tuple(argv)


def _quote(argument: str) -> str:
    if _PLAIN.fullmatch(argument):
        return argument
    return "'" + re.sub(r"['\\]", lambda match: _QUOTED_APART[match[0]], argument) + "'"


__all__ = ["check_argv", "quote_command"]
