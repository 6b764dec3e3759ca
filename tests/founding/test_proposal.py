"""Who does what, and the file that says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from founding.macs import CHOICES, newcomer
from kakeya_ops.errors import InventoryError
from kakeya_ops.founding.newcomer import Invitation
from kakeya_ops.founding.proposal import Ports, Proposal, propose
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.memory.assessment import read_model


def read(proposal: Proposal) -> Inventory:
    return parse_inventory(proposal.render().encode(), "inventory.yaml")


def test_the_file_says_what_was_read(tiny_llama: Path) -> None:
    model = read_model(tiny_llama)
    proposal = propose([newcomer("head", 24), newcomer("allens", 16, "fluffy@allens.local")], CHOICES, model)
    inventory = read(proposal)
    assert {name: host.role for name, host in inventory.hosts.items()} == {"head": "head", "allens": "worker"}
    allens = inventory.host("allens")
    assert (allens.ssh_host, allens.ssh.user, allens.memory_gb) == ("allens.local", "fluffy", 16.0)
    cable, lan = allens.endpoints
    assert (cable.network, cable.address, cable.trusted, cable.port) == ("thunderbolt", "169.254.10.2", True, 53051)
    assert (lan.network, lan.trusted, lan.priority) == ("lan", False, 50)
    assert inventory.host("head").endpoints[0].port == 51051
    assert inventory.host("head").api is not None
    assert "role: worker # the model fits" in proposal.render()


def test_ports_and_interpreter_are_those_that_were_chosen() -> None:
    choices = replace(CHOICES, python="/opt/homebrew/bin/python3.12", ports=Ports(api=8081, head=51052, others=53052))
    inventory = read(propose([newcomer("head"), newcomer("allens")], choices, None))
    head, allens = inventory.host("head"), inventory.host("allens")
    assert head.api is not None
    assert (head.api.port, head.endpoints[0].port, allens.endpoints[0].port) == (8081, 51052, 53052)
    assert {head.python, allens.python} == {"/opt/homebrew/bin/python3.12"}


def test_a_mac_that_the_model_does_not_fit_becomes_a_cache_peer(tiny_llama: Path) -> None:
    members = propose([newcomer("head", 24), newcomer("old", 4)], CHOICES, read_model(tiny_llama)).members
    assert [member.role for member in members] == ["head", "cache"]
    assert members[1].reason.startswith("as a worker the model does not fit")


def test_without_a_model_here_nothing_is_claimed() -> None:
    members = propose([newcomer("head"), newcomer("allens")], CHOICES, None).members
    assert [member.role for member in members] == ["head", "worker"]
    assert members[1].reason == "there is no model here to judge by"


def test_a_worker_without_an_address_is_refused_with_its_name() -> None:
    with pytest.raises(InventoryError) as caught:
        propose([newcomer("head"), newcomer("allens", interfaces={})], CHOICES, None)
    assert "allens" in caught.value.faults[0].path


@settings(max_examples=30)
@given(chip=st.text(), user=st.text(min_size=1), path=st.text())
def test_nothing_that_a_mac_says_changes_the_file_s_meaning(chip: str, user: str, path: str) -> None:
    odd = newcomer("allens", chip=chip, invitation=Invitation("allens", f"{user}@h"))
    proposal = Proposal(replace(CHOICES, model_path=f"~/{path}"), propose([newcomer("head")], CHOICES, None).members)
    member = replace(proposal.members[0], newcomer=odd, role="worker", reason=chip)
    whole = replace(proposal, members=(*proposal.members, member))
    try:
        inventory = read(whole)
    except InventoryError:
        return  # not a path or a user that an inventory may have
    assert set(inventory.hosts) == {"head", "allens"}
    assert inventory.model.path == f"~/{path}"
    assert inventory.host("allens").ssh.user == user
