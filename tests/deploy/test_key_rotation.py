"""Keys replaced on simulated Macs with real nodes, reached by real SSH."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from deploy.bare_host import make_inventory
from flows_deploy.deployed import QUICK, Fleet, machine
from kakeya_ops.cli.main import app
from kakeya_ops.deploy.apply import Application, ApplySettings, HostResult
from kakeya_ops.deploy.cross_check import CrossCheck
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.key_rotation import Keys, Pass, Pending, Rotation, State, refuse_during_rotation
from kakeya_ops.deploy.plan import Plan
from kakeya_ops.errors import InputError, PeerRefused, RemoteError
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.peer.signed import Caller
from kakeya_ops.secret import Secret, key_lines, read_fleet_key, write_fleet_key
from kakeya_ops.units import NodeId
from kakeya_ops.wire.signing import NodeSigner, new_nonce
from sshd import write_ssh_program

KEYS = Keys(Secret(b"o" * 32), Secret(b"n" * 32))
OLD, NEW = key_lines(KEYS.old), key_lines(KEYS.new)
BOTH = key_lines(KEYS.new, KEYS.old)


class TestStates:
    @pytest.mark.parametrize(
        ("key", "also", "state"),
        [
            (OLD, None, State.OLD),
            (OLD, BOTH, State.ACCEPTS),
            (NEW, BOTH, State.SIGNS),
            (NEW, None, State.DONE),
            (OLD, b"of an abandoned rotation", State.OLD),
            (NEW, b"of an abandoned rotation", State.ACCEPTS),
        ],
    )
    def test_files_tell_how_far_a_host_is(self, key: bytes, also: bytes | None, state: State) -> None:
        assert KEYS.state_of("allens", key, also) is state

    def test_each_step_from_one_to_the_next_changes_one_file(self) -> None:
        for state in (State.OLD, State.ACCEPTS, State.SIGNS):
            before, after = KEYS.files(state), KEYS.files(State(state + 1))
            assert sum(a != b for a, b in zip(before, after, strict=True)) == 1

    @pytest.mark.parametrize("key", [None, b"", b"another"])
    def test_a_foreign_key_is_left_alone(self, key: bytes | None) -> None:
        with pytest.raises(DeployError, match="neither the one that is being replaced nor the new one"):
            KEYS.state_of("allens", key, None)


class TestPending:
    @pytest.fixture
    def pending(self, tmp_path: Path) -> Pending:
        write_fleet_key(tmp_path / "fleet.key")
        return Pending(tmp_path / "fleet.key")

    def test_another_run_goes_on_with_the_same_keys(self, pending: Pending) -> None:
        keys = pending.begin()
        assert pending.exists
        assert keys.old == read_fleet_key(pending.key_file)
        assert Pending(pending.key_file).begin() == keys
        assert pending.path.stat().st_mode & 0o777 == 0o600

    def test_the_new_key_becomes_this_machines_and_the_old_one_is_forgotten(self, pending: Pending) -> None:
        keys = pending.begin()
        pending.adopt(keys)
        assert Pending(pending.key_file).begin() == keys
        pending.end()
        pending.end()
        assert (read_fleet_key(pending.key_file), pending.exists) == (keys.new, False)
        assert pending.key_file.stat().st_mode & 0o777 == 0o600
        assert keys.old.reveal().hex() not in "".join(file.read_text() for file in pending.key_file.parent.iterdir())
        assert pending.begin().old == keys.new

    def test_a_broken_file_is_told(self, pending: Pending) -> None:
        pending.begin()
        pending.path.write_bytes(OLD)
        with pytest.raises(InputError, match="does not hold the two keys"):
            pending.begin()

    def test_a_fleet_without_a_key_has_none_to_replace(self) -> None:
        inventory = make_inventory()
        keyless = inventory.model_copy(update={"fleet": inventory.fleet.model_copy(update={"key_file": None})})
        with pytest.raises(InputError, match="has no key"):
            Pending.of(keyless)
        refuse_during_rotation(keyless)

    def test_what_writes_keys_is_refused_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        write_fleet_key(tmp_path / ".kakeya/fleet.key")
        refuse_during_rotation(make_inventory())
        Pending.of(make_inventory()).begin()
        with pytest.raises(InputError, match="being replaced") as caught:
            refuse_during_rotation(make_inventory())
        assert "kakeya key rotate" in (caught.value.hint or "")


class Rotating:
    """A fleet of two cache peers, which start in no time, and a head that was never deployed to."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.plans: list[Plan] = []

    @property
    def pending(self) -> Pending:
        return Pending.of(self.fleet.inventory)

    def run(self, **settings: Any) -> list[Pass]:
        with self.fleet.hosts() as hosts:
            return list(self.passes(hosts, **settings))

    def passes(self, hosts: Hosts, **settings: Any) -> Iterator[Pass]:
        """The passes one by one."""
        self.plans.clear()
        chosen = ApplySettings(**{"action": "key rotate", "parallel": 1, "timing": QUICK, **settings})
        self.application = Application(hosts.runner, self.fleet, chosen)
        yield from Rotation(hosts, self.pending, self.pending.begin(), self.apply).run()

    def apply(self, plan: Plan) -> Sequence[HostResult]:
        self.plans.append(plan)
        return self.application.run(plan)

    def press_ctrl_c_when(self, condition: Callable[[], bool]) -> Result:
        """``kakeya key rotate`` by somebody who gives up."""
        for host in self.fleet.machines.values():
            host.mac.forget_calls()
        ended = threading.Event()

        def press() -> None:
            while not ended.wait(0.02):
                if condition():
                    os.kill(os.getpid(), signal.SIGINT)
                    return

        config = self.fleet.folder / "ssh_config"
        config.write_text("".join(host.config.read_text() for host in self.fleet.machines.values()))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(write_ssh_program(self.fleet.folder / "programs", config)), prepend=":")
            thread = threading.Thread(target=press)
            thread.start()
            try:
                return CliRunner().invoke(app, ["--inventory", str(self.fleet.path), "key", "rotate", "--yes"])
            finally:
                ended.set()
                thread.join()

    def changed(self) -> list[list[str]]:
        """The hosts on which something was done, pass by pass."""
        return [[host.host.name for host in plan.pending] for plan in self.plans]

    def takes(self, name: str, key: Secret) -> bool:
        """Whether the running node of a host takes a request signed with `key`."""
        node = NodeId("tester")
        caller = Caller(node, 1, new_nonce(), NodeSigner(node, key, "flows", time.time), key)
        endpoint = Endpoint("127.0.0.1", self.fleet.ports[name], "loopback")
        client = PeerClient(NodeId(name), endpoint, caller, self.fleet.material().identity.layout)
        try:
            return client.card().node == name
        except PeerRefused as error:
            if error.status != 401:
                raise
            return False
        finally:
            client.close()

    def files(self, name: str) -> tuple[bytes | None, bytes | None]:
        places = self.fleet.places(name)
        paths = (Path(f"{places.key}"), Path(f"{places.key}.also"))
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in paths if path.exists())
        key, also = (path.read_bytes() if path.exists() else None for path in paths)
        return key, also


