"""From names to files, on one simulated Mac that all the names lead to."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kakeya_ops.errors import ConnectFailed, EnvironmentFault, InputError
from kakeya_ops.founding import Choices, Founding, Invitation, make_key, write_inventory
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.runner import Runner
from mac.host import MacHost

PAIR = (Invitation("head", "here"), Invitation("allens", "there"))


def open_runner(invitation: Invitation) -> Runner:
    return LocalRunner(invitation.name)


def test_every_mac_is_read_and_measured(mac: MacHost, tiny_llama: Path) -> None:
    mac.set(bridge_address="127.0.0.1")
    proposal = Founding(open_runner, pytest.fail).propose(PAIR, Choices("home", str(tiny_llama), "head"))
    assert [member.role for member in proposal.members] == ["head", "worker"]
    [cable, lan] = proposal.lines["allens"]
    assert (cable.address, cable.rtt_seconds, cable.bytes_per_second is not None) == ("127.0.0.1", 0.000512, True)
    assert lan.rtt_seconds is None


def test_a_model_that_is_not_here_is_told_once(mac: MacHost) -> None:
    told: list[str] = []
    Founding(open_runner, told.append).propose(PAIR, Choices("home", "~/no/such", "head"), measure=False)
    assert len(told) == 1
    assert told[0].startswith("roles are not judged by memory: ")


def test_one_mac_that_cannot_be_reached_ends_it(mac: MacHost) -> None:
    def refuse(invitation: Invitation) -> Runner:
        if invitation.name == "allens":
            raise ConnectFailed("allens", "Connection refused")
        return open_runner(invitation)

    with pytest.raises(ConnectFailed):
        Founding(refuse, pytest.fail).propose(PAIR, Choices("home", "~/m", "head"), measure=False)


def test_two_hosts_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="the same name"):
        Founding(open_runner, pytest.fail).propose((PAIR[0], PAIR[0]), Choices("home", "~/m", "head"))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    write_inventory(path, "first")
    with pytest.raises(InputError, match="never overwritten"):
        write_inventory(path, "second")
    assert path.read_text() == "first"
    with pytest.raises(EnvironmentFault):
        write_inventory(tmp_path / "no/such/folder.yaml", "x")
    assert [one.name for one in tmp_path.iterdir()] == ["inventory.yaml"]


def test_a_key_is_made_once(tmp_path: Path) -> None:
    path = tmp_path / "keys/fleet.key"
    assert make_key(str(path), "home")
    before = path.read_bytes()
    assert not make_key(str(path), "home")
    assert path.with_name("fleet.key.authority.pem").is_file()
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (before, 0o600)
