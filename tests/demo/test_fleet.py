from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kakeya_ops.demo import fleet as fleet_module
from kakeya_ops.demo.fleet import (
    HEAD,
    WORKER,
    Child,
    DemoFleet,
    FleetPlan,
    choose_ports,
    last_line,
    temporary_directory,
    write_fleet,
)
from kakeya_ops.demo.interruption import Interruption
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.inventory import load_inventory
from kakeya_ops.serving.faults import EXIT_CODE

SLEEP = "import time; time.sleep(60)"


@pytest.fixture
def plan(tmp_path: Path) -> FleetPlan:
    return write_fleet(tmp_path, tmp_path / "model")


@pytest.fixture
def sleepers(plan: FleetPlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoFleet]:
    """A fleet whose processes only wait."""
    script = plan.directory / "sleep"
    script.write_text(f"#!{sys.executable}\n{SLEEP}\n")
    script.chmod(0o700)
    monkeypatch.setattr(fleet_module.sys, "executable", str(script))
    with DemoFleet(plan, Interruption()) as fleet:
        yield fleet


def child(tmp_path: Path, script: str) -> Child:
    return Child("node", [sys.executable, "-c", script], tmp_path / "node.log")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_inventory_is_a_valid_one(plan: FleetPlan) -> None:
    inventory = load_inventory(plan.inventory)
    assert inventory.prefill.policy == "prefer_remote"
    assert {name: host.role for name, host in inventory.hosts.items()} == {HEAD: "head", WORKER: "worker"}
    assert plan.key_file.stat().st_mode & 0o777 == 0o600
    assert len({plan.api_port, plan.head_port, plan.worker_port}) == 3


def test_nodes_remember_a_model_that_is_made_on_the_spot_beside_it(tmp_path: Path) -> None:
    made, given = tmp_path / "demo", tmp_path / "model"
    made.mkdir()
    assert write_fleet(made, made / "tiny").environment == (f"XDG_CACHE_HOME={made}/cache",)
    assert write_fleet(made / "other", given).environment == ()


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot write"):
        write_fleet(tmp_path / "file-not-there" / "\0", tmp_path) if False else write_fleet(
            Path("/proc/none"), tmp_path
        )


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"port {port} of 127.0.0.1 cannot be used") as caught:
            choose_ports(3, port)
    assert "--port" in str(caught.value.hint)
    assert choose_ports(3, port)[0] == port


def test_a_temporary_directory_is_gone_afterwards() -> None:
    with temporary_directory(Interruption()) as directory:
        (directory / "file").write_text("")
    assert not directory.exists()


def test_no_place_for_a_temporary_directory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/none")
    with (
        pytest.raises(EnvironmentFault, match="cannot make a temporary directory") as caught,
        temporary_directory(Interruption()),
    ):
        pass
    assert "TMPDIR" in str(caught.value.hint)