@pytest.fixture(scope="module")
def rotating(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Path) -> Iterator[Rotating]:
    folder = tmp_path_factory.mktemp("rotating")
    names = ("one", "two", "head")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("HOME", str(folder / "operator"))
        machines = {name: stack.enter_context(machine(folder, name)) for name in names}
        fleet = Fleet(folder, tiny_llama, machines, {"one": "cache", "two": "cache", "head": "head"})
        results = fleet.deploy("one", "two")
        assert all(result.good for result in results.values()), results
        yield Rotating(fleet)


NODES = ("one", "two")


def _noted_rotations(fleet: Fleet, name: str) -> int:
    """How many passes of rotations a host has noted so far."""
    audit = Path(fleet.places(name).audit)
    return audit.read_text().count('"action": "key rotate"') if audit.exists() else 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_both_keys_are_taken_until_every_node_signs_with_the_new_one(rotating: Rotating) -> None:
    fleet = rotating.fleet
    old = read_fleet_key(rotating.pending.key_file)
    noted = {name: _noted_rotations(fleet, name) for name in NODES}
    taken = {}
    with fleet.hosts() as hosts:
        for done in rotating.passes(hosts):
            assert done.good, done
            keys = Keys(old, read_fleet_key(rotating.pending.key_file))
            new = rotating.pending.begin().new if rotating.pending.exists else keys.new
            taken[done.state] = {(rotating.takes(name, old), rotating.takes(name, new)) for name in NODES}
        assert taken == {State.ACCEPTS: {(True, True)}, State.SIGNS: {(True, True)}, State.DONE: {(False, True)}}
        checks = CrossCheck(hosts).run(NODES)
    assert rotating.changed() == [["one", "two"]] * 3
    assert checks == [] or {check.verdict for check in checks} <= {"ok", "unknown"}

    new = read_fleet_key(rotating.pending.key_file)
    assert new != old
    assert not rotating.pending.exists
    assert {rotating.files(name) for name in NODES} == {(key_lines(new), None)}
    assert rotating.files("head") == (None, None)
    for name in NODES:
        mac = fleet.machines[name].mac
        told = json.dumps(mac.calls()) + "".join(fleet.notes)
        logs = "".join(path.read_text(errors="replace") for path in Path(fleet.places(name).logs).iterdir())
        audit = Path(fleet.places(name).audit).read_text()
        assert _noted_rotations(fleet, name) == noted[name] + 3
        for key in (old, new):
            assert key.reveal().hex() not in told + logs + audit
            assert key.reveal().hex() not in "".join(map(repr, rotating.plans))
    assert not fleet.plan("one", "two").pending, "deploy finds the new key where it belongs"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_interrupted_rotation_is_gone_on_with(rotating: Rotating) -> None:
    """By Ctrl-C; by the death of a run between writing a file and restarting the node; after the first host."""
    fleet, old = rotating.fleet, read_fleet_key(rotating.pending.key_file)
    keys = rotating.pending.begin()
    result = rotating.press_ctrl_c_when(lambda: "bootout" in str(fleet.machines["one"].mac.calls("launchctl")))
    assert result.exit_code == 130, result.output
    assert "Go on with: kakeya key rotate" in " ".join(result.output.split())
    assert f"{rotating.pending.path}" in result.output.replace("\n", "")
    assert rotating.pending.begin() == keys
    assert rotating.files("one") == rotating.files("two") == (key_lines(old), None)
    assert (rotating.takes("one", old), rotating.takes("two", old)) == (True, True)
    assert "bootout" not in str(fleet.machines["two"].mac.calls("launchctl"))

    key, also = keys.files(State.ACCEPTS)
    assert also is not None
    with fleet.hosts() as hosts:
        path = fleet.places("one").key
        hosts.runner("one").write(f"{path}.also", also, 0o600)
        hosts.runner("one").write(f"{path}", key, 0o600)
    assert not rotating.takes("one", keys.new)

    fleet.at_step = lambda title: rotating.application.cancelled.set() if title.startswith("prove") else None
    try:
        (done,) = rotating.run()
    finally:
        fleet.at_step = lambda title: None
    assert {result.host: result.verdict for result in done.results} == {
        "head": "nothing to do",
        "one": "done",
        "two": "not begun",
    }
    assert rotating.takes("one", keys.new)
    assert rotating.files("two") == (key_lines(old), None)
    assert read_fleet_key(rotating.pending.key_file) == old

    assert all(done.good for done in rotating.run())
    assert rotating.changed() == [["two"], ["one", "two"], ["one", "two"]]
    assert read_fleet_key(rotating.pending.key_file) == keys.new
    assert {rotating.files(name) for name in NODES} == {(key_lines(keys.new), None)}
    assert not any(rotating.takes(name, keys.old) for name in NODES)


