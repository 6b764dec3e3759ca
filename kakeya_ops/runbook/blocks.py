"""The commands of a page, each with what the page states of it: its exit code, and lines of its output."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_BLOCK = re.compile(r"^```console\n(.*?)^```\n(?:\n\*Exits with ([^*]+)\*)?", re.DOTALL | re.MULTILINE)
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Command:
    """`output` are lines that must be printed in this order, where ``…`` stands for anything.

    `codes` are the exit codes that the page says below a block, whose last command it means; 0 alone for others.
    """

    words: tuple[str, ...]
    output: tuple[str, ...]
    codes: tuple[int, ...] = (0,)

    def is_shown_in(self, printed: str) -> bool:
        """Whether `printed` has all of `output`, in this order."""
        pattern = ".*".join(_pattern(line) for line in self.output)
        return re.search(pattern, printed, re.DOTALL) is not None


def read_commands(page: str) -> tuple[Command, ...]:
    """Every command of a page, in order. A line that begins with ``$`` is one, and what follows is its output."""
    found: list[Command] = []
    for block, said in _BLOCK.findall(page):
        parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
        for number, part in enumerate(parts, 1):
            line, *output = part.rstrip("\n").split("\n")
            codes = tuple(map(int, re.findall(r"\d+", said))) if number == len(parts) else ()
            shown = tuple(one.strip() for one in output if one.strip() not in ("", _ELLIPSIS))
            found.append(Command(tuple(shlex.split(line)), shown, codes or (0,)))
    return tuple(found)


def _pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(part).replace(r"\ ", r"\s+") for part in line.split(_ELLIPSIS))


__all__ = ["Command", "read_commands"]
