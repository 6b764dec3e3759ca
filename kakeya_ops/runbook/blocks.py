"""What a page has one do, in order: commands, each with what the page states of it, and changes of the inventory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(console|yaml)\n(.*?)^```\n(?:\n\*Exits ([^*]+)\*)?", re.DOTALL | re.MULTILINE)
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


@dataclass(frozen=True)
class Edit:
    """Keys of the inventory, as YAML, with the values that the page wants them to have."""

    text: str


def read_steps(page: str) -> tuple[Command | Edit, ...]:
    """Everything to be done, in order.

    A line of a console block that begins with ``$`` is a command, gone on with below where it ends with a backslash,
    and what follows is its output; a block of YAML is a change of the inventory.
    """
    found: list[Command | Edit] = []
    for language, block, said in _BLOCK.findall(page):
        found += [Edit(block)] if language == "yaml" else _read_commands(block, said)
    return tuple(found)


def read_commands(page: str) -> tuple[Command, ...]:
    """The commands among `read_steps`."""
    return tuple(step for step in read_steps(page) if isinstance(step, Command))


def _read_commands(block: str, said: str) -> Iterator[Command]:
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    for number, part in enumerate(parts, 1):
        line, *output = part.replace("\\\n", " ").rstrip("\n").split("\n")
        codes = tuple(map(int, re.findall(r"with (\d+)", said))) if number == len(parts) else ()
        shown = tuple(one.strip() for one in output if one.strip() not in ("", _ELLIPSIS))
        yield Command(tuple(shlex.split(line)), shown, codes or (0,))


def _pattern(line: str) -> str:
    return r"[^\n]*".join(re.escape(part).replace(r"\ ", r"\s+") for part in line.split(_ELLIPSIS))


__all__ = ["Command", "Edit", "read_commands", "read_steps"]