def test_an_interruption_of_the_end_of_a_fleet_comes_after_it(plan: FleetPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    interruption = Interruption()
    fleet = DemoFleet(plan, interruption)
    fleet.children["node"] = node = child(plan.directory, SLEEP)
    end = node.signal_group

    def end_interrupted(number: signal.Signals) -> None:
        signal.raise_signal(signal.SIGINT)
        end(number)

    monkeypatch.setattr(node, "signal_group", end_interrupted)
    with pytest.raises(KeyboardInterrupt), interruption:
        fleet.stop()
    assert not alive(node.pid)


def test_a_childs_last_words_are_its_last_error(tmp_path: Path) -> None:
    node = child(
        tmp_path, "print('starting'); print('error: no such model'); print('hint: make one'); raise SystemExit(3)"
    )
    assert node.ended_within(30)
    assert node.last_words() == f"node (pid {node.pid}) ended with code 3; last in its log: no such model"


def test_a_child_that_ended_well_left_no_error(tmp_path: Path) -> None:
    node = child(tmp_path, "print('job ended')")
    assert node.ended_within(30)
    assert node.last_words() == f"node (pid {node.pid}) ended with code 0"


def test_a_killed_child_says_so(tmp_path: Path) -> None:
    node = child(tmp_path, SLEEP)
    assert not node.ended_within(0)
    assert node.last_words() == f"node (pid {node.pid}) is running"
    node.signal_group(signal.SIGKILL)
    assert node.ended_within(30)
    assert "was killed by SIGKILL" in node.last_words()
    node.signal_group(signal.SIGKILL)


def test_a_command_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot start node"):
        Child("node", [str(tmp_path / "absent")], tmp_path / "log")


@pytest.mark.parametrize(
    ("content", "line"),
    [("", ""), ("\n\n", ""), ("a\nb\n\n", "b"), ("error: first\nerror: last\nhint: x", "last"), ("\xff", "\ufffd")],
)
def test_the_line_of_a_log_that_tells_most(tmp_path: Path, content: str, line: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(content.encode("latin-1"))
    assert last_line(log) == line
    assert last_line(tmp_path / "absent") == ""


def test_a_fleet_leaves_no_process(sleepers: DemoFleet) -> None:
    pids = [child.pid for child in sleepers.children.values()]
    assert [alive(pid) for pid in pids] == [True, True]
    sleepers.stop()
    assert [alive(pid) for pid in pids] == [False, False]


def test_a_child_that_heeds_no_signal_is_killed_with_its_own_children(
    plan: FleetPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_module, "_GRACE_SECONDS", 0.2)
    fleet = DemoFleet(plan, Interruption())
    stubborn = (
        "import signal, subprocess, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"inner = subprocess.Popen([sys.executable, '-c', {SLEEP!r}])\nprint(inner.pid, flush=True)\ntime.sleep(60)"
    )
    fleet.children["node"] = node = child(plan.directory, stubborn)
    fleet.wait_for("its word", lambda: last_line(node.log) != "", 30)
    inner = int(last_line(node.log))
    fleet.stop()
    assert not alive(node.pid)
    # It is not our child: its end is not waited for by anybody here.
    DemoFleet(plan, Interruption()).wait_for("the inner end", lambda: not running(inner), 30)


def test_waiting_ends_when_a_child_does(sleepers: DemoFleet) -> None:
    sleepers.children[WORKER].signal_group(signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match=r"worker \(pid \d+\) was killed by SIGKILL"):
        sleepers.wait_for("the start", lambda: False, 60)


def test_a_child_that_ended_explains_what_went_wrong(sleepers: DemoFleet) -> None:
    sleepers.raise_if_ended()
    sleepers.children[HEAD].signal_group(signal.SIGKILL)
    assert sleepers.children[HEAD].ended_within(30)
    with pytest.raises(EnvironmentFault, match=r"head \(pid \d+\) was killed by SIGKILL"):
        sleepers.raise_if_ended()


def test_waiting_has_a_deadline(sleepers: DemoFleet) -> None:
    with pytest.raises(EnvironmentFault, match=r"the start did not happen within 0 s: worker .* is running"):
        sleepers.wait_for("the start", lambda: False, 0)


def test_a_kept_fleet_outlives_its_worker_but_not_its_head(sleepers: DemoFleet) -> None:
    told: list[str] = []

    def tell(words: str) -> None:
        told.append(words)
        sleepers.children[HEAD].signal_group(signal.SIGKILL)

    sleepers.children[WORKER].signal_group(signal.SIGKILL)
    with pytest.raises(EnvironmentFault, match="head"):
        sleepers.wait_until_head_ends(tell)
    assert len(told) == 1
    assert "worker" in told[0]


def test_a_kept_fleet_starts_those_anew_whom_a_drill_has_ended(
    sleepers: DemoFleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def start(name: str) -> None:
        started.append(name)
        sleepers.children[name] = Child(name, ["sleep", "60"], tmp_path / name)
        if len(started) == 2:
            sleepers.children[HEAD].signal_group(signal.SIGKILL)

    monkeypatch.setattr(sleepers, "_start", start)
    for name in (HEAD, WORKER):
        sleepers.children[name].signal_group(signal.SIGKILL)
        sleepers.children[name].ended_within(30)
        sleepers.children[name] = Child(name, ["sh", "-c", f"exit {EXIT_CODE}"], tmp_path / name)
    told: list[str] = []
    with pytest.raises(EnvironmentFault, match="head"):
        sleepers.wait_until_head_ends(told.append)
    assert (sorted(started), told) == ([HEAD, WORKER], [])
