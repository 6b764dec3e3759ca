"""The pages, with a fleet's own values in them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.states import inventory
from kakeya_ops.errors import InputError
from kakeya_ops.inventory import load_inventory
from kakeya_ops.runbook.blocks import Command, Edit, read_commands, read_steps
from kakeya_ops.runbook.pages import PARTS, Page, list_pages, render_page

PAGES = list_pages()
ROOT = Path(__file__).parents[2]
ALONE = """
fleet: {name: alone}
model: {path: ~/models/tiny}
hosts: {solo: {role: head, api: {bind: 127.0.0.1, port: 8080}}}
"""
HOSTILE_HOST = "-oProxyCommand=touch x; $(id) `id` '\" ``` {{ 7 * 7 }}"
HOSTILE_PATH = '~/models/it\'s $(id) "x" `id`'
HOSTILE = f"""
fleet: {{name: hostile}}
model: {{id: {json.dumps(HOSTILE_HOST)}, path: {json.dumps(HOSTILE_PATH)}}}
hosts:
  head: {{role: head, api: {{bind: 127.0.0.1, port: 8080}}, ssh: {{host: {json.dumps(HOSTILE_HOST)}}}}}
  0--x-:
    role: worker
    ssh: {{host: {json.dumps(HOSTILE_HOST)}}}
    endpoints: [{{network: "`", address: 192.0.2.1, port: 1}}]
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_its_five_parts_and_this_fleet_s_names(page: Page) -> None:
    about = "head" if page.name in ("head-down", "change-the-model") else "boris"
    text = render_page(page.name, inventory(), about)
    assert tuple(re.findall(r"^## (.+)$", text, re.MULTILINE)) == PARTS
    assert about in text
    assert "allens" not in text or page.name == "first-fleet"
    assert "{" not in page.title
    assert "{{" not in text
    assert max(map(len, text.split("\n"))) <= 130
    assert "\n\n\n" not in text
    assert read_commands(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_is_there_for_the_committed_inventory(page: Page) -> None:
    text = render_page(page.name, load_inventory(ROOT / "inventory.yaml"))
    assert max(map(len, text.split("\n"))) <= 130


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_fleet_of_one_host_has_the_pages_that_are_about_it(page: Page) -> None:
    alone = inventory(ALONE)
    about_others = {"move-to-cache-only", "slow-link", "worker-down", "wrong-output-suspected"}
    if page.name not in about_others:
        text = render_page(page.name, alone)
        assert "verify remote-prefill\n" not in text
        return
    with pytest.raises(InputError, match=r"the inventory has no worker.*which the runbook") as caught:
        render_page(page.name, alone)
    assert "add-a-worker" in (caught.value.hint or "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_that_an_inventory_may_say_breaks_out_of_a_page(page: Page) -> None:
    benign = HOSTILE.replace(json.dumps(HOSTILE_HOST), "mac").replace(json.dumps(HOSTILE_PATH), "~/models/tiny")
    about = "head" if page.name == "head-down" else "0--x-"
    text, usual = (render_page(page.name, inventory(one), about) for one in (HOSTILE, benign))
    steps, expected = read_steps(text), read_steps(usual)
    assert len(steps) == len(expected)
    for step, like in zip(steps, expected, strict=True):
        if isinstance(step, Edit):
            assert as_usual(yaml.safe_load(step.text)) == yaml.safe_load(like.text if isinstance(like, Edit) else "")
        else:
            assert isinstance(like, Command)
            assert as_usual([word for word in step.words if word != "--"]) == list(like.words)


def as_usual(value: Any) -> Any:
    """`value` with what is usual in the place of what is hostile."""
    if isinstance(value, dict):
        return {name: as_usual(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_usual(one) for one in value]
    return (
        value.replace(HOSTILE_HOST, "mac").replace(HOSTILE_PATH, "~/models/tiny") if isinstance(value, str) else value
    )


def test_a_host_of_another_role_is_refused() -> None:
    with pytest.raises(InputError, match="head is a head, and the runbook worker-down is about a worker or a cache"):
        render_page("worker-down", inventory(), "head")


def test_a_worker_may_be_added_that_the_inventory_does_not_know() -> None:
    (change,) = (
        step for step in read_steps(render_page("add-a-worker", inventory(), "dora")) if isinstance(step, Edit)
    )
    assert yaml.safe_load(change.text)["hosts"]["dora"]["endpoints"][0]["address"] == "dora.local"
    assert "new-worker" in render_page("add-a-worker", inventory())
    with pytest.raises(InputError, match=r"'A B' cannot be the name of a host: it must be"):
        render_page("add-a-worker", inventory(), "A B")


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
