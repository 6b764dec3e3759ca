"""Every command of every runbook, as it is printed for this fleet, in order, on a simulated Mac behind real SSH."""

from __future__ import annotations

import pytest

from flows_deploy.deployed import Fleet
from flows_deploy.test_command_line import Terminal, fleet, kakeya
from kakeya_ops.runbook import Page, list_pages, read_commands, render_page

__all__ = ["fleet", "kakeya"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", autouse=True)
def _deployed(kakeya: Terminal) -> None:
    kakeya("deploy", "vault", "--yes")


@pytest.mark.parametrize("page", list_pages(), ids=lambda page: page.name)
def test_every_command_of_a_runbook_does_what_the_page_states(page: Page, kakeya: Terminal, fleet: Fleet) -> None:
    for command in read_commands(render_page(page.name, fleet.inventory, "vault")):
        result = kakeya.run(*command.words[1:])
        assert command.words[0] == "kakeya"
        assert result.exit_code in command.codes, (command, result.output)
        assert command.is_shown_in(result.output), (command, result.output)
