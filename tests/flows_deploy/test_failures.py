"""Whatever fails while a host is changed: the old generation runs again, and nothing of the new one is left."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import threading
from pathlib import Path

import pytest

from deploy.wheels import ReadyWheel
from flows_deploy.changing import FEW_TRIES, NAME, Before, ScriptProgram, serves
from flows_deploy.deployed import QUICK, Fleet, machine
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.errors import DeployError, LockHeld, NotHealthy, ServiceError
from kakeya_ops.deploy.lock import Holder, break_lock, read_lock, take_lock
from kakeya_ops.deploy.program import WheelProgram
from kakeya_ops.errors import ExitCode, IdentityMismatch, TransferFailed
from serving.running import Served, make_cache


@pytest.fixture
def fleet(changing: Fleet) -> Fleet:
    return changing


def test_a_service_that_ends_at_once(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.program = ScriptProgram("ends", "#!/bin/sh\necho token=abcdefghijkl >&2\nexit 3\n")
    result = fleet.deploy(NAME)[NAME]
    assert isinstance(result.error, NotHealthy)
    assert "ends as soon as it is started" in result.error.message
    assert "token=[redacted]" in result.log
    before.is_back(result)


def test_a_service_that_never_answers(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.program = ScriptProgram("silent", "#!/bin/sh\nexec sleep 1000\n")
    result = fleet.deploy(NAME, timing=dataclasses.replace(QUICK, healthy=4.0))[NAME]
    assert isinstance(result.error, NotHealthy)
    assert "nothing answers" in result.error.message
    before.is_back(result)


def test_a_node_with_another_identity_than_the_planned_one(fleet: Fleet, operator_home: Path) -> None:
    before = Before(fleet)
    other = dataclasses.replace(fleet.material().identity, window=4096)
    path = operator_home / "other.json"
    path.write_text(json.dumps(other.to_json()))
    fleet.program = ScriptProgram("other", extra=f"--identity {path}")
    result = fleet.deploy(NAME)[NAME]
    assert isinstance(result.error, IdentityMismatch)
    assert result.error.field == "window"
    before.is_back(result)


def test_a_port_that_somebody_else_has(fleet: Fleet) -> None:
    before = Before(fleet)
    with Served(make_cache("another")) as taken:
        endpoint = fleet.document["hosts"][NAME]["endpoints"][0] | {"port": taken.port}
        fleet.change_host(NAME, endpoints=[endpoint])
        result = fleet.deploy(NAME, timing=dataclasses.replace(QUICK, healthy=5.0))[NAME]
    fleet.change_host(NAME, endpoints=[endpoint | {"port": fleet.ports[NAME]}])
    assert isinstance(result.error, NotHealthy)
    before.is_back(result)


def test_an_old_service_that_launchd_starts_again_and_forgets(fleet: Fleet) -> None:
    """It has the port, is healthy, and has the planned identity: only launchd knows that it is another."""
    fleet.machines[NAME].mac.set(respawn_during_bootout=True)
    result = fleet.deploy(NAME)[NAME]
    assert result.verdict == "done", (result, fleet.notes[-20:])
    serves(fleet, result.after)
    assert any("launchd left behind" in note for note in fleet.notes)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a running process can be set on Linux alone")
@pytest.mark.parametrize("step", ["write generation", "write the property"])
def test_a_disk_that_is_full_and_stays_full(fleet: Fleet, step: str) -> None:
    """Also the way back finds no room, and needs none."""
    before, server = Before(fleet), fleet.machines[NAME].server

    def fill(title: str) -> None:
        if title.startswith(step):
            fleet.application.connect(NAME).stat("~/")  # so that there is a session for files
            server.limit_files(64)

    fleet.at_step = fill
    try:
        result = fleet.deploy(NAME)[NAME]
    finally:
        server.limit_files(None)
    assert isinstance(result.error, TransferFailed)
    assert "is there room?" in (result.error.hint or "")
    before.is_back(result, same_process=step == "write generation")


def test_a_host_without_python(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.program = WheelProgram(ReadyWheel(), "")
    fleet.change_host(NAME, python="/opt/none/python3")
    result = fleet.deploy(NAME)[NAME]
    fleet.change_host(NAME, python=None)
    assert "no Python 3.11 or newer: hosts.vault.python is /opt/none/python3" in str(result.error)
    assert (result.verdict, type(result.error)) == ("not begun", DeployError)
    before.is_as_it_was(same_process=True)


@pytest.mark.parametrize("step", ["write generation", "stop the service", "write the property", "start", "wait"])
def test_ctrl_c_before_any_step(fleet: Fleet, step: str) -> None:
    before = Before(fleet)

    def interrupt(title: str) -> None:
        if title.startswith(step):
            fleet.application.cancelled.set()

    fleet.at_step = interrupt
    result = fleet.deploy(NAME)[NAME]
    assert result.error is not None
    assert result.error.exit_code is ExitCode.INTERRUPTED
    before.is_back(result, same_process=step in ("write generation",))


def test_ctrl_c_when_all_is_proved_keeps_the_new_generation(fleet: Fleet) -> None:
    def interrupt(title: str) -> None:
        if title.startswith("keep"):
            fleet.application.cancelled.set()

    fleet.at_step = interrupt
    result = fleet.deploy(NAME)[NAME]
    assert (result.verdict, Path(fleet.places(NAME).current).readlink().name) == ("done", result.after)


@pytest.mark.parametrize("step", ["write generation", "write the property", "start", "wait"])
def test_a_connection_that_is_cut_in_the_middle(fleet: Fleet, step: str) -> None:
    before = Before(fleet)

    def cut(title: str) -> None:
        if title.startswith(step):
            fleet.at_step = lambda title: None
            fleet.machines[NAME].server.end_sessions()

    fleet.at_step = cut
    result = fleet.deploy(NAME)[NAME]
    if result.verdict == "done":  # the connection was made anew before anything was lost
        return
    before.is_back(result, same_process=step == "write generation")


def test_a_connection_that_is_lost_for_good_while_nothing_runs(fleet: Fleet) -> None:
    """Nobody is left to put anything back but the host itself."""
    before, server = Before(fleet), fleet.machines[NAME].server
    fleet.at_step = lambda title: server.stop() if title.startswith("start") else None
    result = fleet.deploy(NAME, timing=dataclasses.replace(QUICK, silence=4.0))[NAME]
    assert (result.verdict, result.after) == ("not restored", None)
    mac, places = before.mac, before.places
    mac.wait_for(lambda: '"action": "guard"' in Path(places.audit).read_text(), "the host to help itself")
    server.start()
    with fleet.hosts() as hosts:
        holder = read_lock(hosts.runner(NAME), places)
        assert isinstance(holder, Holder)
        assert holder.why == "kakeya deploy"
        break_lock(hosts.runner(NAME), places)
    new = Path(places.generation(fleet.plan(NAME).hosts[0].after or ""))
    assert new.is_dir(), "what was written is still there, and nobody uses it"
    shutil.rmtree(new)
    before.is_as_it_was(same_process=False)


def test_a_host_that_somebody_else_is_changing(fleet: Fleet) -> None:
    pid = fleet.machines[NAME].mac.wait_until_running(fleet.places(NAME).label).pid
    with fleet.hosts() as hosts:
        places, runner = fleet.places(NAME), hosts.runner(NAME)
        holder = take_lock(runner, places, NAME, "a test")
        result = fleet.deploy(NAME)[NAME]
        assert read_lock(runner, places) == holder
        runner.run(["/bin/rm", "-rf", places.lock])
    assert (result.verdict, type(result.error)) == ("not begun", LockHeld)
    assert "a test" in str(result.error)
    assert fleet.machines[NAME].mac.wait_until_running(places.label).pid == pid


def test_of_two_deploys_at_once_one_is_refused(fleet: Fleet) -> None:
    second: list[HostResult] = []

    def deploy_again(title: str) -> None:
        if title.startswith("wait"):
            fleet.at_step = lambda title: None
            thread = threading.Thread(target=lambda: second.append(fleet.deploy(NAME)[NAME]))
            thread.start()
            thread.join(100)

    fleet.at_step = deploy_again
    first = fleet.deploy(NAME)[NAME]
    assert first.verdict == "done"
    assert isinstance(second[0].error, LockHeld)


def test_a_first_deploy_that_fails_leaves_nothing(
    tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    with machine(tmp_path, NAME, home_on_volume=True) as bare:
        fleet = Fleet(tmp_path, tiny_llama, {NAME: bare}, {NAME: "cache", "head": "head"})
        places, mac = fleet.places(NAME), bare.mac
        result = fleet.deploy(NAME, timing=FEW_TRIES)[NAME]
        assert isinstance(result.error, ServiceError)
        assert (result.verdict, result.after) == ("restored", None)
        assert mac.state.jobs.get(mac.domain(), {}) == {}
        assert list(mac.agents.iterdir()) == []
        left = {str(path.relative_to(places.root)) for path in Path(places.root).rglob("*") if path.is_file()}
        assert {path for path in left if not path.startswith("programs/")} == {"audit.jsonl"}
