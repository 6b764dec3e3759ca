"""Hosts asked as over SSH: each is this machine with a simulated launchd in front."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from deploy.states import KEY, inventory
from flows_deploy.deployed import machine
from kakeya_ops.errors import RemoteError
from kakeya_ops.inventory import Inventory, ResolvedHost, parse_inventory
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.connect import connect
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.runner import Runner
from kakeya_ops.status.asking import SUMMARY_PATH, PeerAnswer
from kakeya_ops.status.board import Heard, Look
from kakeya_ops.status.judging import Moment, judge
from kakeya_ops.status.remote_asking import HostAnswer, HostDoor, wants_api, wants_ssh
from kakeya_ops.status.value import NodeStatus
from mac.host import MacHost
from status.samples import AT, NOW
from verify.scripted_head import ScriptedHead, serve

FLEET = inventory()
START = "fleet: {name: f}\nmodel: {path: /m}\nhosts:\n  head: {role: head, api: {port: 1}}\n"


def door(fleet: Inventory = FLEET, name: str = "allens") -> HostDoor:
    def open_here(host: ResolvedHost) -> LocalRunner:
        return LocalRunner(host.name)

    return HostDoor(fleet, fleet.host(name), Asker(KEY, "ours"), open_here)


def shown(answer: HostAnswer) -> NodeStatus:
    """The node of a host of which nothing but `answer` is known."""
    heard = {name: Heard(peer=Look[PeerAnswer]().fail("no route")) for name in FLEET.hosts}
    heard["allens"] = heard["allens"].with_look("ssh", Look[HostAnswer]().succeed(answer))
    return judge(FLEET, heard, Moment(NOW, AT)).node("allens")


def test_a_host_without_the_service_says_so(mac: MacHost) -> None:
    node = shown(door().ask(None))
    assert (node.service.state, node.service.pid) == ("no service", None)
    assert node.problems == ("unreachable: nothing answers on its own host, and it is not reached from here: no route",)


def test_a_running_service_has_its_pid(mac: MacHost) -> None:
    label = Places.of(FLEET, FLEET.host("allens"), str(mac.home)).label
    mac.preload({"Label": label, "ProgramArguments": ["/bin/sleep", "100"], "RunAtLoad": True}, "user")
    answer = door().ask(None)
    assert answer.state.job is not None
    assert answer.state.job.service.pid is not None
    node = shown(answer)
    assert (node.service.state, node.service.pid) == ("running", answer.state.job.service.pid)
    # A service is not health: its process is no node.
    assert not node.serves


def test_an_api_on_the_hosts_own_loopback_is_asked_there(mac: MacHost) -> None:
    head = ScriptedHead()
    head.replies[SUMMARY_PATH] = (200, b'{"by_worker": {}}')
    with serve(head, lambda: 0.0) as url:
        fleet = _with_api_port(int(url.rpartition(":")[2]))
        answer = door(fleet, "head").ask({"Authorization": "Bearer key"})
    assert answer.api is not None
    assert answer.api.head["node"] == "head"
    assert answer.api.summary == {"by_worker": {}}
    gone = door(fleet, "head").ask({})
    assert gone.api is None
    assert gone.api_fault is not None
    assert "nothing listens there" in gone.api_fault
    assert not gone.api_fault.startswith("head: ")


def _with_api_port(port: int) -> Inventory:
    document = FLEET.model_dump(exclude_unset=True)
    document["hosts"]["head"]["api"]["port"] = port
    return Inventory.model_validate(document)


@pytest.mark.parametrize(
    ("address", "more", "wanted"),
    [
        ("127.0.0.1", "", False),
        ("127.0.0.1", "ssh: {host: allens.local}", True),
        ("169.254.27.104", "", True),
    ],
)
def test_hosts_elsewhere_and_those_with_ssh_are_asked(address: str, more: str, wanted: bool) -> None:
    host = f"role: worker, endpoints: [{{network: n, address: {address}, port: 5, trusted: true}}]"
    text = f"{START}  allens: {{{host}{', ' + more if more else ''}}}\n"
    assert wants_ssh(parse_inventory(text.encode(), "f.yaml"), "allens") is wanted


@pytest.mark.parametrize(
    ("bind", "ssh", "wanted"),
    [("127.0.0.1", "", True), ("127.0.0.1", "ssh: {host: far}", False), ("10.0.0.7", "ssh: {host: far}", True)],
)
def test_the_loopback_of_a_host_elsewhere_is_not_this_machines(bind: str, ssh: str, wanted: bool) -> None:
    text = START.replace("{port: 1}", f'{{bind: "{bind}", port: 1, keys_file: /keys}}{", " + ssh if ssh else ""}')
    fleet = parse_inventory(text.encode(), "f.yaml")
    assert wants_api(fleet, fleet.host("head")) is wanted


def test_defaults_for_ssh_are_a_wish_too() -> None:
    text = f"defaults: {{ssh: {{user: fluffy}}}}\n{START}"
    text += "  a: {role: worker, endpoints: [{network: n, address: 127.0.0.1, port: 5}]}\n"
    assert wants_ssh(parse_inventory(text.encode(), "f.yaml"), "a")


@pytest.mark.system("sshd")
def test_over_a_real_connection_the_service_is_told_and_later_that_the_host_is_gone(tmp_path: Path) -> None:
    (tmp_path / "fleet").mkdir()
    with machine(tmp_path / "fleet", "allens") as far:
        label = Places.of(FLEET, FLEET.host("allens"), str(far.mac.home)).label
        far.mac.preload({"Label": label, "ProgramArguments": ["/bin/sleep", "100"], "RunAtLoad": True}, "user")

        def open_runner(host: ResolvedHost) -> Runner:
            return connect(host, config_file=far.config)

        door = HostDoor(FLEET, FLEET.host("allens"), Asker(KEY, "ours"), open_runner)
        with contextlib.closing(door):
            assert shown(door.ask(None)).service.state == "running"
            far.server.stop()
            with pytest.raises(RemoteError):
                door.ask(None)