def test_while_a_host_cannot_be_reached_nothing_is_begun(rotating: Rotating) -> None:
    old = read_fleet_key(rotating.pending.key_file)
    server = rotating.fleet.machines["two"].server
    server.stop()
    try:
        with pytest.raises(RemoteError):
            rotating.run()
    finally:
        server.start()
    assert rotating.plans == []
    assert {rotating.files(name) for name in NODES} == {(key_lines(old), None)}
    rotating.pending.end()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_does_not_come_back_has_its_old_files_again(rotating: Rotating) -> None:
    old = read_fleet_key(rotating.pending.key_file)
    mac = rotating.fleet.machines["one"].mac
    places = rotating.fleet.places("one")
    key = Path(f"{places.key}")

    def spoil(title: str) -> None:
        if title.startswith("start the service"):
            key.with_name("fleet.key.also").chmod(0o644)  # a node refuses to start with such a file

    rotating.fleet.at_step = spoil
    try:
        (done,) = rotating.run(timing=replace(QUICK, healthy=5.0))
    finally:
        rotating.fleet.at_step = lambda title: None
    assert [result.verdict for result in done.results if not result.good] == ["restored", "not begun"]
    assert rotating.files("one") == rotating.files("two") == (key_lines(old), None)
    assert rotating.takes("one", old)
    assert mac.job(places.label) is not None
    rotating.pending.end()
