"""The pages, with a fleet's own values in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.states import inventory
from kakeya_ops.errors import InputError
from kakeya_ops.runbook.blocks import read_commands
from kakeya_ops.runbook.pages import PARTS, Page, list_pages, render_page

PAGES = list_pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_its_five_parts_and_this_fleet_s_names(page: Page) -> None:
    text = render_page(page.name, inventory(), "boris")
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == PARTS
    assert "boris" in text
    assert "allens" not in text
    assert "{{" not in text
    assert max(map(len, text.split("\n"))) <= 160
    assert read_commands(text)


def test_the_first_worker_is_meant_where_nobody_is_named() -> None:
    assert "kakeya restart allens" in render_page("worker-down", inventory())


def test_a_file_that_was_named_is_in_every_command() -> None:
    text = render_page("worker-down", inventory(), inventory_file=Path("/a b/fleet.yaml"))
    for command in read_commands(text):
        assert command.words[:3] == ("kakeya", "--inventory", "/a b/fleet.yaml")


def test_a_page_that_does_not_exist_is_answered_with_what_was_meant() -> None:
    with pytest.raises(InputError, match="worker-down") as caught:
        render_page("worker-dwn", inventory())
    assert "after-a-reboot" in (caught.value.hint or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_that_a_page_names_exists(page: Page) -> None:
    named = set(re.findall(r"kakeya runbook ([a-z-]+)", render_page(page.name, inventory())))
    assert named <= {one.name for one in PAGES}
