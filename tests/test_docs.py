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
LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?: \"[^\"]*\")?\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
SOURCES = sorted((ROOT / "kakeya_ops").rglob("*.py"))
NAMED = re.compile(r"\b(docs/[\w/.-]+?\.md)(?:#([\w-]+))?")


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


def anchors(text: str) -> set[str]:
    """The anchors of a page as GitHub makes them of its headings: lower case, hyphens for spaces, no other signs."""
    found: set[str] = set()
    for heading in HEADING.findall(re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        found.add(next(name for name in (slug, *(f"{slug}-{count}" for count in range(1, 99))) if name not in found))
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """The links of `text`, which is that of `page`, that lead nowhere within the repository."""
    broken = []
    for target in LINK.findall(CODE.sub("", text)):
        place, _, anchor = target.partition("#")
        if "://" in place or place.startswith("mailto:"):
            continue
        led = page.parent / place if place else page
        if not led.exists() or (anchor and anchor not in anchors(led.read_text())):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


def test_links_of_runbooks_lead_somewhere_also_where_they_are_templates() -> None:
    for template in (ROOT / "runbooks").glob("*.md.j2"):
        assert broken_links(template, template.read_text()) == [], template.name


@pytest.mark.parametrize("target", ["gone.md", "README.md#no-such-part", "#no-such-part", "docs/cli.md#kakeya-statsu"])
def test_a_link_that_leads_nowhere_is_found(target: str) -> None:
    assert broken_links(ROOT / "README.md", f"see [there]({target})") == [target]


def test_anchors_are_those_of_github() -> None:
    text = "# `kakeya`: *What* it does, and why?\n## Two\n```\n# none\n```\n## Two\n### [A](b.md) link\n"
    assert anchors(text) == {"kakeya-what-it-does-and-why", "two", "two-1", "a-link"}


def test_pages_that_messages_name_exist() -> None:
    named = {place for source in SOURCES for place in NAMED.findall(source.read_text())}
    assert ("docs/doctor.md", "") in named
    assert [place for place, _ in named if not (ROOT / place).exists()] == []
    known = {place: anchors((ROOT / place).read_text()) for place, _ in named}
    assert [f"{place}#{name}" for place, name in named if name and name not in known[place]] == []
