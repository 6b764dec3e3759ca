"""The documents say what the program does, and lead where they point."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from kakeya_ops.cli.main import app
from kakeya_ops.cli.reference import render_reference

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "runbooks", "templates") for page in (ROOT / folder).rglob("*.md")),
    ]
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command at and below `command`, with the words that call it."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{path} {name}")


COMMANDS = dict(commands(get_command(app), "kakeya"))


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    command = COMMANDS[path]
    assert command.help
    assert [parameter.name for parameter in command.params if not getattr(parameter, "help", "")] == []


def test_the_command_reference_is_the_one_that_make_docs_writes() -> None:
    assert (ROOT / "docs/cli.md").read_text() == render_reference(app), "run: make docs"


def test_every_command_is_in_the_reference() -> None:
    described = set(re.findall(r"^## `(.+)`$", (ROOT / "docs/cli.md").read_text(), re.MULTILINE))
    assert described == set(COMMANDS), "run: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    targets = [target.partition("#")[0] for target in LINK.findall(page.read_text())]
    broken = [target for target in targets if target and "://" not in target and not (page.parent / target).exists()]
    assert broken == []
