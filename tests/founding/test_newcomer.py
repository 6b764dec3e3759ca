"""What hosts are called, and what is read of a Mac."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from founding.macs import newcomer
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.founding.newcomer import Invitation, make_label, read_newcomer
from kakeya_ops.inventory.fields import _label
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost


@pytest.mark.parametrize(
    ("text", "name", "ssh"),
    [
        ("allens.local", "allens", "allens.local"),
        ("fluffy@Mac-Studio.local", "mac-studio", "fluffy@Mac-Studio.local"),
        ("worker=10.0.0.7", "worker", "10.0.0.7"),
        ("Big Mac=studio", "big-mac", "studio"),
    ],
)
def test_an_invitation_is_a_name_and_a_target(text: str, name: str, ssh: str) -> None:
    assert Invitation.parse(text) == Invitation(name, ssh)


@pytest.mark.parametrize("text", ["", "=x", "allens=", "...", "@"])
def test_what_names_no_host_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Invitation.parse(text)


@given(st.text())
def test_every_label_that_is_made_is_one(text: str) -> None:
    try:
        label = make_label(text)
    except InputError:
        return
    assert label == "all" or _label(label) == label


def test_a_mac_is_read_in_one_call(mac: MacHost) -> None:
    found = read_newcomer(LocalRunner("allens"), Invitation("allens", "allens.local"))
    assert (found.name, found.chip, found.memory_gb) == ("allens", "Apple M4", 16.0)
    assert (found.address("bridge"), found.address("en"), found.address("lo")) == ("169.254.10.2", "192.0.2.10", None)


def test_a_host_that_does_not_know_its_user_is_none(mac: MacHost) -> None:
    mac.add_tool("id", "#!/bin/sh\nexit 1\n")
    with pytest.raises(EnvironmentFault, match="does not tell who its user is"):
        read_newcomer(LocalRunner("allens"), Invitation("allens", "allens.local"))


def test_a_mac_without_a_bridge_has_no_such_address() -> None:
    assert newcomer("allens", interfaces={}).address("bridge") is None
