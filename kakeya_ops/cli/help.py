"""How commands tell of themselves: paragraphs that fit any width, examples at the end, and what a slip may have meant.

The docstring of a command is its help. Its last paragraph may be ``Examples:`` with a command a line below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from inspect import cleandoc
from typing import Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from kakeya_ops.spelling import did_you_mean

GLOBAL_OPTIONS = ("--inventory", "--json", "--verbose", "--no-color")
"""Those of the root command that may stand after any other."""
_EXAMPLES = "Examples:"
_ITEM = "- "


def split_help(text: str) -> tuple[str, tuple[str, ...]]:
    """The help in `text` with a line for each paragraph and each item of a list, and the commands of its examples."""
    *above, last = cleandoc(text).split("\n\n")
    if not last.startswith(_EXAMPLES):
        return "\n\n".join(map(_flow, [*above, last])), ()
    commands = (line.strip() for line in last.removeprefix(_EXAMPLES).splitlines())
    return "\n\n".join(map(_flow, above)), tuple(command for command in commands if command)


def _flow(paragraph: str) -> str:
    """One line for each item, or for all of it: how wide a line may be, only the terminal knows."""
    return "".join(_flowing(paragraph.splitlines())).strip()


def _flowing(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield f"\n{line}" if line.startswith(_ITEM) else f" {line.strip()}"


class _Telling:
    """What commands and groups have in common."""

    examples: tuple[str, ...] = ()
    """Commands that show how it is used."""
    remarks: str = ""
    """What is said below them."""

    def tell(self, help: str | None, epilog: str | None) -> dict[str, Any]:
        """The texts that Typer shows, from those that were given."""
        told, self.examples = split_help(help or "")
        self.remarks = epilog or ""
        shown = "\n".join([_EXAMPLES, *(f"$ {example}" for example in self.examples)]) if self.examples else ""
        return {"help": told, "epilog": "\n\n".join(filter(None, [shown, epilog])) or None}

    def get_params(self, ctx: Any) -> list[Any]:
        """All parameters; one that takes no value is not shown as if it did, nor that a word is a ``str``."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if isinstance(parameter, TyperArgument):
                parameter.display_type_rich = _no_type  # type: ignore[method-assign]
            elif parameter.is_flag or parameter.count:
                parameter.metavar = ""
        return parameters

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line as manual pages write them: ``HOST``, ``[HOST]``, ``HOST...``."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece[1:].replace("}", "", 1) if piece.startswith("{") else piece for piece in pieces]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """What may come next; among options also the global ones, which may stand anywhere."""
        offers: list[Any] = super().shell_complete(ctx, incomplete)  # type: ignore[misc]
        root = ctx.find_root()
        if incomplete.startswith("-") and ctx is not root:
            offers += [
                offer for offer in root.command.shell_complete(root, incomplete) if offer.value in GLOBAL_OPTIONS
            ]
        return offers


def _no_type(ctx: Any) -> None:
    return None


class Command(_Telling, TyperCommand):
    """A command."""

    def __init__(self, name: str | None, *, help: str | None = None, epilog: str | None = None, **more: Any) -> None:
        super().__init__(name, **self.tell(help, epilog), **more)


class Group(_Telling, TyperGroup):
    """A command that is only the front of others."""

    def __init__(self, *, help: str | None = None, epilog: str | None = None, **more: Any) -> None:
        super().__init__(**self.tell(help, epilog), **more)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that `args` begin with; for one that does not exist it is said which is near."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"there is no command {name!r}{did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)


__all__ = ["GLOBAL_OPTIONS", "Command", "Group", "split_help"]
