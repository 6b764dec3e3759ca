"""One host read by one call, as it is."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

from deploy.states import KEY, inventory
from kakeya_ops.launchd import Domain
from kakeya_ops.observe.host import observe_host
from kakeya_ops.observe.node import Asker
from kakeya_ops.observe.places import Places
from kakeya_ops.observe.state import HostState, KeyFile, Unknown
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.remote.runner import Result
from mac.host import MacHost

FLEET = inventory()
HOST = FLEET.host("allens")


class Counting(LocalRunner):
    """Counts the calls that would cross the network."""

    calls = 0

    def run(self, *arguments: object, **options: object) -> Result:
        self.calls += 1
        return super().run(*arguments, **options)  # type: ignore[arg-type]


def observe() -> HostState:
    return observe_host(LocalRunner("allens"), FLEET, HOST, Asker(KEY, "ours"))


def add_program(root: Path, name: str, python: str) -> None:
    """A program that was installed with a Python."""
    venv = root / "programs" / name / "venv/bin"
    venv.mkdir(parents=True)
    (venv / "python").symlink_to(python)
    (root / "programs" / name / "complete").touch()


def test_a_bare_mac(mac: MacHost) -> None:
    state = observe()
    uid = mac.state.own_uid
    assert (state.user, state.uid, state.home) == (pwd.getpwuid(os.getuid()).pw_name, uid, str(mac.home))
    assert state.domains == (Domain("gui", uid), Domain("user", uid))
    assert (state.macos, state.chip, state.memory.total_bytes.nbytes) == ("15.5", "Apple M4", 16 * 2**30)
    assert isinstance(state.disk_free_bytes, int)
    assert state.console_uid == uid
    assert (state.jobs, state.job, state.running, state.plist, state.generation) == ((), None, False, None, None)
    assert (state.key, state.identity, state.model, state.lock, state.health) == (None, None, None, None, None)
    assert isinstance(state.card, Unknown)
    assert state.disabled is False


def test_what_is_installed(mac: MacHost) -> None:
    places = Places.of(FLEET, HOST, str(mac.home))
    mac.preload({"Label": places.label, "ProgramArguments": ["/bin/sleep", "100"], "RunAtLoad": True}, "user")
    root = Path(places.root)
    (root / "generations/g2").mkdir(parents=True)
    add_program(root, "p1", sys.executable)
    add_program(root, "without-its-python", str(root / "removed"))
    (root / "programs/half").mkdir()
    (root / "current").symlink_to("generations/g2")
    (root / "previous").symlink_to("generations/g1")
    (root / "lock").mkdir()
    Path(places.key or "").write_text("secret\n")
    Path(places.key or "").chmod(0o640)
    Path(places.identity).write_text("{}")
    model = Path(places.model)
    (model / "sub").mkdir(parents=True)
    (model / "sub/a file").write_bytes(b"12345")
    (root / "model.json").write_text("record")
    state = observe()
    assert state.job is not None
    assert (state.job.domain.kind, state.running) == ("user", True)
    assert state.job.service.loaded_with(("/bin/sleep", "100"))
    assert state.plist == Path(places.plist).read_bytes()
    assert (state.generation, state.previous, state.programs) == ("g2", "g1", frozenset({"p1"}))
    assert state.lock == b""
    assert state.identity == b"{}"
    assert isinstance(state.key, KeyFile)
    assert state.key.mode == 0o640
    assert not isinstance(state.model, Unknown)
    assert state.model is not None
    assert state.model.files["sub/a file"][0] == 5
    assert state.model.record == b"record"


def test_it_takes_one_call_beyond_asking_for_the_home_folder(mac: MacHost) -> None:
    runner = Counting("allens")
    observe_host(runner, FLEET, HOST, Asker(KEY, "ours"))
    assert runner.calls <= 2


@pytest.mark.parametrize(
    ("tool", "fact"), [("sw_vers", "macos"), ("sysctl", "chip"), ("df", "disk_free_bytes"), ("stat", "console_uid")]
)
def test_a_fact_that_cannot_be_had_is_unknown_and_no_other(mac: MacHost, tool: str, fact: str) -> None:
    mac.add_tool(tool, "#!/bin/sh\nexit 1\n")
    state = observe()
    assert isinstance(getattr(state, fact), Unknown)
    assert state.uid == mac.state.own_uid


def test_nobody_at_the_screen(mac: MacHost) -> None:
    mac.set(gui_session="no")
    state = observe()
    assert [domain.kind for domain in state.domains] == ["user"]
    assert state.console_uid == 0
    assert state.jobs == ()


def test_a_launchctl_that_cannot_be_understood_is_unknown(mac: MacHost) -> None:
    mac.add_tool("launchctl", "#!/bin/sh\nexit 77\n")
    assert isinstance(observe().jobs, Unknown)


def test_what_a_mac_has_instead_of_python_is_not_even_asked(mac: MacHost) -> None:
    """It would open a window on a screen that nobody may see."""
    host = HOST.model_copy(update={"python": "/usr/bin/python3"})
    assert observe_host(LocalRunner("allens"), FLEET, host, Asker(KEY, "ours")).python is None
