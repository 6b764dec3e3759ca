"""Whatever fails while a host is changed: the old generation runs again, and nothing of the new one is left.

A cache peer is changed, because it starts faster than anything with a model. Each test begins with a healthy
generation and wants another one.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flows_deploy.deployed import QUICK, CheckoutProgram, Fleet, InstallCheckout, machine
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.errors import LockHeld, NotHealthy, ServiceError
from kakeya_ops.deploy.lock import read_lock, take_lock
from kakeya_ops.errors import ExitCode, IdentityMismatch
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe import HostState
from kakeya_ops.observe.places import Places

NAME = "vault"
IMPATIENT = dataclasses.replace(QUICK, healthy=1.0, gone=2.0, retries=3, call=2.0)
QUIET: dict[str, Any] = {
    "eio_next_bootstraps": 0,
    "eio_next_bootouts": 0,
    "bootstrap_ok_but_not_started": False,
    "bootstrap_ok_but_absent": False,
    "bootout_linger_seconds": 0.1,
    "hang": (),
    "spawn_fail": None,
    "disabled": {},
}


@pytest.fixture(scope="module")
def installed(operator_home: Path, tiny_llama: Path) -> Iterator[Fleet]:
    with machine(operator_home, NAME) as mac:
        fleet = Fleet(operator_home, tiny_llama, {NAME: mac}, {NAME: "cache", "head": "head"})
        assert fleet.deploy(NAME)[NAME].good, fleet.notes
        yield fleet


@pytest.fixture
def fleet(installed: Fleet) -> Iterator[Fleet]:
    """The fleet with a healthy generation, and an inventory that wants another one; all faults are gone afterwards."""
    document = json.loads(json.dumps(installed.document))
    installed.change_host(NAME, queue=document["hosts"][NAME].get("queue", 100) + 1)
    yield installed
    installed.at_step = lambda title: None
    installed.program = CheckoutProgram()
    installed.machines[NAME].mac.set(**QUIET)
    installed.document = document
    installed.change("hosts")
    results = installed.deploy(NAME)
    assert results[NAME].good, (results, installed.notes[-20:])


@dataclass
class Before:
    """What must be so again."""

    fleet: Fleet

    def __post_init__(self) -> None:
        places = self.places = self.fleet.places(NAME)
        self.mac = self.fleet.machines[NAME].mac
        self.plist = Path(places.plist).read_bytes()
        self.current = Path(places.current).readlink()
        self.generations = set(Path(places.root, "generations").iterdir())
        self.pid = self.mac.wait_until_running(places.label).pid

    def is_back(self, result: HostResult, *, same_process: bool = False) -> None:
        assert result.verdict == "restored", result
        assert Path(self.places.plist).read_bytes() == self.plist
        assert Path(self.places.current).readlink() == self.current
        assert set(Path(self.places.root, "generations").iterdir()) == self.generations
        job = self.mac.wait_until_running(self.places.label)
        assert str(self.current).rpartition("/")[2] in " ".join(job.arguments)
        assert (job.pid == self.pid) is same_process
        assert not Path(self.places.lock).exists()
        with socket.create_connection(("127.0.0.1", self.fleet.ports[NAME]), timeout=10):
            pass
        entry = json.loads(Path(self.places.audit).read_text().splitlines()[-1])
        assert entry["outcome"] == "restored"


@dataclass(frozen=True)
class InstallScript:
    """A program that is `script`; in it, GOOD is what the real one would be, but with `extra` arguments."""

    id: str
    script: str
    extra: str

    title = "install a program that does not do what it should"

    def apply(self, context: HostContext) -> None:
        InstallCheckout(self.id).apply(context)
        kakeya = f"{context.places.program(self.id)}/venv/bin/kakeya"
        good = (context.runner.read(kakeya) or b"").decode().replace('"$@"', f'"$@" {self.extra}')
        context.runner.write(kakeya, self.script.replace("GOOD", good).encode(), 0o755)


@dataclass(frozen=True)
class ScriptProgram:
    id: str
    script: str = "GOOD"
    extra: str = ""

    def steps(self, host: ResolvedHost, places: Places, state: HostState) -> tuple[Step, ...]:
        return () if self.id in state.programs else (InstallScript(self.id, self.script, self.extra),)


def test_launchd_that_is_busy_for_a_while_is_no_failure(fleet: Fleet) -> None:
    fleet.machines[NAME].mac.set(eio_next_bootstraps=2, bootout_linger_seconds=0.5)
    assert fleet.deploy(NAME)[NAME].verdict == "done"


def test_a_job_that_is_loaded_but_not_started_is_kicked(fleet: Fleet) -> None:
    fleet.machines[NAME].mac.set(bootstrap_ok_but_not_started=True)
    assert fleet.deploy(NAME)[NAME].verdict == "done"


def test_a_disabled_label_is_enabled(fleet: Fleet) -> None:
    fleet.machines[NAME].mac.launchctl("disable", f"{fleet.machines[NAME].mac.domain()}/{fleet.places(NAME).label}")
    assert fleet.deploy(NAME)[NAME].verdict == "done"


def test_a_service_that_launchd_refuses_to_load(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.machines[NAME].mac.set(eio_next_bootstraps=4)
    result = fleet.deploy(NAME, timing=dataclasses.replace(IMPATIENT, healthy=30.0))[NAME]
    assert isinstance(result.error, ServiceError)
    assert "bootstrap" in result.error.message
    before.is_back(result)


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
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = fleet.document["hosts"][NAME]["endpoints"][0] | {"port": taken.getsockname()[1]}
        fleet.change_host(NAME, endpoints=[endpoint])
        result = fleet.deploy(NAME, timing=dataclasses.replace(QUICK, healthy=15.0))[NAME]
    assert isinstance(result.error, NotHealthy)
    before.is_back(result)


def test_launchctl_that_never_answers(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.machines[NAME].mac.set(hang=("bootout",))
    result = fleet.deploy(NAME, timing=IMPATIENT)[NAME]
    assert "did not end within" in str(result.error) or result.error is not None
    before.is_back(result, same_process=True)


def test_a_disk_without_room(fleet: Fleet) -> None:
    before = Before(fleet)
    fleet.machines[NAME].mac.home.chmod(0o700)
    folder = Path(fleet.places(NAME).root, "generations")

    def fill(title: str) -> None:
        if title.startswith("write generation"):
            folder.rename(folder.with_name("elsewhere"))
            folder.write_text("in the way")

    fleet.at_step = fill
    try:
        result = fleet.deploy(NAME)[NAME]
    finally:
        folder.unlink()
        folder.with_name("elsewhere").rename(folder)
    before.is_back(result, same_process=True)


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
            thread.join(30)

    fleet.at_step = deploy_again
    first = fleet.deploy(NAME)[NAME]
    assert first.verdict == "done"
    assert isinstance(second[0].error, LockHeld)


def test_a_job_that_is_loaded_twice_is_loaded_once_afterwards(fleet: Fleet) -> None:
    mac, label = fleet.machines[NAME].mac, fleet.places(NAME).label
    mac.preload({"Label": label, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True}, "user")
    plan = fleet.plan(NAME)
    assert any("is loaded in gui" in reason for reason in plan.hosts[0].reasons)
    assert fleet.deploy(NAME)[NAME].verdict == "done"
    assert mac.job(label, "user") is None


def test_a_file_that_was_rewritten_under_a_running_job_is_noticed(fleet: Fleet) -> None:
    assert fleet.deploy(NAME)[NAME].verdict == "done"
    mac, places = fleet.machines[NAME].mac, fleet.places(NAME)
    planned = Path(places.plist).read_bytes()
    mac.launchctl("bootout", f"{mac.domain()}/{places.label}")
    mac.wait_until_gone(places.label)
    mac.preload({"Label": places.label, "ProgramArguments": ["/bin/sleep", "1000"], "RunAtLoad": True})
    Path(places.plist).write_bytes(planned)
    reasons = fleet.plan(NAME).hosts[0].reasons
    assert "launchd runs it with other arguments" in reasons
    assert fleet.deploy(NAME)[NAME].verdict == "done"
