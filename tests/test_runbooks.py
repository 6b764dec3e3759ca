"""The runbooks and the readme show commands that exist, on an inventory that is valid, and output as it is printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command

from deploy.states import bare, material, settled
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.actions import Actions
from kakeya_ops.deploy.model_sync import ModelCopy, ModelFile
from kakeya_ops.deploy.plan import HostPlan, Plan, Planner
from kakeya_ops.deploy.program import WheelProgram
from kakeya_ops.deploy.wheel import Wheel
from kakeya_ops.inventory import load_inventory
from kakeya_ops.observe.node import Asker
from kakeya_ops.runbook import list_pages, read_commands, render_page
from kakeya_ops.views.deploy_tables import check_table, plan_view, result_table

ROOT = Path(__file__).parents[1]
RUNBOOKS = ROOT / "runbooks"
TASKS = sorted(page for page in RUNBOOKS.glob("*.md") if page.name != "README.md")
PAGES = [ROOT / "README.md", *TASKS]
TWO_MACS = RUNBOOKS / "two-macs.yaml"

BLOCK = re.compile(r"^```(?:console|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (kakeya .+)$", re.MULTILINE)
STEP = re.compile(r"^ +[0-9]+\. (.+)$", re.MULTILINE)
DONE = re.compile(r"^  allens: (.+) \([0-9.]+ m?s\)$", re.MULTILINE)
VARYING = re.compile(r"[0-9a-f]{12}|[0-9.]+ [KMG]?i?B|gui/[0-9]+|(?<=venv of )[^)]+")


def shown(page: Path) -> str:
    """All that a page shows of a terminal."""
    return "\n".join(BLOCK.findall(page.read_text()))


def unvarying(titles: Iterator[str] | list[str]) -> list[str]:
    """Titles without what is another in every fleet."""
    return [VARYING.sub("…", title) for title in titles]


def parse(words: list[str]) -> None:
    """Read a command line as far as that can be done without running it."""
    command: Any = get_command(app)
    context = command.make_context("kakeya", words[1:])
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)


@dataclass(frozen=True)
class NoSource:
    """Something to deploy, of which nothing is asked but its name."""

    digest: str = "0" * 64
    requirements: tuple[str, ...] = ()

    def wheel(self) -> Wheel:
        raise AssertionError


def make_planner() -> Planner:
    model = ModelCopy({"config.json": ModelFile(Path("config.json"), 1, "0" * 64)})
    return Planner(load_inventory(TWO_MACS), material(program=WheelProgram(NoSource(), ""), model=model))


def plan_titles(plan: HostPlan) -> list[str]:
    """The steps as `kakeya deploy` prints them."""
    lines = [part.plain for part in plan_view(Plan((plan,))) if isinstance(part, Text)]
    return unvarying(STEP.findall("\n".join(lines)))


PLANNER = make_planner()
FIRST = plan_titles(PLANNER.plan_host(PLANNER.inventory.host("allens"), bare("allens")))
GONE = [
    step.title
    for step in Actions(PLANNER.inventory, Asker(None, "tests"), lambda name: None)  # type: ignore[arg-type, return-value]
    .undeploy(False)("allens", settled(PLANNER, "allens"))
    .steps
]
CHANGE = plan_titles(PLANNER.plan_host(PLANNER.inventory.host("allens"), settled(PLANNER, "allens", plist=b"<plist/>")))


@pytest.mark.parametrize("page", TASKS, ids=lambda page: page.name)
def test_a_page_has_its_five_parts(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", page.read_text(), re.MULTILINE)
    assert headings == ["When", "Check", "Do", "Undo", "Still broken?"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_one(page: Path) -> None:
    commands = COMMAND.findall(shown(page))
    assert commands
    for command in commands:
        parse(shlex.split(command, comments=True))


@pytest.mark.parametrize("name", [page.name for page in list_pages()])
def test_every_command_of_a_page_for_a_fleet_is_one(name: str) -> None:
    """Also those that stand in a sentence, which nobody runs: of these, ``…`` and names in capitals are left open."""
    page = render_page(name, load_inventory(TWO_MACS))
    in_blocks = [command.words for command in read_commands(page) if command.words[0] == "kakeya"]
    inline = re.findall(r"`(kakeya [^`]+)`", re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE))
    assert in_blocks
    for words in [*map(list, in_blocks), *map(shlex.split, inline)]:
        parse(words)


def test_the_list_of_runbooks_names_every_page() -> None:
    listed = re.findall(r"^\| \[[a-z-]+\]\(([a-z-]+)\.md\.j2\) \|", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in list_pages()]


def test_the_reading_of_commands_can_fail() -> None:
    for wrong in ("kakeya deploy", "kakeya deploy allens --chek", "kakeya lock free allens"):
        with pytest.raises(Exception, match=r"(?i)missing|no such|there is no"):
            parse(shlex.split(wrong))


def test_the_fleet_of_the_runbooks_is_the_founding_one_but_for_the_model() -> None:
    fleet, founding = load_inventory(TWO_MACS), load_inventory(ROOT / "inventory.yaml")
    for name, host in founding.hosts.items():
        ours = fleet.hosts[name]
        assert (ours.role, ours.memory_gb, ours.endpoints[0]) == (host.role, host.memory_gb, host.endpoints[0])
    assert fleet.model.path != founding.model.path
    assert fleet.model.sync


def test_the_plan_that_is_shown_is_the_one_that_is_made() -> None:
    assert unvarying(STEP.findall(shown(RUNBOOKS / "deploy.md")))[: len(FIRST)] == FIRST


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_steps_and_tables_are_as_they_are_printed(page: Path) -> None:
    text = shown(page)
    told = unvarying([*STEP.findall(text), *DONE.findall(text)])
    assert set(told) <= {*FIRST, *CHANGE, *unvarying(GONE)}
    for table in (result_table([]), check_table([])):
        headings = [str(column.header) for column in table.columns]
        for line in text.splitlines():
            if line.split()[:2] == headings[:2]:
                assert line.split() == headings


def test_what_is_done_is_shown() -> None:
    done = unvarying(DONE.findall(shown(RUNBOOKS / "deploy.md")))
    assert set(FIRST[1:-1]) <= set(done)
