"""A service's arguments carry every option that its server takes."""

from __future__ import annotations

import plistlib
from typing import Any

import pytest
from typer.main import get_command

from deploy.states import PLANNER_INVENTORY, bare, desired, inventory, material
from deploy.states import planner as make_planner
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.desired import ABOUT, IDENTITY, INVENTORY, PLIST, make_desired
from kakeya_ops.inventory import parse_inventory

NOT_RENDERED = {
    "revived": "launchd starts it again, which --supervised says",
    "help": "no service asks for it",
    "version": "no service asks for it",
    "json": "servers print no documents",
    "install_completion": "for shells of people",
    "show_completion": "for shells of people",
    "verbose": "the log's level is the default",
    "no_color": "a log is no terminal",
}
"""Options that no property list carries, and why."""


def options(role: str) -> set[str]:
    root: Any = get_command(app)
    return {p.name for command in (root, root.commands["serve"].commands[role]) for p in command.params}


@pytest.mark.parametrize(("role", "name"), [("head", "head"), ("worker", "allens"), ("cache", "vault")])
def test_every_option_of_the_server_is_rendered_or_exempt(role: str, name: str) -> None:
    wanted = desired(make_planner(), name)
    words = wanted.service.arguments
    carried = {
        "inventory_path": f"{wanted.folder}/{INVENTORY}" == words[words.index("--inventory") + 1],
        "host": words[words.index("serve") + 1 :][:2] == (role, name),
        "identity": role != "cache" or words[words.index("--identity") + 1] == wanted.places.identity,
        "supervised": role == "cache" or "--supervised" in words,
        "force": "--force" not in words,
    }
    assert options(role) - set(NOT_RENDERED) <= set(carried), "a new option: render it, or say why not"
    assert all(carried.values())
    assert plistlib.loads(wanted.plist)["ProgramArguments"] == list(words)


def test_a_service_that_was_forced_starts_by_force_and_says_why() -> None:
    fleet = inventory()
    forced = make_desired(fleet, fleet.host("allens"), bare("allens"), material(), forced="it is my Mac")
    words = plistlib.loads(forced.plist)["ProgramArguments"]
    assert words[-3:] == ["--supervised", "--force", "it is my Mac"]
    assert forced.generation != desired(make_planner(), "allens").generation


def test_sleep_environment_and_domain_are_the_inventory_s() -> None:
    text = PLANNER_INVENTORY.replace("role: worker\n", "role: worker\n    prevent_sleep: true\n", 1)
    text = text.replace("role: head\n", "role: head\n    domain: user\n    environment: {TZ: UTC, A: '<&>'}\n", 1)
    fleet = parse_inventory(text.encode(), "x")
    worker = make_desired(fleet, fleet.host("allens"), bare("allens"), material())
    assert plistlib.loads(worker.plist)["ProgramArguments"][:2] == ["/usr/bin/caffeinate", "-i"]
    head = make_desired(fleet, fleet.host("head"), bare("head"), material())
    document = plistlib.loads(head.plist)
    assert document["EnvironmentVariables"] == {"TZ": "UTC", "A": "<&>"}
    assert document["LimitLoadToSessionType"] == "Background"
    assert document["ExitTimeOut"] > 10


def test_a_generation_holds_what_returning_to_it_needs() -> None:
    wanted = desired(make_planner(), "allens")
    files = dict(wanted.files(material()))
    assert set(files) == {INVENTORY, PLIST, IDENTITY, ABOUT}
    assert parse_inventory(files[INVENTORY], "copy").host("allens").endpoints == inventory().host("allens").endpoints


def test_no_secret_is_in_what_is_installed() -> None:
    made = material()
    assert made.key is not None
    for name in inventory().hosts:
        for _, data in desired(make_planner(), name).files(made):
            assert made.key.reveal().hex().encode() not in data
