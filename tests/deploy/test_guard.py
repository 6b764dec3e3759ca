"""A guard brings back a service that nobody else does, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.states import inventory
from kakeya_ops.deploy.guard import PREFIX, Guard, arm
from kakeya_ops.launchd import Domain
from kakeya_ops.observe.places import Places
from kakeya_ops.remote.local_runner import LocalRunner
from mac.host import MacHost

SILENCE_SECONDS = 0.5


class Watched:
    """A service on a simulated Mac, from a property list in its place."""

    def __init__(self, mac: MacHost) -> None:
        self.mac = mac
        self.runner = LocalRunner("allens")
        self.places = Places.of(inventory(), inventory().host("allens"), str(mac.home))
        Path(self.places.root).mkdir()
        self.domain = Domain("gui", mac.state.own_uid)
        self.load("1000")
        self.old = Path(self.places.plist).read_bytes()

    def load(self, seconds: str, kind: str = "gui") -> None:
        command = ["/bin/sleep", seconds]
        self.mac.preload({"Label": self.places.label, "ProgramArguments": command, "RunAtLoad": True}, kind)

    def unload(self) -> None:
        self.mac.launchctl("bootout", f"{self.domain.target}/{self.places.label}")
        self.mac.wait_until_gone(self.places.label)

    def arm(self, seconds: float = SILENCE_SECONDS) -> Guard:
        return arm(self.runner, self.places, self.domain, seconds)

    def seconds(self) -> str:
        return str(self.mac.wait_until_running(self.places.label).arguments[-1])

    def outcome(self) -> str:
        """What a guard has noted, once it has; it leaves nothing else behind."""
        audit = Path(self.places.audit)
        self.mac.wait_for(lambda: audit.exists() and not self.folders(), "the guard to act")
        (entry,) = map(json.loads, audit.read_text().splitlines())
        assert entry["action"] == "guard"
        assert entry["time"] > 1e9
        return str(entry["outcome"])

    def folders(self) -> list[str]:
        return [path.name for path in Path(self.places.root).iterdir() if path.name.startswith(PREFIX)]


@pytest.fixture
def watched(mac: MacHost) -> Iterator[Watched]:
    made = Watched(mac)
    yield made
    made.runner.run(["/bin/rm", "-rf", made.places.root])


def test_after_a_silence_the_old_service_is_back(watched: Watched) -> None:
    guard = watched.arm()
    watched.unload()
    Path(watched.places.plist).write_bytes(b"half of a new one")
    assert watched.outcome() == "restored"
    assert Path(watched.places.plist).read_bytes() == watched.old
    assert Path(watched.places.plist).stat().st_mode & 0o777 == 0o644
    assert watched.seconds() == "1000"
    assert Path(watched.places.audit).stat().st_mode & 0o777 == 0o600
    assert not guard.stand_down()


@pytest.mark.parametrize(
    "knobs",
    [
        {"eio_next_bootstraps": 2},
        {"bootstrap_ok_but_not_started": True},
        {"profile": "catalina"},
        {"profile": "root"},
    ],
)
def test_it_bears_with_launchd(watched: Watched, knobs: dict[str, object]) -> None:
    watched.arm()
    watched.unload()
    watched.mac.set(**knobs)
    watched.mac.launchctl("disable", f"{watched.domain.target}/{watched.places.label}")
    assert watched.outcome() == "restored"
    assert watched.seconds() == "1000"


def test_a_service_that_is_just_going_is_waited_for(watched: Watched) -> None:
    watched.mac.set(bootout_linger_seconds=2 * SILENCE_SECONDS)
    watched.arm()
    watched.mac.launchctl("bootout", f"{watched.domain.target}/{watched.places.label}")
    assert watched.outcome() == "restored"


@pytest.mark.parametrize("kind", ["gui", "user"])
def test_a_service_that_is_loaded_is_left_as_it_is(watched: Watched, kind: str) -> None:
    watched.arm()
    watched.unload()
    watched.load("2000", kind)
    new = Path(watched.places.plist).read_bytes()
    assert watched.outcome() == "left as it is"
    assert Path(watched.places.plist).read_bytes() == new
    assert (watched.mac.job(watched.places.label, "gui") is None) is (kind == "user")


def test_one_that_is_stood_down_does_nothing(watched: Watched) -> None:
    guard = watched.arm()
    watched.unload()
    assert guard.stand_down()
    assert watched.folders() == []
    threading.Event().wait(2 * SILENCE_SECONDS)  # that nothing happens cannot be waited for otherwise
    assert watched.mac.job(watched.places.label) is None
    assert not Path(watched.places.audit).exists()


def test_while_it_hears_from_us_it_does_nothing(watched: Watched) -> None:
    guard = watched.arm()
    watched.unload()
    pause = threading.Event()
    for _ in range(40):
        guard.beat()
        pause.wait(SILENCE_SECONDS / 10)
    assert watched.mac.job(watched.places.label) is None
    assert guard.stand_down()


def test_what_it_cannot_bring_back_it_says(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kakeya_ops.deploy.guard._TRIES", 3)
    watched.arm()
    watched.unload()
    watched.mac.set(eio_next_bootstraps=99)
    assert watched.outcome() == "not restored"
