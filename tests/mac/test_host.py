"""What tests get from a simulated Mac besides launchctl, and that nothing of it stays."""

from __future__ import annotations

import plistlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mac.agents import LABEL, STUBBORN, agent, python_agent, shell_agent
from mac.host import MacHost


def living(mac: MacHost) -> set[int]:
    return {process.pid for process in mac.processes()}


def test_nothing_is_left(tmp_path: Path) -> None:
    mac = MacHost(tmp_path / "mac", hang=("print",))
    mac.preload(python_agent(STUBBORN, KeepAlive=True))
    mac.preload({**shell_agent("/bin/sleep 300 & wait", AbandonProcessGroup=True), "Label": "dev.kakeya.two"})
    with subprocess.Popen(["launchctl", "print", mac.domain()], env=mac.environment) as call:
        mac.wait_for(lambda: mac.calls("launchctl")[-1][1] == "print")
        pids = living(mac)
        assert call.pid in pids
        assert len(pids) >= 6
        mac.stop()
    assert living(mac) == set()
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids)


def test_a_supervisor_that_fails_is_heard(tmp_path: Path) -> None:
    mac = MacHost(tmp_path / "mac")
    mac.store.note_crash("AssertionError")
    with pytest.raises(AssertionError):
        mac.stop()


def test_two_macs_do_not_know_each_other(tmp_path: Path) -> None:
    with MacHost(tmp_path / "one") as one, MacHost(tmp_path / "two") as two:
        one.preload(agent())
        assert two.launchctl("print", f"{two.domain()}/{LABEL}").returncode == 113
        assert two.processes() == []


def test_a_removed_folder_ends_its_jobs(mac: MacHost) -> None:
    mac.preload(agent())
    kept = Path(mac.store.file).read_bytes()
    Path(mac.store.file).unlink()
    mac.wait_for(lambda: mac.processes() == [])
    Path(mac.store.file).write_bytes(kept)


def test_knobs_are_checked(mac: MacHost) -> None:
    with pytest.raises(AttributeError):
        mac.set(no_such_knob=1)
    with pytest.raises(TypeError):
        MacHost(mac.home / "other", no_such_knob=1)


def test_tools_can_be_replaced_linked_and_removed(mac: MacHost) -> None:
    mac.add_tool("sw_vers", "#!/bin/sh\necho mine\n")
    assert mac.run("sw_vers").stdout == "mine\n"
    mac.link_tool("python3", sys.executable)
    assert mac.run("python3", "-c", "print(1)").stdout == "1\n"
    mac.remove_tool("sw_vers")
    with pytest.raises(FileNotFoundError):
        mac.run("sw_vers")


def test_a_fresh_mac_has_a_python_that_is_none_and_nothing_of_linux(mac: MacHost) -> None:
    stub = mac.run("python3", "-c", "print(1)")
    assert (stub.returncode, stub.stdout.split(":")[0]) == (1, "xcode-select")
    missing = mac.run("flock", "file", "true")
    assert (missing.returncode, missing.stderr) == (127, "sh: flock: command not found\n")
    assert not mac.agents.exists()


def test_a_frozen_mac_answers_as_before_and_still_thinks(mac: MacHost) -> None:
    mac.preload(agent())
    calls = [("sw_vers", "-productVersion"), ("launchctl", "print", mac.domain()), ("launchctl", "print", "gui/54321")]
    before = [mac.run(*call) for call in calls]
    mac.freeze()
    mac.forget_calls()
    after = [mac.run(*call) for call in calls]
    assert [(d.returncode, d.stdout, d.stderr) for d in after] == [(d.returncode, d.stdout, d.stderr) for d in before]
    assert mac.calls() == [], "no interpreter was started"
    assert mac.launchctl("bootout", f"{mac.domain()}/{LABEL}").returncode == 0
    mac.wait_until_gone(LABEL)


def test_agents_are_written_under_their_label(mac: MacHost) -> None:
    path = mac.write_agent(agent())
    assert path == mac.home / "Library/LaunchAgents" / f"{LABEL}.plist"
    assert plistlib.loads(path.read_bytes()) == agent()
